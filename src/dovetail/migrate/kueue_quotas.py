"""Converts Kueue's quotas, per flavor and resource, into one share per resource.

The flavors of a resource add up; a flavor whose node labels name a GPU product counts for that product as well. Given a
ClusterQueue or a Cohort; returns shares, and notes the fate of the fields it read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from dovetail.migrate import field_notes, queue_shares
from dovetail.migrate.field_notes import Source, items
from dovetail.migrate.queue_shares import Share
from dovetail.model.queue import queue_resources
from dovetail.quantity import quantity

PRODUCT: Final = "gpu/product."
PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
UNCOUNTED: Final = ("pods", "ephemeral-storage")
FLAVOR_SUM: Final = (
    "quota does not distinguish flavors; the amounts of all flavors of a resource are one sum"
)


def products_of(flavors: Iterable[Source]) -> dict[str, str]:
    """The GPU product of each flavor whose node labels name one."""
    products = {flavor.name: flavor.at("spec", "nodeLabels", PRODUCT_LABEL) for flavor in flavors}
    return {name: value for name, value in products.items() if isinstance(value, str) and value}


class Quotas:
    """Reads the quotas of one object."""

    def __init__(self, source: Source, products: Mapping[str, str], *, may_borrow: bool) -> None:
        self._source = source
        self._products = products
        self._may_borrow = may_borrow
        self._shares: dict[str, Share] = {}
        self._unlimited: set[str] = set()  # some flavor of the resource has no borrowing limit

    def shares(self) -> dict[str, Share]:
        """The shares per resource and per GPU product, summed over all flavors."""
        for index in range(len(items(self._source.at("spec", "resourceGroups")))):
            path = ("spec", "resourceGroups", index)
            self._source.carried(*path, "coveredResources", to="the resources the queue names")
            for number in range(len(items(self._source.at(*path, "flavors")))):
                self._flavor((*path, "flavors", number))
        for name in self._unlimited:
            self._shares[name].limit = None
        return self._shares

    def _flavor(self, path: field_notes.Path) -> None:
        product = self._products.get(str(self._source.at(*path, "name")), "")
        if product:
            self._source.carried(
                *path, "name", to=f"{PRODUCT}{product}, by the flavor's node labels"
            )
        else:
            self._source.approximated(*path, "name", to="one sum for all flavors", why=FLAVOR_SUM)
        for place in range(len(items(self._source.at(*path, "resources")))):
            self._resource((*path, "resources", place), product)

    def _resource(self, path: field_notes.Path, product: str) -> None:
        """Adds one resource of one flavor to the shares."""
        source = self._source
        name = source.text(*path, "name")
        if name in UNCOUNTED or queue_resources.read(name) is None:
            source.dropped(
                *path, why=f"{name or 'a resource without a name'} is not counted by queues"
            )
            return
        source.carried(*path, "name", to=f"spec.resources[{name}]")
        quota_field = f"spec.resources[{name}].quota"
        if source.kind == "Cohort":
            quota_field += ", on top of its members' quotas"
        limit_field = f"spec.resources[{name}].limit, on top of the quota"
        nominal = self._amount(path, "nominalQuota", quota_field) or quantity.ZERO
        borrowed = self._amount(path, "borrowingLimit", limit_field)
        source.dropped(*path, "lendingLimit", why=queue_shares.ALL_IS_LENT)

        self._add(name, nominal, borrowed)
        if product and name in queue_resources.GPU_SPELLINGS:
            self._add(PRODUCT + product, nominal, borrowed)

    def _add(
        self, name: str, nominal: quantity.Quantity, borrowed: quantity.Quantity | None
    ) -> None:
        share = self._shares.setdefault(name, Share())
        share.quota = share.quota.add(nominal)
        if borrowed is None and self._may_borrow:
            self._unlimited.add(name)
        limit = share.limit or quantity.ZERO
        share.limit = limit.add(nominal).add(borrowed or quantity.ZERO)

    def _amount(self, path: field_notes.Path, field: str, to: str) -> quantity.Quantity | None:
        if not self._source.has(*path, field):
            return None
        amount = queue_shares.read(self._source.at(*path, field))
        if amount is None:
            self._source.dropped(*path, field, why="not a quantity, or below zero")
        else:
            self._source.carried(*path, field, to=to)
        return amount

"""Quotas of Kueue, per flavor and resource, into what a queue is due of each resource.

Flavors of one resource add up; a flavor whose node labels name a GPU product is counted as that product besides. Given
a ClusterQueue or a Cohort; answers shares, and accounts for the fields it read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from dovetail.model import quantity, queueresources
from dovetail.model.conversion import notes, shares
from dovetail.model.conversion.notes import Source, items
from dovetail.model.conversion.shares import Share

PRODUCT: Final = "gpu/product."
PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
UNCOUNTED: Final = ("pods", "ephemeral-storage")
FLAVOR_SUM: Final = "quota does not tell flavors apart; the amounts of all flavors of a resource are one sum"


def products_of(flavors: Iterable[Source]) -> dict[str, str]:
    """The GPU product each flavor stands for, as far as its labels say, written as resource names are."""
    found = {one.name: one.at("spec", "nodeLabels", PRODUCT_LABEL) for one in flavors}
    return {name: value for name, value in found.items() if isinstance(value, str) and value}


class Quotas:
    """Reads the quotas of one object."""

    def __init__(self, source: Source, products: Mapping[str, str], *, may_borrow: bool) -> None:
        self._source = source
        self._products = products
        self._may_borrow = may_borrow
        self._found: dict[str, Share] = {}
        self._open: set[str] = set()  # resources some flavor of which may be borrowed without bound

    def shares(self) -> dict[str, Share]:
        """What all flavors give together, and of each GPU product."""
        for index in range(len(items(self._source.at("spec", "resourceGroups")))):
            path = ("spec", "resourceGroups", index)
            if self._source.has(*path, "coveredResources"):
                self._source.carried(*path, "coveredResources", to="the resources the queue names")
            for number in range(len(items(self._source.at(*path, "flavors")))):
                self._flavor((*path, "flavors", number))
        for name in self._open:
            self._found[name].limit = None
        return self._found

    def _flavor(self, path: notes.Path) -> None:
        product = self._products.get(str(self._source.at(*path, "name")), "")
        if product:
            self._source.carried(*path, "name", to=f"{PRODUCT}{product}, by the flavor's node labels")
        elif self._source.has(*path, "name"):
            self._source.approximated(*path, "name", to="one sum for all flavors", why=FLAVOR_SUM)
        for place in range(len(items(self._source.at(*path, "resources")))):
            self._resource((*path, "resources", place), product)

    def _resource(self, path: notes.Path, product: str) -> None:
        """One resource of one flavor, added to what was found."""
        source = self._source
        name = str(source.at(*path, "name") or "")
        if name in UNCOUNTED or queueresources.read(name) is None:
            source.dropped(*path, why=f"{name or 'a resource without a name'} is not counted by queues")
            return
        source.carried(*path, "name", to=f"spec.resources[{name}]")
        sums = ", on top of what its members are due" if source.kind == "Cohort" else ""
        nominal = self._amount(path, "nominalQuota", f"spec.resources[{name}].quota{sums}") or quantity.ZERO
        borrowed = self._amount(path, "borrowingLimit", f"spec.resources[{name}].limit, on top of the quota")
        if source.has(*path, "lendingLimit"):
            source.dropped(
                *path, "lendingLimit", why="quota that is not used is lent, and taken back when it is needed"
            )
        typed = (PRODUCT + product,) if product and name in queueresources.GPU_SPELLINGS else ()
        for target in (name, *typed):
            share = self._found.setdefault(target, Share())
            share.quota = share.quota.add(nominal)
            if borrowed is None and self._may_borrow:
                self._open.add(target)
            share.limit = (share.limit or quantity.ZERO).add(nominal).add(borrowed or quantity.ZERO)

    def _amount(self, path: notes.Path, field: str, to: str) -> quantity.Quantity | None:
        if not self._source.has(*path, field):
            return None
        amount = shares.read(self._source.at(*path, field))
        if amount is None:
            self._source.dropped(*path, field, why="not a quantity, or below zero")
        else:
            self._source.carried(*path, field, to=to)
        return amount

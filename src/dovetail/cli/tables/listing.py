"""What every table of `dovetail get` is made of: the query, the rows, and one record per table.

Given a cluster and filters, a table returns a `Listing`. Never prints.
"""

import datetime
from collections.abc import Callable
from typing import Any

import msgspec

from dovetail.cli import label_option
from dovetail.cli.tables import text
from dovetail.kubetypes import codec
from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.resource import slices
from dovetail.sim.local import local_cluster


class Row(msgspec.Struct, frozen=True):
    """One line: its name as -o name prints it, the narrow cells, the further ones of -o wide."""

    name: str
    cells: tuple[str, ...]
    wide: tuple[str, ...] = ()


class Listing(msgspec.Struct, frozen=True):
    """All rows of a resource and the Kubernetes objects behind them."""

    headers: tuple[str, ...]
    wide_headers: tuple[str, ...]
    rows: tuple[Row, ...]
    documents: tuple[dict[str, Any], ...]


class Query(msgspec.Struct, frozen=True):
    """What the user wants to see. Namespace None means all of them."""

    cluster: local_cluster.Cluster
    now: datetime.datetime
    test: label_option.Test
    namespace: str | None
    node: str | None
    names: tuple[str, ...] = ()
    in_full: bool = False  # nothing is cut short

    def wants(self, stored: codec.Stored) -> bool:
        """Whether an object passes the label and name filters."""
        metadata = stored.struct.metadata
        return self.test(metadata.labels) and self.wants_name(metadata.name)

    def wants_name(self, name: str) -> bool:
        """Whether a name was requested, or none was."""
        return not self.names or name in self.names

    def wants_node(self, name: str | None) -> bool:
        """Whether rows of a node are shown."""
        return self.node in (None, name)

    def age(self, stored: codec.Stored) -> str:
        """How old an object is."""
        return text.age(stored.struct.metadata.creation_timestamp, self.now)


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """One table of `dovetail get`: everything the command needs to know about it."""

    name: str
    aliases: tuple[str, ...]
    listing: Callable[[Query], Listing]
    next_step: str = "get gpus"
    is_namespaced: bool = False
    live_next_step: str = ""  # set for our own kinds, which are shown for a real cluster too


def one_row_each(
    query: Query,
    kind: str,
    row_of: Callable[[Any, codec.Stored], Row | None],
    headers: tuple[str, ...],
    wide_headers: tuple[str, ...] = (),
) -> Listing:
    """Rows that show one object each, in natural order; objects without a row are left out."""
    namespace = query.namespace if local_cluster.is_namespaced(kind) else None
    shown: list[tuple[Row, codec.Stored]] = []
    for stored in local_cluster.listed(query.cluster, kind, namespace=namespace):
        if not query.wants(stored):
            continue
        row = row_of(stored.struct, stored)
        if row is not None:
            shown.append((row, stored))

    shown.sort(key=lambda pair: text.natural(pair[0].name))
    rows = tuple(row for row, _ in shown)
    documents = tuple(stored.tree for _, stored in shown)
    return Listing(headers, wide_headers, rows, documents)


def slices_of_pools(
    cluster: local_cluster.Cluster, pools: set[tuple[str, str]]
) -> tuple[dict[str, Any], ...]:
    """All slices of pools given as (driver, name), including those with counters only."""
    trees = []
    for stored in local_cluster.listed(cluster, "ResourceSlice"):
        if not isinstance(stored.struct, slices.ResourceSlice):
            continue
        spec = stored.struct.spec
        if (spec.driver, spec.pool.name) in pools:
            trees.append(stored.tree)
    return tuple(trees)


def allocatable(node: nodes.Node, resource: str) -> str:
    """A node's allocatable amount of a resource; empty if it has none."""
    amount = node.status.allocatable.get(resource)
    return "" if amount is None else str(amount)

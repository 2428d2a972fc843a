"""The table `dovetail get topologies`: the levels of each, widest first. Never prints."""

from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.custom import topologies
from dovetail.tables import listing

HEADERS = ("topology", "levels", "age")
WIDE_HEADERS = ("labels",)


def rows(query: listing.Query) -> listing.Listing:
    """One row per topology, its levels from the widest to the narrowest."""

    def row_of(topology: topologies.Topology, stored: codec.Stored) -> listing.Row:
        name, levels = topology.metadata.name, topology.spec.levels
        names = " > ".join(level.alias or level.node_label for level in levels)
        labels = ",".join(level.node_label for level in levels)
        cells = (name, names, query.age(stored))
        return listing.Row(f"topology.dovetail.dev/{name}", cells, (labels,))

    return listing.one_row_each(query, "Topology", row_of, HEADERS, WIDE_HEADERS)


TABLE = listing.Table(
    name="topologies",
    aliases=("topology",),
    listing=rows,
    reads=listing.reads_of(registry.TOPOLOGY),
    next_step="get nodes",
    definition=registry.TOPOLOGY,
)

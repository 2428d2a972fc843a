"""The table `dovetail get gpus`: one row per node with GPUs. Never prints."""

from dovetail.cli.tables import gpu_tiles, listing, text
from dovetail.sim.fleet import fleet_objects

HEADERS = ("node", "gpu", "gpus", "tiles", "memory", "offers", "clique", "rack")
WIDE_HEADERS = ("driver", "cpu", "host memory", "clique id")


def rows(query: listing.Query) -> listing.Listing:
    """One row per node with GPUs."""
    shown = [
        node
        for node in gpu_tiles.nodes_with_gpus(query.cluster)
        if query.test(node.node.metadata.labels)
        and query.wants_node(node.name)
        and query.wants_name(node.name)
    ]
    pools = {pool for node in shown for pool in node.pools}
    documents = listing.slices_of_pools(query.cluster, pools)
    return listing.Listing(HEADERS, WIDE_HEADERS, tuple(map(_row, shown)), documents)


def _row(node: gpu_tiles.NodeGpus) -> listing.Row:
    clique = node.label(fleet_objects.CLIQUE_LABEL)
    return listing.Row(
        f"node/{node.name}",
        (
            node.name,
            node.products,
            str(len(node.gpus)),
            node.tiles,
            text.binary(node.memory_bytes),
            node.offers,
            text.short_id(clique),
            node.label(fleet_objects.RACK_LABEL),
        ),
        (
            node.label("nvidia.com/cuda.driver-version.full"),
            listing.allocatable(node.node, "cpu"),
            listing.allocatable(node.node, "memory"),
            clique,
        ),
    )


TABLE = listing.Table(name="gpus", aliases=("gpu",), listing=rows, next_step="get devices")

"""The table `dovetail get gpus`: one row per node with GPUs. Never prints."""

from dovetail.cli.tables import gpu_tiles, listing, text
from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.core import nodes
from dovetail.model import node_pools
from dovetail.sim.fleet import fleet_objects

HEADERS = ("node", "gpu", "gpus", "tiles", "memory", "offers", "clique", "rack")
WIDE_HEADERS = ("driver", "cpu", "host memory", "clique id")


def rows(query: listing.Query) -> listing.Listing:
    """One row per node with GPUs."""
    shown = [
        node
        for node in gpu_tiles.nodes_with_gpus(query.objects)
        if query.test(node.node.metadata.labels)
        and query.wants_node(node.name)
        and query.wants_name(node.name)
    ]
    pools = {pool for node in shown for pool in node.pools}

    def documents() -> list[listing.Tree]:
        """The slices; for nodes that publish none, the nodes."""
        counted = {node.name for node in shown if not node.pools}
        node_trees = [
            stored.tree
            for stored in query.objects.listed("Node")
            if stored.struct.metadata.name in counted
        ]
        return listing.slices_of_pools(query.objects, pools) + node_trees

    return listing.Listing(HEADERS, WIDE_HEADERS, tuple(map(_row, shown)), documents)


def reads(query: listing.Query) -> tuple[object_set.Read, ...]:
    """Nodes, slices and claims; of one node only, where the query names one."""
    name = query.node or (query.names[0] if len(query.names) == 1 else "")
    slices: tuple[object_set.Read, ...] = (object_set.Read(registry.SLICE),)
    if name:
        # A slice without a node may publish devices for single nodes.
        slices = (
            object_set.Read(registry.SLICE, fields=f"spec.nodeName={name}"),
            object_set.Read(registry.SLICE, fields="spec.nodeName="),
        )
    nodes_read = object_set.Read(
        registry.NODE, labels=query.labels, fields=f"metadata.name={name}" if name else ""
    )
    return (nodes_read, *slices, object_set.Read(registry.CLAIM))


def more_reads(query: listing.Query) -> tuple[object_set.Read, ...]:
    """Where a device plugin counts the GPUs of a node, the pods that were bound tell how many are in use."""
    structs = [stored.struct for stored in query.objects.listed("Node")]
    counted = [
        node for node in structs if isinstance(node, nodes.Node) and node_pools.plugin_gpus(node)
    ]
    if not counted:
        return ()
    is_single = len(counted) == 1
    fields = f"spec.nodeName={counted[0].metadata.name}" if is_single else "spec.nodeName!="
    return (object_set.Read(registry.POD, fields=fields),)


def _row(node: gpu_tiles.NodeGpus) -> listing.Row:
    clique = node.label(fleet_objects.CLIQUE_LABEL)
    return listing.Row(
        f"node/{node.name}",
        (
            node.name,
            node.products,
            str(len(node.gpus)),
            node.tiles,
            text.binary(node.memory_bytes) if node.memory_bytes else "",
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


TABLE = listing.Table(
    name="gpus",
    aliases=("gpu",),
    listing=rows,
    reads=reads,
    more_reads=more_reads,
    next_step="get devices",
    shows_objects=False,
)

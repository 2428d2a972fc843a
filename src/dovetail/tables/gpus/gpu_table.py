"""The table `dovetail get gpus`: one row per node with GPUs, what is free, and with -o wide who holds what.

Never prints.
"""

from typing import TYPE_CHECKING

from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.core import nodes
from dovetail.model import node_pools
from dovetail.tables import listing, text
from dovetail.tables.gpus import gpu_tiles

if TYPE_CHECKING:  # the engine, which only -o wide needs
    from dovetail.tables.gpus import gpu_holders

HEADERS = ("node", "gpu", "gpus", "tiles", "free", "memory", "offers", "clique", "rack")
WIDE_HEADERS = ("driver", "cpu", "host memory", "clique id", "held by")


def rows(query: listing.Query) -> listing.Listing:
    """One row per node with GPUs."""
    shown = wanted_nodes(query)
    holders = _holders(query) if query.in_full else None
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

    table_rows = tuple(_row(node, holders) for node in shown)
    return listing.Listing(HEADERS, WIDE_HEADERS, table_rows, documents)


def wanted_nodes(query: listing.Query) -> list[gpu_tiles.NodeGpus]:
    """The nodes with GPUs that the query selects."""
    return [
        node
        for node in gpu_tiles.nodes_with_gpus(query.objects)
        if query.test(node.node.metadata.labels)
        and query.wants_node(node.name)
        and query.wants_name(node.name)
    ]


def _holders(query: listing.Query) -> "gpu_holders.Holders":
    from dovetail.tables.gpus import gpu_holders  # loads the engine

    return gpu_holders.Holders(query.objects, query.now)


def reads(query: listing.Query) -> tuple[object_set.Read, ...]:
    """Nodes, slices, claims and what closes devices; of one node only, where the query names one.

    With -o wide also the pods, and what says which queue each belongs to.
    """
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
    closing = (
        object_set.Read(registry.TAINT_RULE, is_optional=True),
        object_set.Read(registry.INTENT, is_optional=True),
    )
    return (nodes_read, *slices, object_set.Read(registry.CLAIM), *closing, *_reads_of_pods(query))


def _reads_of_pods(query: listing.Query) -> tuple[object_set.Read, ...]:
    if not query.in_full:
        return ()
    from dovetail.tables import membership

    memberships = [object_set.Read(kind, is_optional=True) for kind in membership.KINDS]
    return (object_set.Read(registry.POD, fields="spec.nodeName!="), *memberships)


def more_reads(query: listing.Query) -> tuple[object_set.Read, ...]:
    """Where a device plugin counts the GPUs of a node, the pods that were bound tell how many are in use."""
    if query.in_full:
        return ()  # they were read already
    structs = [stored.struct for stored in query.objects.listed("Node")]
    counted = [
        node for node in structs if isinstance(node, nodes.Node) and node_pools.plugin_gpus(node)
    ]
    if not counted:
        return ()
    is_single = len(counted) == 1
    fields = f"spec.nodeName={counted[0].metadata.name}" if is_single else "spec.nodeName!="
    return (object_set.Read(registry.POD, fields=fields),)


def _row(node: gpu_tiles.NodeGpus, holders: "gpu_holders.Holders | None") -> listing.Row:
    clique = node.label(node_pools.CLIQUE)
    cells = (
        node.name,
        node.products,
        str(len(node.gpus)),
        node.tiles,
        str(node.free),
        text.binary(node.memory_bytes) if node.memory_bytes else "",
        node.offers,
        text.short_id(clique),
        node.label(node_pools.RACK),
    )
    if holders is None:
        return listing.Row(f"node/{node.name}", cells)
    further_cells = (
        node.label("nvidia.com/cuda.driver-version.full"),
        listing.allocatable(node.node, "cpu"),
        listing.allocatable(node.node, "memory"),
        clique,
        holders.text_of(node),
    )
    return listing.Row(f"node/{node.name}", cells, further_cells)


TABLE = listing.Table(
    name="gpus",
    aliases=("gpu",),
    listing=rows,
    reads=reads,
    more_reads=more_reads,
    next_step="get devices",
    shows_objects=False,
)

"""The table `dovetail get nodes`: one row per node. Never prints."""

from dovetail.kubetypes import codec
from dovetail.kubetypes.core import nodes
from dovetail.model import node_pools
from dovetail.tables import listing

HEADERS = ("name", "status", "pool", "gpus", "gpu", "cpu", "memory", "age")
WIDE_HEADERS = ("provider", "spot", "offers", "arch", "pods")


def rows(query: listing.Query) -> listing.Listing:
    """One row per node."""

    def row_of(node: nodes.Node, stored: codec.Stored) -> listing.Row | None:
        return _row(node, query.age(stored)) if query.wants_node(node.metadata.name) else None

    return listing.one_row_each(query, "Node", row_of, HEADERS, WIDE_HEADERS)


def _row(node: nodes.Node, age: str) -> listing.Row:
    labels = node.metadata.labels
    pool = node_pools.pool_of(node)
    return listing.Row(
        f"node/{node.metadata.name}",
        (
            node.metadata.name,
            status_of(node),
            pool.name,
            gpu_count(node),
            pool.accelerator,
            listing.allocatable(node, "cpu"),
            listing.allocatable(node, "memory"),
            age,
        ),
        (
            pool.provider,
            "yes" if pool.is_spot else "",
            pool.offer,
            labels.get("kubernetes.io/arch", ""),
            listing.allocatable(node, "pods"),
        ),
    )


def status_of(node: nodes.Node) -> str:
    """Its condition Ready as a word, and whether it is cordoned."""
    conditions = {condition.type: condition.status for condition in node.status.conditions}
    words = {"True": "Ready", "False": "NotReady"}
    status = words.get(conditions.get("Ready", ""), "Unknown")
    return f"{status},SchedulingDisabled" if node.spec.unschedulable else status


def gpu_count(node: nodes.Node) -> str:
    """GPUs by the label of discovery; else what a device plugin counts."""
    labelled = node.metadata.labels.get(node_pools.COUNT)
    return labelled or str(sum(node_pools.plugin_gpus(node).values()))


TABLE = listing.Table(
    name="nodes",
    aliases=("node", "no"),
    listing=rows,
    reads=listing.reads_of_nodes,
    next_step="get pools",
)

"""The table `dovetail get devices`: one row per published device. Never prints."""

from typing import Final

from dovetail.cli.tables import gpu_tiles, listing, text
from dovetail.sim.local import local_cluster

PCI: Final = "resource.kubernetes.io"
HEADERS: Final = ("node", "device", "type", "model", "memory", "gpu", "pci", "numa", "state")
WIDE_HEADERS: Final = ("driver", "product", "gpu uuid", "pcie root", "compute", "driver version")


def rows(query: listing.Query) -> listing.Listing:
    """One row per published device. -l matches the labels of the node."""
    node_labels = {
        stored.struct.metadata.name: stored.struct.metadata.labels
        for stored in local_cluster.listed(query.cluster, "Node")
    }
    shown = [
        item
        for item in gpu_tiles.items(query.cluster)
        if query.wants_node(item.node)
        and query.test(node_labels.get(item.node, {}))
        and query.wants_name(item.device.name)
    ]
    pools = {(item.driver, item.pool) for item in shown}
    documents = listing.slices_of_pools(query.cluster, pools)
    return listing.Listing(HEADERS, WIDE_HEADERS, tuple(map(_row, shown)), documents)


def _row(item: gpu_tiles.Item) -> listing.Row:
    product = text.product(item.word("productName"))
    uuid = item.word("uuid") or item.word("parentUUID")
    return listing.Row(
        f"device/{item.pool}/{item.device.name}",
        (
            item.node,
            item.device.name,
            item.word("type"),
            item.word("profile") or product,
            text.binary(item.memory_bytes) if item.memory_bytes else "",
            text.short_id(uuid),
            item.word("pciBusID", domain=PCI),
            item.word("numaNode", domain=PCI),
            "allocated" if item.is_allocated else "free",
        ),
        (
            item.driver,
            product,
            uuid,
            item.word("pcieRoot", domain=PCI),
            item.word("cudaComputeCapability"),
            item.word("driverVersion"),
        ),
    )


TABLE = listing.Table(name="devices", aliases=("device",), listing=rows, next_step="get claims -A")

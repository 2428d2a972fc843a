"""The table `dovetail get devices`: one row per published device. Never prints."""

from typing import Final

import msgspec

from dovetail.cli.tables import gpu_table, gpu_tiles, listing, plugin_gpus, text
from dovetail.kubetypes import object_set

PCI: Final = "resource.kubernetes.io"
HEADERS: Final = ("node", "device", "type", "model", "memory", "gpu", "pci", "numa", "state")
WIDE_HEADERS: Final = ("driver", "product", "gpu uuid", "pcie root", "compute", "driver version")


def rows(query: listing.Query) -> listing.Listing:
    """One row per published device. -l matches the labels of the node."""
    node_labels = {
        stored.struct.metadata.name: stored.struct.metadata.labels
        for stored in query.objects.listed("Node")
    }
    shown = [
        item
        for item in gpu_tiles.items(query.objects)
        if query.wants_node(item.node)
        and query.test(node_labels.get(item.node, {}))
        and query.wants_name(item.device.name)
    ]
    pools = {(item.driver, item.pool) for item in shown}
    counted = [resource for resource in _counted(query) if query.wants_name(resource.name)]
    all_rows = [*map(_row, shown), *map(_counted_row, counted)]
    return listing.Listing(
        HEADERS,
        WIDE_HEADERS,
        tuple(all_rows),
        lambda: listing.slices_of_pools(query.objects, pools),
    )


def _counted(query: listing.Query) -> list[plugin_gpus.Resource]:
    """What device plugins count, on nodes that publish no GPUs."""
    used = plugin_gpus.used_in(query.objects)
    resources: list[plugin_gpus.Resource] = []
    for node in gpu_tiles.nodes_with_gpus(query.objects):
        is_wanted = query.wants_node(node.name) and query.test(node.node.metadata.labels)
        if is_wanted and not node.pools:
            resources += plugin_gpus.resources_of(node.node, used.get(node.name, {}))
    return resources


def _counted_row(resource: plugin_gpus.Resource) -> listing.Row:
    """One row for all devices of a resource, because they have no names."""
    return listing.Row(
        f"device/{resource.node}/{resource.name}",
        (
            resource.node,
            resource.name,
            resource.type,
            resource.profile,
            "",
            "",
            "",
            "",
            f"{resource.used} of {resource.total} allocated",
        ),
        ("device plugin", "", "", "", "", ""),
    )


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


def _reads(query: listing.Query) -> tuple[object_set.Read, ...]:
    """As the GPUs, but names are those of devices here, and every node's labels are compared.

    Devices of a node that the server left out would count as devices of a node without labels.
    """
    return gpu_table.reads(msgspec.structs.replace(query, names=(), labels=""))


TABLE = listing.Table(
    name="devices",
    aliases=("device",),
    listing=rows,
    reads=_reads,
    more_reads=gpu_table.more_reads,
    next_step="get claims -A",
    shows_objects=False,
)

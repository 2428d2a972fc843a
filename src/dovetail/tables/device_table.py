"""The table `dovetail get devices`: one row per published device, with what keeps claims off it. Never prints."""

from typing import Final

import msgspec

from dovetail.kubetypes import node_selectors, object_set
from dovetail.tables import listing, text
from dovetail.tables.gpus import gpu_table, gpu_tiles, plugin_gpus, unavailable_gpus

PCI: Final = "resource.kubernetes.io"
DEVICE_PLUGIN: Final = "device plugin"  # in the place of a driver
HEADERS: Final = ("node", "device", "type", "model", "memory", "gpu", "pci", "numa", "state")
WIDE_HEADERS: Final = (
    "driver",
    "product",
    "gpu uuid",
    "pcie root",
    "compute",
    "driver version",
    "taints",
)

Taints = unavailable_gpus.Taints


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
    rules = unavailable_gpus.taints_of_rules(query.objects, (item.id for item in shown))
    published = [_row(item, item.device.taints + rules.get(item.id, ())) for item in shown]
    all_rows = [*published, *map(_counted_row, counted)]
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
            counted_state(resource),
        ),
        (DEVICE_PLUGIN, "", "", "", "", "", ""),
    )


def counted_state(resource: plugin_gpus.Resource) -> str:
    """How many devices of a resource pods hold."""
    return f"{resource.used} of {resource.total} allocated"


def state_of(item: gpu_tiles.Item, taints: Taints) -> str:
    """Whether a claim holds the device, and whether it is open to claims without a toleration."""
    words = ["allocated"] if item.is_allocated else []
    if unavailable_gpus.keeps_off(taints):
        words.append("tainted")
    return ",".join(words) or "free"


def taint_text(taint: node_selectors.DeviceTaint) -> str:
    """`key=value:effect`, as kubectl writes the taints of nodes."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _row(item: gpu_tiles.Item, taints: Taints) -> listing.Row:
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
            state_of(item, taints),
        ),
        (
            item.driver,
            product,
            uuid,
            item.word("pcieRoot", domain=PCI),
            item.word("cudaComputeCapability"),
            item.word("driverVersion"),
            ",".join(map(taint_text, taints)),
        ),
    )


def _reads(query: listing.Query) -> tuple[object_set.Read, ...]:
    """As the GPUs with the rules that taint them, but names are those of devices here, and all labels are compared.

    Devices of a node that the server left out would count as devices of a node without labels.
    """
    return gpu_table.reads(msgspec.structs.replace(query, names=(), labels="", in_full=False))


TABLE = listing.Table(
    name="devices",
    aliases=("device",),
    listing=rows,
    reads=_reads,
    more_reads=gpu_table.more_reads,
    next_step="get claims -A",
    shows_objects=False,
)

"""The table `dovetail get devices`: one row per published device, with what keeps claims off it. Never prints."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from dovetail.cli.tables import gpu_table, gpu_tiles, listing, plugin_gpus, text
from dovetail.kubetypes import node_selectors, object_set, registry
from dovetail.kubetypes.resource import taint_rules

PCI: Final = "resource.kubernetes.io"
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
NO_EFFECT: Final = "None"  # DeviceTaintEffectNone: says something, keeps no claim off

Taints = tuple[node_selectors.DeviceTaint, ...]


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
    rules = _rule_taints(query.objects, shown)
    published = [_row(item, item.device.taints + rules.get(_id(item), ())) for item in shown]
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
            f"{resource.used} of {resource.total} allocated",
        ),
        ("device plugin", "", "", "", "", "", ""),
    )


def _rule_taints(
    objects: object_set.ObjectSet, items: Sequence[gpu_tiles.Item]
) -> Mapping[gpu_tiles.DeviceId, Taints]:
    """The taints that DeviceTaintRules put on devices."""
    structs = [stored.struct for stored in objects.listed(registry.TAINT_RULE.name)]
    rules = [rule for rule in structs if isinstance(rule, taint_rules.DeviceTaintRule)]
    if not rules:
        return {}
    from dovetail.world.devices import taint_rule_index  # few clusters have rules

    index = taint_rule_index.Rules(rules)
    by_pool: dict[tuple[str, str], list[str]] = {}
    for item in items:
        by_pool.setdefault((item.driver, item.pool), []).append(item.device.name)
    taints: dict[gpu_tiles.DeviceId, Taints] = {}
    for (driver, pool), names in by_pool.items():
        for number, of_device in index.of_devices((driver, pool), tuple(names)).items():
            taints[driver, pool, names[number]] = of_device.taints
    return taints


def _id(item: gpu_tiles.Item) -> gpu_tiles.DeviceId:
    return item.driver, item.pool, item.device.name


def _state(item: gpu_tiles.Item, taints: Taints) -> str:
    """Whether a claim holds the device, and whether it is open to claims without a toleration."""
    words = ["allocated"] if item.is_allocated else []
    if any(taint.effect != NO_EFFECT for taint in taints):
        words.append("tainted")
    return ",".join(words) or "free"


def _taint(taint: node_selectors.DeviceTaint) -> str:
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
            _state(item, taints),
        ),
        (
            item.driver,
            product,
            uuid,
            item.word("pcieRoot", domain=PCI),
            item.word("cudaComputeCapability"),
            item.word("driverVersion"),
            ",".join(map(_taint, taints)),
        ),
    )


def _reads(query: listing.Query) -> tuple[object_set.Read, ...]:
    """As the GPUs with the rules that taint them, but names are those of devices here, and all labels are compared.

    Devices of a node that the server left out would count as devices of a node without labels.
    """
    gpus = gpu_table.reads(msgspec.structs.replace(query, names=(), labels=""))
    return (*gpus, object_set.Read(registry.TAINT_RULE))


TABLE = listing.Table(
    name="devices",
    aliases=("device",),
    listing=rows,
    reads=_reads,
    more_reads=gpu_table.more_reads,
    next_step="get claims -A",
    shows_objects=False,
)

"""Devices as rows: what `dovetail get devices` shows, as structs with their holders. Never prints."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dovetail.kubetypes import object_set
from dovetail.tables import device_table, text
from dovetail.tables.gpus import gpu_holders, gpu_tiles, plugin_gpus, unavailable_gpus


class DeviceItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One published device, or all devices of a resource that a device plugin counts."""

    node: str
    device: str
    driver: str
    pool: str
    type: str
    model: str
    memory_bytes: int | None
    gpu: str  # the uuid of the GPU that it is, or is a part of
    state: str
    holder: str = ""  # namespace/pod, several joined by a comma
    holder_namespaces: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()


def items_of(objects: object_set.ObjectSet, *, node: str | None = None) -> tuple[DeviceItem, ...]:
    """All devices, or those of one node: node by node and in counting order."""
    shown = [item for item in gpu_tiles.items(objects) if node in (None, item.node)]
    rules = unavailable_gpus.taints_of_rules(objects, [item.id for item in shown])
    held_gpus = gpu_holders.HeldGpus(objects)
    published = [
        _published(item, item.device.taints + rules.get(item.id, ()), held_gpus) for item in shown
    ]
    return (*published, *_counted(objects, node))


def _published(
    item: gpu_tiles.Item, taints: unavailable_gpus.Taints, held_gpus: gpu_holders.HeldGpus
) -> DeviceItem:
    held = dict.fromkeys(unit.held for unit in held_gpus.of_device(item.id))
    return DeviceItem(
        node=item.node,
        device=item.device.name,
        driver=item.driver,
        pool=item.pool,
        type=item.word("type"),
        model=item.word("profile") or text.product(item.word("productName")),
        memory_bytes=item.memory_bytes or None,
        gpu=item.word("uuid") or item.word("parentUUID"),
        state=device_table.state_of(item, taints),
        holder=", ".join(map(_holder_text, held)),
        holder_namespaces=tuple(dict.fromkeys(each.namespace for each in held)),
        taints=tuple(map(device_table.taint_text, taints)),
    )


def _holder_text(held: gpu_holders.Held) -> str:
    kind = "" if held.kind == gpu_holders.POD else f"{held.kind} "
    return f"{kind}{held.namespace}/{held.name}"


def _counted(objects: object_set.ObjectSet, node: str | None) -> Iterator[DeviceItem]:
    """One row for each resource of a device plugin, because its devices have no names."""
    used = plugin_gpus.used_in(objects)
    for each in gpu_tiles.nodes_with_gpus(objects):
        if each.pools or node not in (None, each.name):
            continue
        for resource in plugin_gpus.resources_of(each.node, used.get(each.name, {})):
            yield DeviceItem(
                node=resource.node,
                device=resource.name,
                driver=device_table.DEVICE_PLUGIN,
                pool="",
                type=resource.type,
                model=resource.profile,
                memory_bytes=None,
                gpu="",
                state=device_table.counted_state(resource),
            )

"""Finds the GPUs that a cluster has, as history counts them: one asset per GPU, or one per node that only counts them.

Partitions of a GPU draw on the same counters, so a pool's devices are grouped by counter set, and each group is one
GPU. It is known by its uuid, so that it stays the same asset when it is cut differently. Given pools and nodes. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.resource import slices
from dovetail.model import node_pools
from dovetail.model.accounting.records import Asset
from dovetail.world.devices import gpu_ledger
from dovetail.world.devices.device_columns import Devices, Template
from dovetail.world.devices.device_pools import PoolKey

# That price lists may name.
PRICED_LABELS: Final = (
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "karpenter.sh/capacity-type",
    "kubernetes.io/arch",
)
UUID: Final = "uuid"
PARENT_UUID: Final = "parentUUID"
PRODUCT: Final = "productName"
PROFILE: Final = "profile"
MEMORY: Final = "memory"
_SUFFIX: Final = re.compile(r"-(?:SHARED|MIG-.*)$")


def of_pool(pool: PoolKey, devices: Devices, node: nodes.Node | None) -> Iterator[Asset]:
    """The GPUs of a pool. They begin at 0: the recorder knows when."""
    if not gpu_ledger.publishes_gpus(devices.driver):
        return
    for places in _groups(devices.templates):
        whole = _whole(devices, places)
        name = devices.origins[whole].node_name or ""
        yield Asset(
            asset=_name(pool, devices, places),
            node=name,
            product=text_of(devices, PRODUCT, whole),
            start=0,
            memory_bytes=memory_of(devices.templates[whole]),
            pool=node_pools.name_of(node) if node is not None else "",
            is_spot=node is not None and node_pools.pool_of(node).is_spot,
            labels=_labels(node),
        )


def of_device(pool: PoolKey, devices: Devices, index: int) -> str:
    """The asset that a device is, or is a part of."""
    template = devices.templates[index]
    own = tuple(consumption.counter_set for consumption in template.consumes_counters)
    if not own:
        return text_of(devices, UUID, index) or _place(pool, devices.names[index])
    places = next(places for places in _groups(devices.templates) if index in places)
    return _name(pool, devices, places)


def counted(node: nodes.Node) -> Iterator[Asset]:
    """The GPUs that a device plugin counts on a node, by resource."""
    amounts = node.status.capacity or node.status.allocatable
    labels = node.metadata.labels
    for resource, amount in amounts.items():
        milli_gpu = gpu_ledger.plugin_cost(resource, amount.value(), labels)
        if milli_gpu <= 0:
            continue
        pool = node_pools.pool_of(node)
        yield Asset(
            asset=counted_name(node.metadata.name, resource),
            node=node.metadata.name,
            product=_labelled_product(node) or pool.accelerator,
            start=0,
            count=-(-milli_gpu // gpu_ledger.WHOLE),
            memory_bytes=_labelled_memory(node),
            pool=pool.name,
            is_spot=pool.is_spot,
            labels=_labels(node),
        )


def counted_name(node: str, resource: str) -> str:
    """The asset of a node that counts its GPUs."""
    return f"{node}/{resource}"


def text_of(devices: Devices, attribute: str, index: int) -> str:
    """An attribute of a device, qualified or not; empty if it has none."""
    for name in (attribute, f"{devices.driver}/{attribute}"):
        column = devices.column(name)
        value = column[index] if column is not None else None
        if value is not None and value.string_value is not None:
            return value.string_value
    return ""


def memory_of(template: Template) -> int:
    """The memory of a device in bytes; 0 if it does not say."""
    for name, capacity in template.capacity.items():
        if name.rpartition("/")[2] == MEMORY:
            return capacity.value.value()
    return 0


def _groups(templates: tuple[slices.Device, ...]) -> tuple[tuple[int, ...], ...]:
    """Places of the devices of each GPU: those of one counter set, or a device without any."""
    groups: dict[str | int, list[int]] = {}
    for place, template in enumerate(templates):
        counter_sets = [consumption.counter_set for consumption in template.consumes_counters]
        groups.setdefault(counter_sets[0] if counter_sets else place, []).append(place)
    return tuple(map(tuple, groups.values()))


def _whole(devices: Devices, places: tuple[int, ...]) -> int:
    """The device that is all of a GPU: the one that is no partition, else the one with most memory."""
    return max(
        places,
        key=lambda place: (
            not text_of(devices, PARENT_UUID, place),
            memory_of(devices.templates[place]),
            -place,
        ),
    )


def _name(pool: PoolKey, devices: Devices, places: tuple[int, ...]) -> str:
    for place in places:
        if parent := text_of(devices, PARENT_UUID, place):
            return parent
    whole = _whole(devices, places)
    return text_of(devices, UUID, whole) or _place(pool, devices.names[whole])


def _place(pool: PoolKey, device: str) -> str:
    return "/".join((*pool, device))


def _labels(node: nodes.Node | None) -> dict[str, str]:
    if node is None:
        return {}
    labels = node.metadata.labels
    return {name: labels[name] for name in PRICED_LABELS if name in labels}


def _labelled_product(node: nodes.Node) -> str:
    """The board as feature discovery names it, without what it adds for boards that are shared or partitioned."""
    return _SUFFIX.sub("", node.metadata.labels.get(node_pools.PRODUCT, ""))


def _labelled_memory(node: nodes.Node) -> int:
    mebibytes = node.metadata.labels.get(gpu_ledger.MEMORY_LABEL, "")
    return int(mebibytes[:12]) << 20 if mebibytes.isascii() and mebibytes.isdecimal() else 0

"""How a node's devices are spread over the slices of its pool, as NVIDIA's driver does and within the API's limits.

Given an inventory, settings and taints, returns the contents of the slices in the order in which they are published.
Never writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from dovetail.kubetypes import node_selectors
from dovetail.kubetypes.resource import slices
from dovetail.node.inventory import Gpu, Inventory
from dovetail.node.slices import devices
from dovetail.node.slices.options import SliceOptions

Taints = Mapping[str, Sequence[node_selectors.DeviceTaint]]
T = TypeVar("T")


class SliceContent(msgspec.Struct, frozen=True, gc=False):
    """What one slice of the pool holds."""

    devices: tuple[slices.Device, ...] = ()
    shared_counters: tuple[slices.CounterSet, ...] = ()


def contents(
    inventory: Inventory, options: SliceOptions, *, taints: Taints | None = None
) -> tuple[SliceContent, ...]:
    """The pool, slice by slice. Taints are by device name; those of a whole GPU hold for all devices on it.

    A node without devices has one empty slice: it says that the pool is complete, and has nothing.
    """
    gpus = sorted(inventory.gpus, key=lambda gpu: gpu.pci_bus_id)
    by_gpu = [_tainted(gpu, inventory, options, taints=taints or {}) for gpu in gpus]
    sets_by_gpu = [devices.counter_sets(gpu, options) for gpu in gpus]
    if not options.is_mig_dynamic:
        parts = _together(by_gpu)
    elif options.has_split_counters and any(gpu.is_mig_capable for gpu in gpus):
        parts = _split(by_gpu, sets_by_gpu)
    else:
        parts = _combined(by_gpu, sets_by_gpu)
    return tuple(parts) or (SliceContent(),)


def _together(by_gpu: Sequence[Sequence[slices.Device]]) -> list[SliceContent]:
    """One slice for the node, unless it has more devices than a slice may hold."""
    every = [device for group in by_gpu for device in group]
    ordered = sorted(every, key=lambda device: device.name)
    return [SliceContent(devices=chunk) for chunk in _chunks(ordered, _limit(ordered))]


def _split(
    by_gpu: Sequence[Sequence[slices.Device]],
    sets_by_gpu: Sequence[Sequence[slices.CounterSet]],
) -> list[SliceContent]:
    """The counters of all GPUs first, then the devices GPU by GPU.

    The first slice stays where no GPU has counters now, as with NVIDIA's driver: the others keep their places.
    """
    every = [counter_set for group in sets_by_gpu for counter_set in group]
    counters = _chunks(every, slices.MAX_COUNTER_SETS) or [()]
    first = [SliceContent(shared_counters=chunk) for chunk in counters]
    groups = [chunk for group in by_gpu for chunk in _chunks(group, _limit(group))]
    return first + [SliceContent(devices=chunk) for chunk in groups]


def _combined(
    by_gpu: Sequence[Sequence[slices.Device]],
    sets_by_gpu: Sequence[Sequence[slices.CounterSet]],
) -> list[SliceContent]:
    """Per GPU one slice with its counters and devices, as Kubernetes 1.34 wants it."""
    pairs = zip(by_gpu, sets_by_gpu, strict=True)
    return [SliceContent(tuple(group), tuple(sets)) for group, sets in pairs if group]


def _tainted(
    gpu: Gpu, inventory: Inventory, options: SliceOptions, *, taints: Taints
) -> list[slices.Device]:
    offered = devices.offered(gpu, inventory, options)
    of_gpu = tuple(taints.get(gpu.name, ()))
    marked: list[slices.Device] = []
    for device in offered:
        own = tuple(taints.get(device.name, ())) if device.name != gpu.name else ()
        both = (*of_gpu, *own)[: slices.MAX_TAINTS]
        marked.append(msgspec.structs.replace(device, taints=both) if both else device)
    return marked


def _limit(group: Sequence[slices.Device]) -> int:
    """Devices a slice may hold: fewer where one of them has taints or counters."""
    is_advanced = any(device.taints or device.consumes_counters for device in group)
    return slices.MAX_DEVICES_WITH_ADVANCED_FEATURES if is_advanced else slices.MAX_DEVICES


def _chunks(sequence: Sequence[T], size: int) -> list[tuple[T, ...]]:
    starts = range(0, len(sequence), size)
    return [tuple(sequence[start : start + size]) for start in starts]

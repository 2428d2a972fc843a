"""Which writes turn the slices that are in the API server into the pool that should be there.

Given the stored slices of one pool and the contents it should have, returns writes in order. A pool is the slices of
the highest generation, and complete when there are as many as each of them says. From that follow the rules here:

- One write that changes one slice and nothing else keeps the generation: readers see the old pool or the new one.
- Everything else starts a generation, or completes one that was begun with the same contents. Until its last slice is
  written the pool is incomplete, and readers wait.
- Whatever is of an older generation is deleted last: it is no part of the pool any more.

So a complete pool is never a mixture of two inventories, and a run that ends after any write is repaired by the next.
Never talks to a server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from dovetail.kubetypes import meta, node_selectors
from dovetail.kubetypes.resource import slices
from dovetail.node.slices.layout import SliceContent

INDEX_DIGITS: Final = (
    5  # k8s.io/dynamic-resource-allocation 1.37: an index in hexadecimal comes first
)


class Create(msgspec.Struct, frozen=True, gc=False):
    """A slice to create; the server completes its name."""

    index: int
    pool: slices.ResourcePool
    content: SliceContent


class Update(msgspec.Struct, frozen=True, gc=False):
    """A slice to change, if it is still as it was read."""

    index: int
    stored: slices.ResourceSlice
    pool: slices.ResourcePool
    content: SliceContent


class Delete(msgspec.Struct, frozen=True, gc=False):
    """A slice to delete, if it is still as it was read."""

    stored: slices.ResourceSlice


Write = Create | Update | Delete


def writes(
    stored: Sequence[slices.ResourceSlice],
    wanted: Sequence[SliceContent],
    *,
    pool_name: str,
) -> list[Write]:
    """In order, and none if the pool is already as wanted. `stored` are all slices of the pool."""
    generation = max((each.spec.pool.generation for each in stored), default=0)
    current = _by_index(stored, generation=generation, count=len(wanted))
    kept = {each.metadata.name for each in current.values()}
    surplus = [each for each in stored if each.metadata.name not in kept]
    pool = slices.ResourcePool(
        name=pool_name, generation=generation, resource_slice_count=len(wanted)
    )
    changed = [
        index
        for index, each in current.items()
        if each.spec.pool != pool or not is_same(each.spec, wanted[index])
    ]
    is_complete = len(current) == len(wanted)
    has_rivals = any(each.spec.pool.generation == generation for each in surplus)
    if is_complete and not changed and not has_rivals:
        return [Delete(each) for each in surplus]
    # A single change of content is atomic. A change of the count is not: other slices still state the old one.
    if is_complete and not has_rivals and _is_single(current, changed, pool):
        index = changed[0]
        update = Update(index, current[index], pool, wanted[index])
        return [update, *(Delete(each) for each in surplus)]
    # A run that ended early is continued: what it wrote is as wanted, and the rest is missing.
    is_begun = bool(current) and not changed and not has_rivals
    if not is_begun:
        pool = msgspec.structs.replace(pool, generation=generation + 1)
    kept_as_is = current if is_begun else {}
    steps = _generation(current, wanted, pool)
    return [
        *(step for step in steps if step.index not in kept_as_is),
        *(Delete(each) for each in surplus),
    ]


def is_same(spec: slices.ResourceSliceSpec, content: SliceContent) -> bool:
    """Whether a stored slice holds this content. The server adds the time of a taint: that is no difference."""
    stored_sets = tuple(spec.shared_counters)
    if stored_sets != content.shared_counters or len(spec.devices) != len(content.devices):
        return False
    pairs = zip(spec.devices, content.devices, strict=True)
    return all(_is_same_device(stored, wanted) for stored, wanted in pairs)


def with_stored_times(
    content: SliceContent, stored: Sequence[slices.Device]
) -> tuple[slices.Device, ...]:
    """The content's devices; a taint that is stored already keeps the time since which it holds."""
    taints_by_device = {device.name: device.taints for device in stored if device.taints}
    return tuple(_with_times(device, taints_by_device) for device in content.devices)


def name_prefix(index: int, *, driver: str, node: str) -> str:
    """What the server completes. Slices sort by name in the order of publication."""
    return f"{index:0{INDEX_DIGITS}x}-{driver}-{node}-"


def index_of(name: str) -> int | None:
    """The index in a slice's name; None if it has none."""
    digits, dash, _ = name.partition("-")
    if not dash or len(digits) != INDEX_DIGITS:
        return None
    try:
        return int(digits, 16)
    except ValueError:
        return None


def _by_index(
    stored: Sequence[slices.ResourceSlice], *, generation: int, count: int
) -> dict[int, slices.ResourceSlice]:
    """The slices of the generation that keep their place; of two for one place the first by name."""
    current: dict[int, slices.ResourceSlice] = {}
    for each in sorted(stored, key=lambda candidate: candidate.metadata.name):
        index = index_of(each.metadata.name)
        is_usable = index is not None and index < count
        is_current = each.spec.pool.generation == generation
        is_leaving = each.metadata.deletion_timestamp is not None
        if is_usable and is_current and not is_leaving:
            assert index is not None
            current.setdefault(index, each)
    return current


def _is_single(
    current: Mapping[int, slices.ResourceSlice],
    changed: Sequence[int],
    pool: slices.ResourcePool,
) -> bool:
    return len(changed) == 1 and current[changed[0]].spec.pool == pool


def _generation(
    current: Mapping[int, slices.ResourceSlice],
    wanted: Sequence[SliceContent],
    pool: slices.ResourcePool,
) -> list[Create | Update]:
    steps: list[Create | Update] = []
    for index, content in enumerate(wanted):
        held = current.get(index)
        if held is None:
            steps.append(Create(index, pool, content))
        else:
            steps.append(Update(index, held, pool, content))
    return steps


def _is_same_device(stored: slices.Device, wanted: slices.Device) -> bool:
    if len(stored.taints) != len(wanted.taints):
        return False
    pairs = zip(stored.taints, wanted.taints, strict=True)
    taints = tuple(_timed(mine, since=theirs.time_added) for theirs, mine in pairs)
    return stored == msgspec.structs.replace(wanted, taints=taints)


def _with_times(
    device: slices.Device, stored: Mapping[str, Sequence[node_selectors.DeviceTaint]]
) -> slices.Device:
    if not device.taints or device.name not in stored:
        return device
    times = {_identity(taint): taint.time_added for taint in stored[device.name]}
    taints = tuple(_timed(taint, since=times.get(_identity(taint))) for taint in device.taints)
    return msgspec.structs.replace(device, taints=taints)


def _identity(taint: node_selectors.DeviceTaint) -> tuple[str, str, str]:
    return (taint.key, taint.value, taint.effect)


def _timed(
    taint: node_selectors.DeviceTaint, *, since: meta.Time | None
) -> node_selectors.DeviceTaint:
    """With this time, unless the taint has one of its own."""
    if taint.time_added is not None or since is None:
        return taint
    return msgspec.structs.replace(taint, time_added=since)

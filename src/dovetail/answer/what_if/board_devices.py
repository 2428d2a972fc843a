"""The GPUs of one node as its slices publish them, board by board, and the slices for other devices on them.

Given the slices of a node. Boards are distinguished by their uuid, which partitions name as their parent. Devices of
another geometry draw on counters, as a driver with dynamic MIG publishes them. Never reads a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from dovetail import errors, gpus
from dovetail.answer.what_if import mig_layout
from dovetail.kubetypes import meta
from dovetail.kubetypes.resource import capacity, slices
from dovetail.quantity import quantity

MIB: Final = 1024**2
# Attributes of one device, not of its board.
OF_DEVICE: Final = frozenset({"type", "uuid", "parentUUID", "profile"})
# Counter on the left, capacity on the right, as NVIDIA's driver names them.
ENGINES: Final = {
    "multiprocessors": ("multiprocessors", "multiprocessors"),
    "copy_engines": ("copy-engines", "copyEngines"),
    "decoders": ("decoders", "decoders"),
    "encoders": ("encoders", "encoders"),
    "jpeg_engines": ("jpeg-engines", "jpegEngines"),
    "ofa_engines": ("ofa-engines", "ofaEngines"),
}
Attributes = dict[str, slices.DeviceAttribute]
T = TypeVar("T")


class Board(NamedTuple):
    """One GPU."""

    uuid: str
    name: str  # of the whole GPU as a device: gpu-0
    attributes: Attributes  # without those of single devices


def boards_of(parts: Sequence[slices.ResourceSlice]) -> list[Board]:
    """The boards, by name."""
    boards: dict[str, Board] = {}
    for part in parts:
        for device in part.spec.devices:
            uuid = _text(device, "parentUUID") or _text(device, "uuid")
            if not uuid:
                continue
            name = device.name.partition("-mig-")[0]
            shared = {
                key: value for key, value in device.attributes.items() if key not in OF_DEVICE
            }
            known = boards.get(uuid)
            if known is not None:  # what all its devices say
                shared = {
                    key: value
                    for key, value in known.attributes.items()
                    if shared.get(key) == value
                }
            boards[uuid] = Board(uuid, name, shared)
    return sorted(boards.values(), key=lambda board: (len(board.name), board.name))


def whole(board: Board, gpu: gpus.Gpu) -> slices.Device:
    """The board as one device."""
    if gpu.memory_bytes is None:
        raise errors.InputError(f"the memory of {gpu.name} is not known")
    attributes = {"type": _attribute("gpu"), "uuid": _attribute(board.uuid), **board.attributes}
    memory = capacity.DeviceCapacity(value=_binary(gpu.memory_bytes.value))
    return slices.Device(name=board.name, attributes=attributes, capacity={"memory": memory})


def partitions(board: Board, layout: Sequence[mig_layout.Placed]) -> Iterator[slices.Device]:
    """The partitions of a board."""
    for profile, start, size in layout:
        if profile.gi_profile_id is None or profile.memory_bytes is None:
            raise errors.InputError(f"the figures of {profile.name.value} are not known")
        plain = profile.name.value.lower().replace(".", "").replace("+", "-")
        amounts = _amounts(profile)
        counters = {name: slices.Counter(value=amount) for name, (amount, _) in amounts.items()} | {
            f"memory-slice-{index}": _one() for index in range(start, start + size)
        }
        yield slices.Device(
            name=f"{board.name}-mig-{plain}-{profile.gi_profile_id.value}-{start}",
            attributes={
                "type": _attribute("mig"),
                "parentUUID": _attribute(board.uuid),
                "profile": _attribute(profile.name.value),
                **board.attributes,
            },
            capacity={
                name: capacity.DeviceCapacity(value=amount) for amount, name in amounts.values()
            },
            consumes_counters=(
                slices.DeviceCounterConsumption(counter_set=_set_name(board), counters=counters),
            ),
        )


def counter_set(board: Board, gpu: gpus.Gpu) -> slices.CounterSet:
    """All that the partitions of a board draw on: the most any profile takes, and every memory slice."""
    assert gpu.mig is not None
    largest: dict[str, quantity.Quantity] = {}
    for profile in gpus.profiles(gpu):
        if profile.memory_bytes is None:
            continue
        for name, (amount, _) in _amounts(profile).items():
            largest[name] = max(amount, largest.get(name, quantity.ZERO))
    counters = {name: slices.Counter(value=amount) for name, amount in largest.items()}
    counters |= {f"memory-slice-{index}": _one() for index in range(gpu.mig.memory_slices)}
    return slices.CounterSet(name=_set_name(board), counters=counters)


def published(
    before: Sequence[slices.ResourceSlice],
    devices: Sequence[slices.Device],
    counter_sets: Sequence[slices.CounterSet],
) -> list[slices.ResourceSlice]:
    """The slices of these devices instead of those before, as the next generation of their pool."""
    first = before[0]
    empty = slices.ResourceSliceSpec(driver=first.spec.driver, node_name=first.spec.node_name)
    parts = [
        msgspec.structs.replace(empty, shared_counters=tuple(chunk))
        for chunk in _chunks(counter_sets, slices.MAX_COUNTER_SETS)
    ]
    most = slices.MAX_DEVICES_WITH_ADVANCED_FEATURES if counter_sets else slices.MAX_DEVICES
    ordered = sorted(devices, key=lambda device: device.name)
    parts += [
        msgspec.structs.replace(empty, devices=tuple(chunk)) for chunk in _chunks(ordered, most)
    ]
    generation = first.spec.pool.generation + 1
    pool = msgspec.structs.replace(
        first.spec.pool, generation=generation, resource_slice_count=len(parts)
    )
    result: list[slices.ResourceSlice] = []
    for index, part in enumerate(parts):
        name = f"{index:05x}-{first.spec.driver}-{first.spec.node_name}-g{generation}"
        metadata = meta.ObjectMeta(name=name, uid=f"slice-{name}")
        spec = msgspec.structs.replace(part, pool=pool)
        result.append(msgspec.structs.replace(first, metadata=metadata, spec=spec))
    return result


def _amounts(profile: gpus.Profile) -> dict[str, tuple[quantity.Quantity, str]]:
    """By counter, the amount of a profile and the capacity of the same meaning."""
    assert profile.memory_bytes is not None
    amounts = {"memory": (_binary(profile.memory_bytes.value), "memory")}
    for field, (counter, capacity_name) in ENGINES.items():
        known = getattr(profile.engines, field)
        if known is not None:
            amounts[counter] = (quantity.Quantity.from_int(known.value), capacity_name)
    return amounts


def _set_name(board: Board) -> str:
    return f"{board.name}-counter-set"


def _one() -> slices.Counter:
    return slices.Counter(value=quantity.Quantity.from_int(1))


def _binary(number: int) -> quantity.Quantity:
    return quantity.parse(f"{number // MIB}Mi")


def _attribute(text: str) -> slices.DeviceAttribute:
    return slices.DeviceAttribute(string_value=text)


def _text(device: slices.Device, name: str) -> str:
    value = device.attributes.get(name)
    return "" if value is None else value.string_value or ""


def _chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]

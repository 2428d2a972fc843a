"""Reads what a GPU can be cut into, and what it is cut into now.

Given an opening and a handle, returns profiles and MIG devices. Names follow NVIDIA's rule, from memory sizes. Never
changes anything.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from dovetail.gpus import mig_names
from dovetail.node.inventory import MigDevice, MigProfile, Placement
from dovetail.node.nvml import nvml_errors
from dovetail.node.nvml.answers import existing, optional, text
from dovetail.node.nvml.session import Opened

MEBIBYTE: Final = 1 << 20


class _Shape(NamedTuple):
    """What NVML's number of a profile says about it."""

    compute_slices: int
    suffix: str = ""


# NVML_GPU_INSTANCE_PROFILE_*, the argument of nvmlDeviceGetGpuInstanceProfileInfo.
_SHAPES: Final = {
    0x0: _Shape(1),
    0x1: _Shape(2),
    0x2: _Shape(3),
    0x3: _Shape(4),
    0x4: _Shape(7),
    0x5: _Shape(8),
    0x6: _Shape(6),
    0x7: _Shape(1, "+me"),
    0x8: _Shape(2, "+me"),
    0x9: _Shape(1),  # double memory
    0xA: _Shape(1, "+gfx"),
    0xB: _Shape(2, "+gfx"),
    0xC: _Shape(4, "+gfx"),
    0xD: _Shape(1, "-me"),
    0xE: _Shape(2, "-me"),
    0xF: _Shape(1, "+me.all"),
    0x10: _Shape(2, "+me.all"),
    0x11: _Shape(3, "+gfx"),
}

# NVML_COMPUTE_INSTANCE_PROFILE_*: the compute instance that has all slices of its GPU instance.
FILLING_PROFILE: Final = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4, 8: 5, 6: 6}


def profiles(opened: Opened, handle: Any, *, memory_bytes: int) -> tuple[MigProfile, ...]:
    """All profiles of the GPU, in NVML's order; none without MIG."""
    if not memory_bytes:
        return ()
    read = [_profile(opened, handle, enum, memory_bytes=memory_bytes) for enum in _SHAPES]
    return tuple(profile for profile in read if profile is not None)


def devices(
    opened: Opened, handle: Any, minor: int, known: Sequence[MigProfile]
) -> tuple[MigDevice, ...]:
    """The GPU instances that exist, each with its compute instance, by their place in memory."""
    by_instance = _made_devices(opened, handle)
    every: list[MigDevice] = []
    for profile in known:
        for instance in instances(opened, handle, profile):
            info = existing(opened, opened.nvml.nvmlGpuInstanceGetInfo, instance)
            if info is None:
                continue
            within = by_instance.get(info.id, [])
            every += _devices_in(opened, instance, info, within, minor=minor, profile=profile)
    return tuple(sorted(every, key=lambda device: (device.placement.start, device.gi_id)))


def instances(opened: Opened, handle: Any, profile: MigProfile) -> list[Any]:
    """The GPU instances of one profile."""

    def fill(array: Any, count: Any) -> Any:
        return opened.nvml.nvmlDeviceGetGpuInstances(handle, profile.gi_profile_id, array, count)

    return _listed(opened, opened.nvml.c_nvmlGpuInstance_t, profile.max_instances, fill)


def compute_instances(opened: Opened, instance: Any) -> list[Any]:
    """All compute instances in a GPU instance, of any profile."""
    nvml = opened.nvml
    every: list[Any] = []
    for enum in range(nvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        info = compute_profile(opened, instance, enum)
        if info is not None:
            every += _of_compute_profile(opened, instance, info)
    return every


def compute_profile(opened: Opened, instance: Any, enum: int) -> Any | None:
    """NVML's facts of a compute instance profile inside this GPU instance; None if there is none."""
    nvml = opened.nvml
    call = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo
    engine = nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    return _newest(opened, call, instance, enum, engine)


def possible_placements(opened: Opened, handle: Any, gi_profile_id: int) -> tuple[Placement, ...]:
    """Where instances of a profile may sit, whether or not these places are free."""
    nvml = opened.nvml

    def fill(array: Any, count: Any) -> Any:
        return nvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, gi_profile_id, array, count)

    count = ctypes.c_uint(0)
    if optional(opened, fill, None, ctypes.byref(count)) is None or not count.value:
        return ()
    array = (nvml.c_nvmlGpuInstancePlacement_t * count.value)()
    fill(array, ctypes.byref(count))
    places = [Placement(place.start, place.size) for place in array[: count.value]]
    return tuple(sorted(places, key=lambda place: place.start))


def _profile(opened: Opened, handle: Any, enum: int, *, memory_bytes: int) -> MigProfile | None:
    call = opened.nvml.nvmlDeviceGetGpuInstanceProfileInfo
    info = _newest(opened, call, handle, enum)
    if info is None:
        return None
    places = possible_placements(opened, handle, info.id)
    if not places:
        return None
    shape = _SHAPES[enum]
    instance_bytes = info.memorySizeMB * MEBIBYTE
    return MigProfile(
        name=mig_names.profile_name(
            shape.compute_slices,
            instance_bytes,
            board_bytes=max(memory_bytes, instance_bytes),
            suffix=shape.suffix,
        ),
        enum=enum,
        gi_profile_id=info.id,
        ci_profile_id=FILLING_PROFILE[shape.compute_slices],
        compute_slices=shape.compute_slices,
        memory_bytes=instance_bytes,
        multiprocessors=info.multiprocessorCount,
        copy_engines=info.copyEngineCount,
        decoders=info.decoderCount,
        encoders=info.encoderCount,
        jpeg_engines=info.jpegCount,
        ofa_engines=info.ofaCount,
        max_instances=info.instanceCount,
        placements=places,
    )


def _newest(opened: Opened, call: Callable[..., Any], *arguments: Any) -> Any | None:
    """The second version of a struct, or the first where the driver is older than it."""
    try:
        return call(*arguments, 2)
    except opened.nvml.NVMLError as error:
        code = nvml_errors.code_of(error)
        if code != nvml_errors.FUNCTION_NOT_FOUND:
            if code in nvml_errors.ABSENT or code == nvml_errors.NOT_FOUND:
                return None
            raise
    return existing(opened, call, *arguments, 1)


def _made_devices(opened: Opened, handle: Any) -> dict[int, list[tuple[int, str]]]:
    """Compute instance ids and uuids of all MIG devices, by the id of their GPU instance."""
    nvml = opened.nvml
    by_instance: dict[int, list[tuple[int, str]]] = {}
    for index in range(optional(opened, nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        device = existing(opened, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        if device is None:
            continue
        instance_id = existing(opened, nvml.nvmlDeviceGetGpuInstanceId, device)
        compute_id = existing(opened, nvml.nvmlDeviceGetComputeInstanceId, device)
        uuid = existing(opened, nvml.nvmlDeviceGetUUID, device)
        if instance_id is not None and compute_id is not None and uuid is not None:
            by_instance.setdefault(instance_id, []).append((compute_id, text(uuid)))
    return by_instance


def _devices_in(
    opened: Opened,
    instance: Any,
    info: Any,
    within: Sequence[tuple[int, str]],
    *,
    minor: int,
    profile: MigProfile,
) -> list[MigDevice]:
    place = Placement(info.placement.start, info.placement.size)
    bare = MigDevice(
        gpu_minor=minor,
        uuid="",
        gi_id=info.id,
        ci_id=None,
        gi_profile_id=info.profileId,
        placement=place,
    )
    if not within:
        return [bare]
    return [
        MigDevice(
            gpu_minor=minor,
            uuid=uuid,
            gi_id=info.id,
            ci_id=compute_id,
            gi_profile_id=info.profileId,
            placement=place,
            is_whole=_fills(opened, instance, compute_id, profile),
        )
        for compute_id, uuid in within
    ]


def _fills(opened: Opened, instance: Any, compute_id: int, profile: MigProfile) -> bool:
    nvml = opened.nvml
    filling = compute_profile(opened, instance, profile.ci_profile_id)
    compute = existing(opened, nvml.nvmlGpuInstanceGetComputeInstanceById, instance, compute_id)
    if filling is None or compute is None:
        return False
    info = existing(opened, nvml.nvmlComputeInstanceGetInfo, compute)
    return info is not None and bool(info.profileId == filling.id)


def _of_compute_profile(opened: Opened, instance: Any, info: Any) -> list[Any]:
    nvml = opened.nvml

    def fill(array: Any, count: Any) -> Any:
        return nvml.nvmlGpuInstanceGetComputeInstances(instance, info.id, array, count)

    return _listed(opened, nvml.c_nvmlComputeInstance_t, info.instanceCount, fill)


def _listed(opened: Opened, kind: Any, size: int, fill: Callable[[Any, Any], Any]) -> list[Any]:
    """What a function of NVML writes into an array of at most this many items."""
    count = ctypes.c_uint(size)
    array = (kind * max(1, size))()
    if existing(opened, fill, array, ctypes.byref(count)) is None:
        return []
    return [array[index] for index in range(min(count.value, len(array)))]

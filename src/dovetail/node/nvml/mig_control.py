"""Makes and destroys MIG devices, and switches MIG mode.

Given an opening, a handle and exact placements. Leaves nothing half-made behind: a GPU instance whose compute instance
fails is destroyed again. Never chooses a placement.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

from dovetail.node import gpu_control
from dovetail.node.inventory import MigDevice, Placement
from dovetail.node.nvml import mig_facts, nvml_errors
from dovetail.node.nvml.answers import existing, optional, text
from dovetail.node.nvml.session import Opened

_HOPPER: Final = 9  # NVML_DEVICE_ARCH_HOPPER: from here on MIG mode changes without a reset


def set_mode(opened: Opened, handle: Any, minor: int, *, enabled: bool) -> None:
    """Switches MIG mode now, or raises and leaves it as it was."""
    nvml = opened.nvml
    mode = optional(opened, nvml.nvmlDeviceGetMigMode, handle)
    if mode is None:
        raise gpu_control.GpuUnsupported(f"GPU {minor} has no MIG")
    current, pending = mode
    if bool(current) is enabled and current == pending:
        return
    word = "on" if enabled else "off"
    architecture = optional(opened, nvml.nvmlDeviceGetArchitecture, handle)
    if architecture is None or architecture < _HOPPER:
        raise gpu_control.GpuUnsupported(
            f"GPU {minor}: MIG mode {word} needs a reset of the GPU on this architecture"
        )
    status = nvml.nvmlDeviceSetMigMode(handle, int(enabled))
    if status != 0:
        doing = f"GPU {minor}: switch MIG mode {word}"
        raise nvml_errors.failure(status, str(nvml.NVMLError(status)), doing)
    current, pending = nvml.nvmlDeviceGetMigMode(handle)
    if bool(current) is not enabled:
        raise gpu_control.GpuUnsupported(
            f"GPU {minor}: MIG mode {word} waits for a reset of the GPU"
        )


def create(opened: Opened, handle: Any, minor: int, *, gi_profile_id: int, start: int) -> MigDevice:
    """A GPU instance at exactly this place, with one compute instance that fills it."""
    place = _placement(opened, handle, minor, gi_profile_id=gi_profile_id, start=start)
    nvml = opened.nvml
    wanted = nvml.c_nvmlGpuInstancePlacement_t(start=place.start, size=place.size)
    instance = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(
        handle, gi_profile_id, nvml.byref(wanted)
    )
    try:
        info = nvml.nvmlGpuInstanceGetInfo(instance)
        compute = _fill(opened, handle, instance, minor, gi_profile_id=gi_profile_id)
        compute_info = nvml.nvmlComputeInstanceGetInfo(compute)
        uuid = text(nvml.nvmlDeviceGetUUID(compute_info.device))
    except BaseException:
        with contextlib.suppress(nvml.NVMLError):
            _destroy(opened, instance)
        raise
    return MigDevice(
        gpu_minor=minor,
        uuid=uuid,
        gi_id=info.id,
        ci_id=compute_info.id,
        gi_profile_id=info.profileId,
        placement=Placement(info.placement.start, info.placement.size),
    )


def destroy(opened: Opened, handle: Any, *, gi_id: int) -> None:
    """The GPU instance and what is in it. Nothing happens if there is none of this id."""
    # With MIG mode off there are no instances, and the driver does not support the question.
    instance = existing(opened, opened.nvml.nvmlDeviceGetGpuInstanceById, handle, gi_id)
    if instance is not None:
        _destroy(opened, instance)


def _destroy(opened: Opened, instance: Any) -> None:
    nvml = opened.nvml
    for compute in mig_facts.compute_instances(opened, instance):
        with contextlib.suppress(nvml.NVMLError_NotFound):
            nvml.nvmlComputeInstanceDestroy(compute)
    with contextlib.suppress(nvml.NVMLError_NotFound):
        nvml.nvmlGpuInstanceDestroy(instance)


def _placement(
    opened: Opened, handle: Any, minor: int, *, gi_profile_id: int, start: int
) -> Placement:
    places = mig_facts.possible_placements(opened, handle, gi_profile_id)
    for place in places:
        if place.start == start:
            return place
    starts = ", ".join(str(place.start) for place in places) or "nowhere"
    raise gpu_control.GpuUnsupported(
        f"GPU {minor}: MIG profile {gi_profile_id} cannot start at memory slice {start}; "
        f"it can at {starts}"
    )


def _fill(opened: Opened, handle: Any, instance: Any, minor: int, *, gi_profile_id: int) -> Any:
    nvml = opened.nvml
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    every = mig_facts.profiles(opened, handle, memory_bytes=memory.total)
    profile = next(each for each in every if each.gi_profile_id == gi_profile_id)
    filling = mig_facts.compute_profile(opened, instance, profile.ci_profile_id)
    if filling is None:
        raise gpu_control.GpuUnsupported(
            f"GPU {minor}: MIG profile {profile.name} has no compute instance that fills it"
        )
    return nvml.nvmlGpuInstanceCreateComputeInstance(instance, filling.id)

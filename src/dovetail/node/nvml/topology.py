"""Reads which GPUs reach each other over NVLink, and which fabric a GPU belongs to.

Given an opening and handles. A GPU in MIG mode reaches no other, but it would again as a whole GPU: for such a pair
the wiring decides, for all others the driver's own word. Never guesses: a driver that cannot say leaves a GPU without
links.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from dovetail.node.inventory import Fabric, Gpu
from dovetail.node.nvml import nvml_errors
from dovetail.node.nvml.answers import optional, text
from dovetail.node.nvml.session import Opened

_GPU, _SWITCH = 0, 2  # NVML_NVLINK_DEVICE_TYPE_*
_LONG_DOMAIN: Final = re.compile(r"^0000(?=[0-9a-f]{4}:)")
_COMPLETED: Final = 3  # NVML_GPU_FABRIC_STATE_COMPLETED
_TRUE: Final = 1  # in each two bits of the health mask: 0 unknown, 1 true, 2 false
# Shifts of what is wrong when it is true: degraded bandwidth, route unhealthy, access timeout recovery.
_FAULT_SHIFTS: Final = (0, 4, 6)
_CONFIGURATION_SHIFT: Final = 8
_CONFIGURATION_WIDTH: Final = 0xF
_SOUND_CONFIGURATIONS: Final = frozenset({0, 1})  # unknown, and nothing incorrect


class Wiring(NamedTuple):
    """The NVLinks of one GPU that are up."""

    link_count: int
    has_switch: bool
    bus_ids: frozenset[str]  # of GPUs at the other end


def peers(opened: Opened, handle: Any, others: Mapping[str, Any]) -> tuple[str, ...]:
    """Of other GPUs, by bus id, those that this one reaches over NVLink, directly or by a switch."""
    reached = [bus_id for bus_id, other in others.items() if _is_linked(opened, handle, other)]
    return tuple(sorted(reached))


def wiring(opened: Opened, handle: Any) -> Wiring:
    """How many NVLinks are up, and where they lead."""
    nvml = opened.nvml
    count = 0
    bus_ids: set[str] = set()
    has_switch = False
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        state = optional(opened, nvml.nvmlDeviceGetNvLinkState, handle, link)
        if state is None:  # a GPU has its links without gaps
            break
        if not state:
            continue
        count += 1
        kind = optional(opened, nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
        has_switch = has_switch or kind == _SWITCH
        remote = optional(opened, nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
        if kind == _GPU and remote is not None:
            bus_ids.add(bus_id_text(remote))
    return Wiring(count, has_switch, frozenset(bus_ids))


def bus_id_text(info: Any) -> str:
    """As sysfs writes it: NVML's 00000000:65:00.0 is 0000:65:00.0."""
    return _LONG_DOMAIN.sub("", text(info.busId).lower())


def with_wired_peers(gpus: Sequence[tuple[Gpu, Wiring]]) -> list[Gpu]:
    """The GPUs, each also with those peers that only MIG mode keeps away."""
    return [_with_wired_peers(gpu, own, gpus) for gpu, own in gpus]


def fabric(opened: Opened, handle: Any) -> Fabric | None:
    """The fabric, once the GPU has registered with it or tries to; None where there is none."""
    info = _fabric_info(opened, handle)
    if info is None or info.state <= 1:  # not supported, not started
        return None
    cluster = bytes(info.clusterUuid)
    if not any(cluster):
        return None
    return Fabric(
        cluster_uuid=str(uuid.UUID(bytes=cluster)),
        clique_id=info.cliqueId,
        is_completed=info.state == _COMPLETED and info.status == 0,
        is_healthy=is_healthy(getattr(info, "healthMask", 0)),
    )


def is_healthy(mask: int) -> bool:
    """Whether a health mask states no fault."""
    has_fault = any((mask >> shift) & 0x3 == _TRUE for shift in _FAULT_SHIFTS)
    configuration = (mask >> _CONFIGURATION_SHIFT) & _CONFIGURATION_WIDTH
    return not has_fault and configuration in _SOUND_CONFIGURATIONS


def fabric_state(opened: Opened, handle: Any) -> tuple[int, int] | None:
    """State and health mask as the driver has them."""
    info = _fabric_info(opened, handle)
    return None if info is None else (int(info.state), int(getattr(info, "healthMask", 0)))


def _fabric_info(opened: Opened, handle: Any) -> Any | None:
    """The second version has the health mask; older drivers know the first only."""
    nvml = opened.nvml
    newer = nvml.c_nvmlGpuFabricInfo_v2_t()
    if optional(opened, nvml.nvmlDeviceGetGpuFabricInfoV, handle, nvml.byref(newer)) is not None:
        return newer
    older = nvml.c_nvmlGpuFabricInfo_t()
    if optional(opened, nvml.nvmlDeviceGetGpuFabricInfo, handle, nvml.byref(older)) is not None:
        return older
    return None


def _is_linked(opened: Opened, handle: Any, other: Any) -> bool:
    nvml = opened.nvml
    try:
        status = nvml.nvmlDeviceGetP2PStatus(handle, other, nvml.NVML_P2P_CAPS_INDEX_NVLINK)
    except nvml.NVMLError as error:
        # If it is the other GPU that is lost, this one is still there. If it is this one, the next call says so.
        if nvml_errors.code_of(error) in (*nvml_errors.ABSENT, nvml_errors.GPU_IS_LOST):
            return False
        raise
    return bool(status == nvml.NVML_P2P_STATUS_OK)


def _with_wired_peers(gpu: Gpu, own: Wiring, gpus: Sequence[tuple[Gpu, Wiring]]) -> Gpu:
    reached = set(gpu.nvlink_peers)
    for other, wires in gpus:
        is_wired = (own.has_switch and wires.has_switch) or other.pci_bus_id in own.bus_ids
        has_mig = gpu.is_mig_enabled or other.is_mig_enabled
        if other is not gpu and has_mig and is_wired:
            reached.add(other.pci_bus_id)
    return msgspec.structs.replace(gpu, nvlink_peers=tuple(sorted(reached)))

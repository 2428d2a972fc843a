"""The series of a node's devices, under DCGM's names: every figure once, so that sums over series are right.

Given GPUs, readings, holders and the pods of processes. A GPU with one holder carries the holder's labels on all of its
figures. A GPU with several has what can be told apart, time and memory of processes, per holder and for the remainder;
all else once, without a holder. Never reads the hardware, never guesses a holder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from dovetail.model.dcgm_fields import Field
from dovetail.model.exposition import Series
from dovetail.node.claims import configs
from dovetail.node.device_use import Activity, GpuUse, MemoryUse, ProcessUse
from dovetail.node.inventory import Gpu, Inventory, MigDevice
from dovetail.node.metering.device_holders import Holder

MIB: Final = 1 << 20
_MOST_PERCENT: Final = 100
Figures = dict[Field, float | None]


class Share(NamedTuple):
    """What a holder of a shared GPU uses."""

    busy_percent: int
    memory_bytes: int


def series(
    inventory: Inventory,
    uses: Sequence[GpuUse],
    *,
    holders: Mapping[str, Sequence[Holder]],
    pods_of_processes: Mapping[int, str],
    xids: Mapping[str, int],
    node_name: str,
) -> list[Series]:
    """All series of the GPUs that were read."""
    result: list[Series] = []
    for use in uses:
        gpu = inventory.gpu(use.minor)
        if gpu is None or gpu.uuid != use.uuid:
            continue  # replaced since the inventory was read
        base = _gpu_labels(gpu, node_name=node_name, driver_version=inventory.driver_version)
        figures = _device_figures(use) | {Field.XID_ERRORS: xids.get(gpu.uuid, 0)}
        if gpu.is_mig_enabled:
            result.extend(_emitted(base, figures))
            result.extend(_of_slices(gpu, use, base, holders))
            continue

        figures |= _memory_figures(use.memory) | _activity_figures(use.activity)
        figures[Field.GPU_UTIL] = use.busy_percent
        held_by = holders.get(gpu.uuid, ())
        if len(held_by) < 2:
            labels = base | (_holder_labels(held_by[0]) if held_by else {})
            result.extend(_emitted(labels, figures))
        else:
            result.extend(_of_shared(use, base, figures, held_by, pods_of_processes))
    return result


def shares(
    processes: Sequence[ProcessUse],
    held_by: Sequence[Holder],
    pods_of_processes: Mapping[int, str],
) -> dict[Holder, Share]:
    """What each holder's processes use. A process counts for one holder only, the first of its pod."""
    by_pod: dict[str, Holder] = {}
    for holder in held_by:
        if holder.pod is not None:
            by_pod.setdefault(holder.pod.uid, holder)
    result = dict.fromkeys(held_by, Share(0, 0))
    for process in processes:
        owner = by_pod.get(pods_of_processes.get(process.pid, ""))
        if owner is not None:
            before = result[owner]
            result[owner] = Share(
                min(before.busy_percent + process.busy_percent, _MOST_PERCENT),
                before.memory_bytes + (process.memory_bytes or 0),
            )
    return result


def _of_shared(
    use: GpuUse,
    base: dict[str, str],
    figures: Figures,
    held_by: Sequence[Holder],
    pods_of_processes: Mapping[int, str],
) -> Iterator[Series]:
    by_holder = shares(use.processes, held_by, pods_of_processes)
    for number, (holder, share) in enumerate(by_holder.items()):
        labels = base | {"vgpu": str(number)} | _holder_labels(holder)
        own: Figures = {
            Field.GPU_UTIL: share.busy_percent,
            Field.FB_USED: share.memory_bytes // MIB,
        }
        yield from _emitted(labels, own)

    # The remainder makes sums over series right: processes of no holder, memory of the driver.
    busy = sum(share.busy_percent for share in by_holder.values())
    used = sum(share.memory_bytes // MIB for share in by_holder.values())
    remainder = dict(figures)
    for field, accounted in ((Field.GPU_UTIL, busy), (Field.FB_USED, used)):
        whole = figures.get(field)
        remainder[field] = None if whole is None else max(0, whole - accounted)
    yield from _emitted(base, remainder)


def _of_slices(
    gpu: Gpu, use: GpuUse, base: dict[str, str], holders: Mapping[str, Sequence[Holder]]
) -> Iterator[Series]:
    devices = {device.uuid: device for device in gpu.mig_devices}
    for slice_use in use.slices:
        device = devices.get(slice_use.uuid)
        if device is None:
            continue
        labels = base | _slice_labels(gpu, device)
        held_by = holders.get(slice_use.uuid, ())
        # Processes in a MIG device are not told apart by NVML: pods that share a claim have one series.
        if held_by:
            shared = held_by[0] if len(held_by) == 1 else held_by[0]._replace(pod=None)
            labels |= _holder_labels(shared)
        yield from _emitted(
            labels, _memory_figures(slice_use.memory) | _activity_figures(slice_use.activity)
        )


def _emitted(labels: dict[str, str], figures: Figures) -> Iterator[Series]:
    for field, value in figures.items():
        if value is not None:
            yield Series(field.value, labels, value)


def _gpu_labels(gpu: Gpu, *, node_name: str, driver_version: str) -> dict[str, str]:
    return {
        "gpu": str(gpu.minor),
        "UUID": gpu.uuid,
        "pci_bus_id": gpu.pci_bus_id,
        "device": f"nvidia{gpu.minor}",
        "modelName": gpu.product_name,
        "Hostname": node_name,
        "DCGM_FI_DRIVER_VERSION": driver_version,
    }


def _slice_labels(gpu: Gpu, device: MigDevice) -> dict[str, str]:
    names = {profile.gi_profile_id: profile.name for profile in gpu.mig_profiles}
    return {
        "GPU_I_PROFILE": names.get(device.gi_profile_id, ""),
        "GPU_I_ID": str(device.gi_id),
    }


def _holder_labels(holder: Holder) -> dict[str, str]:
    labels = {
        "dra_claim_name": holder.claim,
        "dra_claim_namespace": holder.namespace,
        "dra_driver_name": configs.DRIVER,
        "dra_pool_name": holder.pool,
        "dra_device_name": holder.device,
        "dra_mig_profile": holder.profile,
        "dra_mig_device_uuid": holder.mig_uuid,
    }
    if holder.pod is not None:
        labels |= {
            "namespace": holder.namespace,
            "pod": holder.pod.name,
            "pod_uid": holder.pod.uid,
        }
    return labels


def _device_figures(use: GpuUse) -> Figures:
    return {
        Field.MEM_COPY_UTIL: use.memory_busy_percent,
        Field.POWER_USAGE: None if use.power_milliwatts is None else use.power_milliwatts / 1000,
        Field.ENERGY: use.energy_millijoules,
        Field.GPU_TEMP: use.temperature_celsius,
        Field.SM_CLOCK: use.sm_clock_mhz,
    }


def _memory_figures(memory: MemoryUse | None) -> Figures:
    if memory is None:
        return {}
    reserved = memory.reserved_bytes
    return {
        Field.FB_USED: memory.used_bytes // MIB,
        Field.FB_FREE: memory.free_bytes // MIB,
        Field.FB_RESERVED: None if reserved is None else reserved // MIB,
        Field.FB_TOTAL: memory.total_bytes // MIB,
    }


def _activity_figures(activity: Activity) -> Figures:
    return {
        Field.GR_ENGINE_ACTIVE: activity.engine,
        Field.SM_ACTIVE: activity.multiprocessors,
    }

"""Finds all GPUs of a node, and says of each that cannot be read why not.

Given a session. All at once, each in its own lane: one that is lost or does not answer costs its own facts only. Raises
DriverUnavailable if there is no driver at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dovetail.node import gpu_control
from dovetail.node.inventory import Gpu, Inventory, UnreadGpu
from dovetail.node.nvml import gpu_facts, topology
from dovetail.node.nvml.answers import text
from dovetail.node.nvml.session import Opened, Session, side_by_side


class Versions(NamedTuple):
    """What a driver says about itself, and how many GPUs it has."""

    driver: str
    cuda: str
    gpu_count: int


class Identity(msgspec.Struct, frozen=True):
    """What tells one GPU from the others."""

    index: int
    minor: int
    uuid: str
    bus_id: str
    handle: Any


def inventory(session: Session, *, sysfs_root: Path) -> Inventory:
    """Everything, read again."""
    versions = session.read("driver", read_versions, doing="read the driver's version")
    named = side_by_side(lambda index: identity(session, index), range(versions.gpu_count))
    known = [each for each in named if isinstance(each, Identity)]
    unread = [each for each in named if isinstance(each, UnreadGpu)]
    facts = side_by_side(lambda gpu: _facts(session, gpu, known, sysfs_root=sysfs_root), known)
    unread += [each for each in facts if isinstance(each, UnreadGpu)]
    read = [each for each in facts if not isinstance(each, UnreadGpu)]
    gpus = topology.with_wired_peers(read)
    return Inventory(
        driver_version=versions.driver,
        cuda_driver_version=versions.cuda,
        gpus=tuple(sorted(gpus, key=lambda gpu: gpu.minor)),
        unread=tuple(sorted(unread, key=lambda gpu: gpu.index)),
    )


def read_versions(opened: Opened) -> Versions:
    """Versions as people write them: 580.126.20, 13.0."""
    nvml = opened.nvml
    number = nvml.nvmlSystemGetCudaDriverVersion()
    cuda = f"{number // 1000}.{number % 1000 // 10}"
    return Versions(text(nvml.nvmlSystemGetDriverVersion()), cuda, nvml.nvmlDeviceGetCount())


def identity(session: Session, index: int) -> Identity | UnreadGpu:
    """Which GPU stands at an index of NVML."""

    def job(opened: Opened) -> Identity:
        nvml = opened.nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        minor = nvml.nvmlDeviceGetMinorNumber(handle)
        uuid = text(nvml.nvmlDeviceGetUUID(handle))
        bus_id = gpu_facts.bus_id_of(opened, handle)
        opened.keep(minor, handle)
        return Identity(index, minor, uuid, bus_id, handle)

    try:
        return session.read(lane_of_index(index), job, doing=f"find GPU at index {index}")
    except (gpu_control.DriverUnavailable, gpu_control.DriverPaused):
        raise
    except gpu_control.GpuFailure as failure:
        is_lost = isinstance(failure, gpu_control.GpuGone)
        return UnreadGpu(index=index, reason=str(failure), is_lost=is_lost)


def lane_of_index(index: int) -> str:
    """The lane for scans of one GPU, whose minor number is not known yet."""
    return f"GPU at index {index}"


def _facts(
    session: Session, gpu: Identity, known: Sequence[Identity], *, sysfs_root: Path
) -> tuple[Gpu, topology.Wiring] | UnreadGpu:
    others = {other.bus_id: other.handle for other in known if other is not gpu}

    def job(opened: Opened) -> tuple[Gpu, topology.Wiring]:
        # After a driver reload in between, these handles are of the past: the GPU is found again.
        handle = opened.handle(gpu.minor)
        is_same = handle is gpu.handle
        links = others if is_same else {}
        return gpu_facts.read(opened, handle, sysfs_root=sysfs_root, others=links)

    try:
        return session.read(lane_of_index(gpu.index), job, doing=f"read GPU {gpu.minor}")
    except (gpu_control.DriverUnavailable, gpu_control.DriverPaused):
        raise
    except gpu_control.GpuFailure as failure:
        return UnreadGpu(
            index=gpu.index,
            reason=str(failure),
            minor=gpu.minor,
            uuid=gpu.uuid,
            is_lost=isinstance(failure, gpu_control.GpuGone),
        )

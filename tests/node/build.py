"""Inventories of well-known machines, from the board catalogue: what a driver would report of them."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail import gpus as catalogue
from dovetail.node import inventory

ENUM_BY_NAME = {"1g": 0, "2g": 1, "3g": 2, "4g": 3, "7g": 4, "1g+me": 7, "2g+me": 8}
CI_ENUM_BY_SLICES = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}


def machine(
    board: str = "H100-SXM5-80GB", gpus: int = 1, *, driver: str = "580.95.05", **facts: Any
) -> inventory.Inventory:
    """A node with so many GPUs of a board; further facts hold for each of them."""
    every = tuple(gpu(board, minor, **facts) for minor in range(gpus))
    return inventory.Inventory(driver_version=driver, cuda_driver_version="13.0", gpus=every)


def gpu(board: str = "H100-SXM5-80GB", minor: int = 0, **facts: Any) -> inventory.Gpu:
    """One GPU as the driver reports it."""
    known = catalogue.by_name(board)
    assert known is not None
    assert known.memory_bytes is not None
    reported = inventory.Gpu(
        minor=minor,
        uuid=f"GPU-{minor:08x}-0000-4000-8000-000000000000",
        product_name=known.product.value,
        brand="Nvidia",
        architecture=known.architecture.value,
        cuda_compute_capability=known.compute_capability.value,
        memory_bytes=known.memory_bytes.value,
        pci_bus_id=f"0000:{0x10 + minor:02x}:00.0",
        pcie_root=f"pci0000:{0x0F + minor:02x}",
        numa_node=minor // 4,
        addressing_mode="HMM",
        is_mig_capable=known.mig is not None,
        mig_profiles=_profiles(known) if known.mig is not None else (),
        power_limit_milliwatts=known.tdp_watts.value * 1000 if known.tdp_watts else None,
    )
    return msgspec.structs.replace(reported, **facts)


def linked(node: inventory.Inventory, *, links: int = 18) -> inventory.Inventory:
    """The same node with NVLink between all its GPUs."""
    bus_ids = [each.pci_bus_id for each in node.gpus]
    return msgspec.structs.replace(
        node,
        gpus=tuple(
            msgspec.structs.replace(
                each,
                nvlink_peers=tuple(bus_id for bus_id in bus_ids if bus_id != each.pci_bus_id),
                nvlink_count=links,
            )
            for each in node.gpus
        ),
    )


def with_mig_device(gpu: inventory.Gpu, name: str, start: int, *, gi_id: int = 1) -> inventory.Gpu:
    """The GPU in MIG mode with one more MIG device on it."""
    profile = next(each for each in gpu.mig_profiles if each.name == name)
    placement = next(each for each in profile.placements if each.start == start)
    device = inventory.MigDevice(
        gpu_minor=gpu.minor,
        uuid=f"MIG-{gpu.minor:08x}-0000-4000-8000-{gi_id:012x}",
        gi_id=gi_id,
        ci_id=0,
        gi_profile_id=profile.gi_profile_id,
        placement=placement,
    )
    devices = (*gpu.mig_devices, device)
    return msgspec.structs.replace(gpu, is_mig_enabled=True, mig_devices=devices)


def _profiles(known: catalogue.Gpu) -> tuple[inventory.MigProfile, ...]:
    return tuple(_profile(known, profile) for profile in catalogue.profiles(known))


def _profile(known: catalogue.Gpu, profile: catalogue.Profile) -> inventory.MigProfile:
    assert profile.gi_profile_id is not None
    assert profile.memory_bytes is not None
    slices, _, suffix = profile.name.value.partition(".")
    plus = "+me" if suffix.endswith("+me") else ""
    engines = profile.engines
    places = [place for each, place in catalogue.placements(known) if each == profile]
    compute_slices = int(slices.removesuffix("g"))
    return inventory.MigProfile(
        name=profile.name.value,
        enum=ENUM_BY_NAME[slices + plus],
        gi_profile_id=profile.gi_profile_id.value,
        ci_profile_id=CI_ENUM_BY_SLICES[compute_slices],
        compute_slices=compute_slices,
        memory_bytes=profile.memory_bytes.value,
        multiprocessors=_value(engines.multiprocessors),
        copy_engines=_value(engines.copy_engines),
        decoders=_value(engines.decoders),
        encoders=_value(engines.encoders),
        jpeg_engines=_value(engines.jpeg_engines),
        ofa_engines=_value(engines.ofa_engines),
        max_instances=len(places),
        placements=tuple(inventory.Placement(place.start, place.size) for place in places),
    )


def _value(known: catalogue.Known[int] | None) -> int:
    assert known is not None
    return known.value

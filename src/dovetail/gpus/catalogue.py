"""Finds a board by the names and numbers people and drivers use, and lists how it can be partitioned.

Built on the first question (some hundred small structs, a few milliseconds) and kept. Answers None for a
board it does not hold; never picks a similar one.
"""

import re
from collections.abc import Iterator

from dovetail import cache
from dovetail.gpus import board_facts

NVIDIA_VENDOR_ID = "10DE"

_PCI_ID = re.compile(  # 2330, 0x2330, 10de:2330, or NVML's device and vendor in one word: 0x233010DE
    r"(?:0X)?(?P<device>[0-9A-F]{4})(?P<vendor>[0-9A-F]{4})?|(?P<vendor_first>[0-9A-F]{4}):(?P<device_last>[0-9A-F]{4})"
)


@cache.remembered()
def all_gpus() -> tuple[board_facts.Gpu, ...]:
    """Every board, oldest architecture first."""
    from dovetail.gpus import boards

    return boards.all_boards()


def by_name(name: str) -> board_facts.Gpu | None:
    """The board with our short name, in any case: "h100-sxm5-80gb"."""
    return _by_name().get(name.upper())


def by_product(product: str) -> board_facts.Gpu | None:
    """The board a driver reports under this product name."""
    return _by_product().get(product)


def by_pci_id(pci_id: str) -> board_facts.Gpu | None:
    """The board with this PCI device id, with or without NVIDIA's vendor id. Other vendors have none here."""
    parts = _PCI_ID.fullmatch(pci_id.strip().upper())
    if parts is None:
        return None
    vendor = parts["vendor"] or parts["vendor_first"] or NVIDIA_VENDOR_ID
    if vendor != NVIDIA_VENDOR_ID:
        return None
    return _by_pci_id().get(parts["device"] or parts["device_last"])


def profiles(gpu: board_facts.Gpu) -> tuple[board_facts.Profile, ...]:
    """How the board can be cut; empty where MIG is not offered."""
    return gpu.mig.profiles if gpu.mig else ()


def placements(gpu: board_facts.Gpu) -> Iterator[tuple[board_facts.Profile, board_facts.Placement]]:
    """Every profile at every place it may start. Profiles whose places are unknown are left out."""
    for profile in profiles(gpu):
        if profile.starts is None or profile.memory_slices is None:
            continue
        for start in profile.starts.value:
            yield profile, board_facts.Placement(start, profile.memory_slices.value)


def is_fully_known(gpu: board_facts.Gpu) -> bool:
    """Whether all of the board's MIG figures are known, so that it can be simulated partitioned."""
    return bool(profiles(gpu)) and all(_is_complete(profile) for profile in profiles(gpu))


def _is_complete(profile: board_facts.Profile) -> bool:
    values = (profile.gi_profile_id, profile.memory_slices, profile.starts, profile.memory_bytes)
    engines = (getattr(profile.engines, name) for name in profile.engines.__struct_fields__)
    return all(value is not None for value in (*values, *engines))


@cache.remembered()
def _by_name() -> dict[str, board_facts.Gpu]:
    return {gpu.name.upper(): gpu for gpu in all_gpus()}


@cache.remembered()
def _by_product() -> dict[str, board_facts.Gpu]:
    products = {gpu.product.value: gpu for gpu in all_gpus()}
    for gpu in all_gpus():
        for product in gpu.other_products.value if gpu.other_products else ():
            products.setdefault(product, gpu)
    return products


@cache.remembered()
def _by_pci_id() -> dict[str, board_facts.Gpu]:
    return {
        device_id: gpu
        for gpu in all_gpus()
        for device_id in (gpu.pci_device_ids.value if gpu.pci_device_ids else ())
    }

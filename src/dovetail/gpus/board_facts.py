"""What is known about a GPU board: every value with the source it was taken from.

Structs only. A value without a source is None, never an estimate. Memory is in bytes, bandwidth in bytes per second,
power in watts. Never describes what a simulated or a live GPU does: its readers decide that.
"""

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")

NO_NVLINK = 0  # nvlink_generation of a board whose source says it has none


class Known(msgspec.Struct, Generic[T], frozen=True):
    """A value and where it was read."""

    value: T
    source: str


class Placement(msgspec.Struct, frozen=True, gc=False):
    """Where an instance may sit: memory slices [start, start + size)."""

    start: int
    size: int


class Engines(msgspec.Struct, frozen=True, kw_only=True):
    """What an instance of a profile computes, copies and decodes with; None where no source was found."""

    multiprocessors: Known[int] | None = None
    copy_engines: Known[int] | None = None
    decoders: Known[int] | None = None
    encoders: Known[int] | None = None
    jpeg_engines: Known[int] | None = None
    ofa_engines: Known[int] | None = None


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """One way to cut a GPU instance out of a board. The GI id, not the name, identifies it on a board."""

    name: Known[str]
    gi_profile_id: Known[int] | None
    compute_slices: Known[int]
    memory_slices: Known[int] | None
    starts: Known[tuple[int, ...]] | None
    max_instances: Known[int]
    memory_bytes: Known[int] | None
    engines: Engines


class Mig(msgspec.Struct, frozen=True, kw_only=True):
    """How a board can be partitioned. `compute_slices` is the number of slices, `memory_slices` the width."""

    compute_slices: int
    memory_slices: int
    minimum_driver: Known[str] | None
    profiles: tuple[Profile, ...]


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One board. `name` is ours and short; `product` is what the driver reports."""

    name: str
    product: Known[str]
    other_products: Known[tuple[str, ...]] | None = None
    architecture: Known[str]
    compute_capability: Known[str]
    form_factor: Known[str]
    tdp_watts: Known[int] | None = None
    memory_bytes: Known[int] | None = None
    memory_bytes_per_second: Known[int] | None = None
    nvlink_generation: Known[int] | None = None
    nvlink_bytes_per_second: Known[int] | None = None
    number_formats: Known[tuple[str, ...]] | None = None
    minimum_driver: Known[str] | None = None
    pci_device_ids: Known[tuple[str, ...]] | None = None
    mig: Mig | None = None

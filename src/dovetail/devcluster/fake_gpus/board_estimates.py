"""Figures a fake board must have although the catalogue has none: estimates, and details only NVML reports.

A simulated GPU has to answer every question of NVML. Given a board and a profile, returns the catalogue's figures with
the holes filled by proportion. These estimates stay in this folder: planning never sees them.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dovetail import gpus
from dovetail.gpus import board_facts

MIB: Final = 1024**2
MEMORY_STEP_MIB: Final = 128
EIGHTHS: Final = 8
# Shares of the whole board for (compute slices): as captured on H100, the last board known in full.
SHARES: Final = {1: 16 / 132, 2: 32 / 132, 3: 60 / 132, 4: 64 / 132, 7: 1.0}
ENGINES_BY_SLICES: Final = {1: 1, 2: 2, 3: 3, 4: 4, 7: 7}


class Build(msgspec.Struct, frozen=True):
    """Details of a board that NVML reports and scheduling never uses."""

    cores: int
    multiprocessors: int
    memory_bus_width: int
    sm_clock_mhz: int
    memory_clock_mhz: int
    pcie_generation: int
    vbios: str
    copy_engines: int = 8


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU instance profile without holes."""

    gi_profile_id: int
    memory_slices: int
    starts: tuple[int, ...]
    memory_mib: int
    multiprocessors: int
    copy_engines: int
    decoders: int
    encoders: int
    jpeg_engines: int
    ofa_engines: int


_BUILDS: Final = {
    "T4": Build(2560, 40, 256, 1590, 5001, 3, "90.04.38.00.03"),
    "A30": Build(3584, 56, 3072, 1440, 1215, 4, "92.00.66.00.08"),
    "A100-SXM4-40GB": Build(6912, 108, 5120, 1410, 1215, 4, "92.00.45.00.03"),
    "A100-SXM4-80GB": Build(6912, 108, 5120, 1410, 1593, 4, "92.00.45.00.05"),
    "L4": Build(7424, 58, 192, 2040, 6251, 4, "95.04.29.00.06"),
    "H100-SXM5-80GB": Build(16896, 132, 5120, 1980, 2619, 5, "96.00.89.00.01"),
    "H200-SXM-141GB": Build(16896, 132, 6144, 1980, 3201, 5, "96.00.BC.00.01"),
    "B200": Build(18944, 148, 8192, 1965, 3996, 5, "97.00.88.00.0F", copy_engines=16),
    "GB200": Build(19456, 152, 8192, 2062, 3996, 5, "97.00.88.00.1A", copy_engines=16),
}
_ANY: Final = Build(16384, 128, 4096, 1980, 2619, 5, "96.00.00.00.01")


def build_of(board: str) -> Build:
    """The details of a board by the catalogue's name."""
    return _BUILDS.get(board, _ANY)


def complete(board: gpus.Gpu, profile: gpus.Profile) -> Figures:
    """The profile's figures, estimated where the catalogue has none."""
    slices = profile.compute_slices.value
    build = build_of(board.name)
    engines = profile.engines
    memory_slices = _or(profile.memory_slices, slices)
    copy_engines = {1: 1, 2: 2, 3: 3, 4: 4, 7: 8}[slices] * build.copy_engines // 8
    return Figures(
        gi_profile_id=_or(profile.gi_profile_id, 0),
        memory_slices=memory_slices,
        starts=profile.starts.value if profile.starts else (),
        memory_mib=_or(profile.memory_bytes, _memory_bytes(board, memory_slices)) // MIB,
        multiprocessors=_or(engines.multiprocessors, round(build.multiprocessors * SHARES[slices])),
        copy_engines=_or(engines.copy_engines, copy_engines),
        decoders=_or(engines.decoders, ENGINES_BY_SLICES[slices]),
        encoders=_or(engines.encoders, 0),
        jpeg_engines=_or(engines.jpeg_engines, ENGINES_BY_SLICES[slices]),
        ofa_engines=_or(engines.ofa_engines, int(slices == 7)),
    )


def _or(fact: board_facts.Known[int] | None, estimate: int) -> int:
    return estimate if fact is None else fact.value


def _memory_bytes(board: gpus.Gpu, memory_slices: int) -> int:
    """Eighths of the board, a little less than their share, as real profiles are."""
    board_bytes = board.memory_bytes.value if board.memory_bytes else 0
    step = MEMORY_STEP_MIB * MIB
    return (board_bytes * memory_slices // EIGHTHS - 1) // step * step

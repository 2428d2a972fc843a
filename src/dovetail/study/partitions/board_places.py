"""The places of a board for MIG slices, as masks of memory slices, and which of them a placement takes away.

Built from the catalogue's geometry. Profiles with extras (`+me`) are left out: they differ in engines, not in extent.
Never chooses a place.
"""

from __future__ import annotations

from typing import NamedTuple

from dovetail import errors
from dovetail.gpus import board_facts, catalogue
from dovetail.model import policy


class SliceProfile(NamedTuple):
    """One size of slice and where it may start."""

    name: str
    compute_slices: int
    memory_slices: int
    starts: tuple[int, ...]

    def mask(self, start: int) -> int:
        """The memory slices it takes, a bit each."""
        return ((1 << self.memory_slices) - 1) << start

    def free_starts(self, used: int) -> list[int]:
        """Where it fits on a board whose used memory slices are these."""
        return [start for start in self.starts if not used & self.mask(start)]


class Board(NamedTuple):
    """The profiles of one board model, smallest first."""

    name: str
    compute_slices: int
    profiles: tuple[SliceProfile, ...]

    def guarded(self) -> tuple[SliceProfile, ...]:
        """Profiles whose places count as lost, largest first.

        As in the engine, a profile is left out if another of its extent has twice its places.
        """
        counted = [profile for profile in self.profiles if not self._has_sibling(profile)]
        return tuple(sorted(counted, key=_size, reverse=True))

    def _has_sibling(self, profile: SliceProfile) -> bool:
        enough = policy.DEFAULT_ALLOCATION.sibling_ratio * len(profile.starts)
        return any(
            sibling.memory_slices == profile.memory_slices and len(sibling.starts) >= enough
            for sibling in self.profiles
            if sibling is not profile
        )

    def lost(self, used: int, taken: int) -> tuple[int, ...]:
        """How many places of each guarded profile are free before the slices are taken and not afterwards."""
        return tuple(
            len(profile.free_starts(used)) - len(profile.free_starts(used | taken))
            for profile in self.guarded()
        )


def named(name: str) -> Board:
    """The board of this name in the catalogue."""
    gpu = catalogue.by_name(name)
    if gpu is None or gpu.mig is None:
        known = ", ".join(board.name for board in catalogue.all_gpus() if _profiles(board))
        raise errors.NotFound(f'no board "{name}" with MIG; there are: {known}')
    profiles = _profiles(gpu)
    if not profiles:
        raise errors.InputError(f"board {gpu.name}: where its MIG slices may start is not known")
    return Board(gpu.name, gpu.mig.compute_slices, profiles)


def _profiles(gpu: board_facts.Gpu) -> tuple[SliceProfile, ...]:
    starts_by_name: dict[str, list[int]] = {}
    sizes: dict[str, tuple[int, int]] = {}
    for profile, placement in catalogue.placements(gpu):
        name = profile.name.value
        if "+" in name or "-" in name:
            continue
        starts_by_name.setdefault(name, []).append(placement.start)
        sizes[name] = (profile.compute_slices.value, placement.size)
    profiles = [
        SliceProfile(name, *sizes[name], tuple(starts)) for name, starts in starts_by_name.items()
    ]
    return tuple(sorted(profiles, key=_order))


def _size(profile: SliceProfile) -> tuple[int, int]:
    return profile.memory_slices, profile.compute_slices


def _order(profile: SliceProfile) -> tuple[int, int]:
    return profile.compute_slices, profile.memory_slices

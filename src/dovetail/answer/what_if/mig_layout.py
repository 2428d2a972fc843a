"""Places MIG profiles on one board: which profile starts at which memory slice, or why they do not fit together.

Given a board of the catalogue and the names of profiles. Tries larger profiles first, and of the starts the driver
allows the lowest. Never reads a cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from dovetail import errors, gpus
from dovetail.answer.what_if import near_names


class Placed(NamedTuple):
    """A profile, and the first of its memory slices."""

    profile: gpus.Profile
    start: int
    size: int


def layout(board: gpus.Gpu, names: Sequence[str]) -> tuple[Placed, ...]:
    """Where the partitions sit, by their start. Raises InputError where the board does not allow them together."""
    if board.mig is None:
        raise errors.InputError(f"{board.name} has no MIG")
    known = {profile.name.value: profile for profile in gpus.profiles(board)}
    wanted: list[gpus.Profile] = []
    for name in names:
        if name not in known:
            raise near_names.unknown(f"MIG profile of {board.name}", name, known)
        profile = known[name]
        if profile.starts is None or profile.memory_slices is None:
            raise errors.InputError(f"where {name} may sit on {board.name} is not known")
        wanted.append(profile)
    _check_counts(board, wanted)
    wanted.sort(key=lambda profile: (-_size(profile), -profile.compute_slices.value))
    placed = _search(wanted, 0)
    if placed is None:
        raise errors.InputError(
            f"{board.name} cannot hold {', '.join(names)} at once: no placement of its "
            f"{board.mig.memory_slices} memory slices allows it"
        )
    return tuple(sorted(placed, key=lambda each: each.start))


def _check_counts(board: gpus.Gpu, wanted: Sequence[gpus.Profile]) -> None:
    assert board.mig is not None
    compute = sum(profile.compute_slices.value for profile in wanted)
    if compute > board.mig.compute_slices:
        raise errors.InputError(
            f"{compute} compute slices are asked for, {board.name} has {board.mig.compute_slices}"
        )
    for name, count in Counter(profile.name.value for profile in wanted).items():
        most = next(p.max_instances.value for p in wanted if p.name.value == name)
        if count > most:
            raise errors.InputError(f"{board.name} holds {name} at most {most} times, not {count}")


def _search(wanted: Sequence[gpus.Profile], taken: int) -> list[Placed] | None:
    """Backtracking over starts; `taken` has a bit for every memory slice in use."""
    if not wanted:
        return []
    profile = wanted[0]
    size = _size(profile)
    assert profile.starts is not None
    for start in profile.starts.value:
        mask = (1 << size) - 1 << start
        if taken & mask:
            continue
        rest = _search(wanted[1:], taken | mask)
        if rest is not None:
            return [Placed(profile, start, size), *rest]
    return None


def _size(profile: gpus.Profile) -> int:
    assert profile.memory_slices is not None
    return profile.memory_slices.value

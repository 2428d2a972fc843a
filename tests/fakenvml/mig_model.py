"""An independent model of MIG: which instances may stand side by side on a board with seven compute slices.

Written from the MIG user guide, not from the catalogue nor from the C code: it decides by trying, on a row of eight
memory slices, and by the limits the guide gives for each profile.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

SLICES = 8


class Kind(NamedTuple):
    """A profile: its width in memory slices, where it may start, and how many there may be."""

    starts: tuple[int, ...]
    width: int
    limit: int
    has_media: bool = False


KINDS = {
    19: Kind((0, 1, 2, 3, 4, 5, 6), 1, 7),
    20: Kind((0, 1, 2, 3, 4, 5, 6), 1, 1, has_media=True),
    15: Kind((0, 2, 4, 6), 2, 4),
    14: Kind((0, 2, 4), 2, 3),
    9: Kind((0, 4), 4, 2),
    5: Kind((0,), 4, 1),
    0: Kind((0,), 8, 1, has_media=True),
}
PLACES = [(profile, start) for profile, kind in KINDS.items() for start in kind.starts]

Layout = frozenset[tuple[int, int]]


def is_listed(profile: int, start: int) -> bool:
    """Whether the guide shows the profile at this place."""
    return profile in KINDS and start in KINDS[profile].starts


def row(layout: Layout) -> list[int]:
    """How many instances claim each memory slice."""
    claims = [0] * SLICES
    for profile, start in layout:
        for slice_index in range(start, start + KINDS[profile].width):
            claims[slice_index] += 1
    return claims


def fits(layout: Layout, profile: int, start: int) -> bool:
    """Whether one more instance may join."""
    if (profile, start) in layout:
        return False
    joined = layout | {(profile, start)}
    is_disjoint = max(row(joined)) <= 1
    count = sum(1 for other, _ in joined if other == profile)
    media = sum(1 for other, _ in joined if KINDS[other].has_media)
    return is_disjoint and count <= KINDS[profile].limit and media <= 1


def all_layouts() -> Iterator[Layout]:
    """Every layout that can be reached from the empty board."""
    waiting: list[Layout] = [frozenset()]
    reached = {frozenset[tuple[int, int]]()}
    while waiting:
        layout = waiting.pop()
        yield layout
        for profile, start in PLACES:
            joined = layout | {(profile, start)}
            if joined not in reached and fits(layout, profile, start):
                reached.add(joined)
                waiting.append(joined)

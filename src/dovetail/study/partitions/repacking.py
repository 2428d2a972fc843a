"""Accepts a MIG slice whenever all slices in use fit after some rearrangement: unlimited moves, at no cost.

A reference for rules that move little or nothing, not a proven bound: it never refuses what fits, and refusing a large
request can be better. Exact for boards of seven compute slices; other boards are refused.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from dovetail import errors
from dovetail.study.partitions.board_places import Board, SliceProfile

_SEVEN_SLICES: Final = ((1, 1), (1, 2), (2, 2), (3, 4), (4, 4), (7, 8))  # compute, memory


class RepackedFleet:
    """How many slices of each profile are in use on equal GPUs."""

    def __init__(self, board: Board, gpu_count: int) -> None:
        sizes = tuple((profile.compute_slices, profile.memory_slices) for profile in board.profiles)
        if sizes != _SEVEN_SLICES:
            raise errors.InputError(
                f"repack knows boards with seven compute slices only, not {board.name}"
            )
        self._profiles = board.profiles
        self._gpu_count = gpu_count
        self._counts: Counter[SliceProfile] = Counter()
        self._profile_of: dict[int, SliceProfile] = {}
        self.moves = self.without_room = 0  # not counted

    def take(self, number: int, profile: SliceProfile) -> bool:
        """Whether the request fits beside all others."""
        self._counts[profile] += 1
        counts = [self._counts[known] for known in self._profiles]
        if not is_packable(self._gpu_count, counts):
            self._counts[profile] -= 1
            return False
        self._profile_of[number] = profile
        return True

    def give(self, number: int) -> None:
        """The work of this request ended."""
        self._counts[self._profile_of.pop(number)] -= 1


def is_packable(gpu_count: int, counts: list[int]) -> bool:
    """Whether so many 1g, 1g with double memory, 2g, 3g, 4g and 7g fit on seven-slice GPUs.

    A GPU is two halves. The left one holds a 4g, a 3g, or two pairs; the right one a 3g, or a pair, a place for a 1g
    and, instead of that place, one for a 1g with double memory. A pair holds a 2g, a double 1g, or two 1g.
    """
    single, double, two, three, four, seven = counts
    shared_gpus = gpu_count - seven
    left_halves = shared_gpus - four
    three_right = min(three, shared_gpus)
    right_halves = shared_gpus - three_right
    left_halves -= three - three_right
    if min(shared_gpus, left_halves) < 0:
        return False

    pairs = 2 * left_halves + right_halves - two
    double_at_end = min(double, right_halves)
    pairs -= double - double_at_end
    return pairs >= 0 and single <= 2 * pairs + right_halves - double_at_end

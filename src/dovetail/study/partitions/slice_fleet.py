"""GPUs with their MIG slices, under one rule: takes requests in, moves slices where that is allowed, gives them back.

GPUs of one mask are kept together, so a request costs a look at each mask in use. A request that finds no room may
have at most so many slices moved for it: places with the fewest compute slices in the way are tried first. A move that
leaves a slice without a place is undone. Never draws at random.
"""

from __future__ import annotations

import bisect
from typing import Final, NamedTuple

from dovetail.study.partitions.board_places import Board, SliceProfile
from dovetail.study.partitions.slice_policies import RankTable, Rule

MOST_PLACES_TRIED: Final = 60  # per refused request, as in the engine's repair


class Slice(NamedTuple):
    """A slice in use."""

    number: int
    profile: SliceProfile
    gpu: int
    start: int

    @property
    def mask(self) -> int:
        """Its memory slices."""
        return self.profile.mask(self.start)


class _BlockedPlace(NamedTuple):
    """A place that a request would fit into once the slices there are gone. Compared in this order."""

    compute_slices: int  # of what would move
    gpu: int
    start: int
    in_the_way: tuple[Slice, ...]


class SliceFleet:
    """Equal GPUs, empty at first."""

    def __init__(self, board: Board, gpu_count: int, *, rule: Rule, most_moves: int = 0) -> None:
        self._table = RankTable(board, rule)
        self._most_moves = most_moves
        self.used = [0] * gpu_count  # by GPU, the mask of memory slices in use
        self._gpus_by_mask: dict[int, list[int]] = {0: list(range(gpu_count))}
        self._slices: dict[int, Slice] = {}
        self._on_gpu: list[dict[int, Slice]] = [{} for _ in range(gpu_count)]
        self.moves = 0
        self.without_room = 0  # requests that found no free place, served after moves or not

    def take(self, number: int, profile: SliceProfile) -> bool:
        """Whether the request is served, if need be after moves."""
        if self._place(number, profile):
            return True
        self.without_room += 1
        return self._repair(number, profile)

    def give(self, number: int) -> None:
        """The work of this request ended."""
        ended = self._slices.pop(number)
        del self._on_gpu[ended.gpu][number]
        self._set(ended.gpu, self.used[ended.gpu] & ~ended.mask)

    def choice(self, profile: SliceProfile) -> tuple[int, int] | None:
        """GPU and start for a request, by the rule; None without room."""
        choices = []
        for mask, gpus in self._gpus_by_mask.items():
            best = self._table.best(profile, mask)
            if best is not None:
                choices.append((best.rank, gpus[0], best.start))
        return min(choices)[1:] if choices else None

    def slices(self) -> list[Slice]:
        """All slices in use."""
        return list(self._slices.values())

    def _place(self, number: int, profile: SliceProfile) -> bool:
        choice = self.choice(profile)
        if choice is None:
            return False
        self.put(Slice(number, profile, *choice))
        return True

    def put(self, placed: Slice) -> None:
        """Puts a slice where it fits."""
        self._slices[placed.number] = placed
        self._on_gpu[placed.gpu][placed.number] = placed
        self._set(placed.gpu, self.used[placed.gpu] | placed.mask)

    def _set(self, gpu: int, mask: int) -> None:
        before = self.used[gpu]
        of_mask = self._gpus_by_mask[before]
        of_mask.remove(gpu)
        if not of_mask:
            del self._gpus_by_mask[before]
        bisect.insort(self._gpus_by_mask.setdefault(mask, []), gpu)
        self.used[gpu] = mask

    # Repair

    def _repair(self, number: int, profile: SliceProfile) -> bool:
        if not self._most_moves:
            return False
        places = sorted(self._blocked_places(profile), key=lambda place: place[:3])
        return any(self._clear(place, number, profile) for place in places[:MOST_PLACES_TRIED])

    def _blocked_places(self, profile: SliceProfile) -> list[_BlockedPlace]:
        places = []
        for gpu, on_gpu in enumerate(self._on_gpu):
            for start in profile.starts:
                wanted = profile.mask(start)
                in_the_way = tuple(held for held in on_gpu.values() if held.mask & wanted)
                if len(in_the_way) <= self._most_moves:
                    slices = sum(held.profile.compute_slices for held in in_the_way)
                    places.append(_BlockedPlace(slices, gpu, start, in_the_way))
        return places

    def _clear(self, place: _BlockedPlace, number: int, profile: SliceProfile) -> bool:
        """Places the request there and what was in the way elsewhere, largest first; undone if one finds no place."""
        for held in place.in_the_way:
            self.give(held.number)
        self.put(Slice(number, profile, place.gpu, place.start))

        largest_first = sorted(place.in_the_way, key=lambda held: -held.profile.compute_slices)
        moved: list[int] = []
        for held in largest_first:
            if not self._place(held.number, held.profile):
                self._undo(place, number, moved)
                return False
            moved.append(held.number)
        self.moves += len(moved)
        return True

    def _undo(self, place: _BlockedPlace, number: int, moved: list[int]) -> None:
        for placed in (*moved, number):
            self.give(placed)
        for held in place.in_the_way:
            self.put(held)

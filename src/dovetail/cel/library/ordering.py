"""The order a list of keys sorts into, ties included.

Given keys of one type; returns their positions from least to greatest. Upstream's sort is not stable, and expressions
can observe it: where keys tie, or are NaN, the order is the one pattern-defeating quicksort produces. So this is that
algorithm, with upstream's thresholds and choice of pivots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

_SHORT: Final = 12  # up to here, insertion
_NINTHER: Final = (
    50  # from here on, the pivot is a median of medians, and nearly sorted runs are repaired
)
_REPAIRS: Final = 5
_DECREASING_SWAPS: Final = 12  # every comparison of a ninther found a pair in the wrong order
_UINT64: Final = 2**64 - 1
_EXACT: Final = (
    2048  # longer lists cost more than a selector may spend, so no selector sees their order
)


def order(keys: Sequence[Any]) -> list[int]:
    """Positions of the keys from least to greatest. Keys need `<`; where it never holds, they tie."""
    if len(keys) > _EXACT:
        return sorted(range(len(keys)), key=keys.__getitem__)
    sorting = _Sorting(keys)
    sorting.quicksort(0, len(keys), len(keys).bit_length())
    return sorting.positions


class _Sorting:
    """One sort at work: `positions` is permuted, the keys stay."""

    def __init__(self, keys: Sequence[Any]) -> None:
        self.keys = keys
        self.positions = list(range(len(keys)))

    def is_less(self, left: int, right: int) -> bool:
        return bool(self.keys[self.positions[left]] < self.keys[self.positions[right]])

    def swap(self, left: int, right: int) -> None:
        at = self.positions
        at[left], at[right] = at[right], at[left]

    def quicksort(self, start: int, end: int, patience: int) -> None:
        """Sorts positions start to end. Patience counts the unbalanced cuts left before heapsort takes over."""
        was_balanced = was_parted = True
        while end - start > _SHORT:
            if patience == 0:
                self.heapsort(start, end)
                return
            if not was_balanced:
                self.shuffle(start, end)
                patience -= 1
            pivot, swaps = self.pivot(start, end)
            if swaps == _DECREASING_SWAPS:
                self.positions[start:end] = self.positions[start:end][::-1]
                pivot, swaps = end - 1 - (pivot - start), 0
            if was_balanced and was_parted and swaps == 0 and self.repair(start, end):
                return
            if start > 0 and not self.is_less(start - 1, pivot):
                start = self.part_equal(start, end, pivot)
                continue
            length = end - start
            middle, was_parted = self.part(start, end, pivot)
            was_balanced = min(middle - start, end - middle) >= length // 8
            if middle - start < end - middle:
                self.quicksort(start, middle, patience)
                start = middle + 1
            else:
                self.quicksort(middle + 1, end, patience)
                end = middle
        self.insertion(start, end)

    def insertion(self, start: int, end: int) -> None:
        for at in range(start + 1, end):
            self.sink(at, start)

    def sink(self, at: int, floor: int) -> None:
        """Sifts one element down past all greater ones, not below the floor."""
        while at > floor and self.is_less(at, at - 1):
            self.swap(at, at - 1)
            at -= 1

    def heapsort(self, start: int, end: int) -> None:
        size = end - start
        for root in range((size - 1) // 2, -1, -1):
            self.sift(root, size, start)
        for last in range(size - 1, -1, -1):
            self.swap(start, start + last)
            self.sift(0, last, start)

    def sift(self, root: int, size: int, start: int) -> None:
        while (child := 2 * root + 1) < size:
            if child + 1 < size and self.is_less(start + child, start + child + 1):
                child += 1
            if not self.is_less(start + root, start + child):
                return
            self.swap(start + root, start + child)
            root = child

    def shuffle(self, start: int, end: int) -> None:
        """Scatters three elements around the middle, by a generator seeded with the length."""
        length = state = end - start
        middle = start + length // 4 * 2
        for at in (middle - 1, middle, middle + 1):
            state ^= state << 13 & _UINT64
            state ^= state >> 7
            state ^= state << 17 & _UINT64
            partner = state & ((1 << length.bit_length()) - 1)
            self.swap(at, start + (partner - length if partner >= length else partner))

    def pivot(self, start: int, end: int) -> tuple[int, int]:
        """The position of the pivot, and how many of the compared pairs were in the wrong order."""
        quarter = (end - start) // 4
        candidates = [start + quarter, start + 2 * quarter, start + 3 * quarter]
        swaps = 0
        if end - start >= _NINTHER:
            for at, candidate in enumerate(candidates):
                candidates[at], further_swaps = self.median(candidate - 1, candidate, candidate + 1)
                swaps += further_swaps
        middle, further_swaps = self.median(*candidates)
        return middle, swaps + further_swaps

    def median(self, low: int, middle: int, high: int) -> tuple[int, int]:
        swaps = 0
        if self.is_less(middle, low):
            low, middle, swaps = middle, low, swaps + 1
        if self.is_less(high, middle):
            middle, swaps = high, swaps + 1
        if self.is_less(middle, low):
            middle, swaps = low, swaps + 1
        return middle, swaps

    def repair(self, start: int, end: int) -> bool:
        """Moves a few misplaced elements of a nearly sorted run; returns whether the run is sorted now."""
        at = start + 1
        for _ in range(_REPAIRS):
            while at < end and not self.is_less(at, at - 1):
                at += 1
            if at == end:
                return True
            if end - start < _NINTHER:
                return False
            self.swap(at, at - 1)
            if at - start >= 2:
                self.sink(at - 1, 0)
            if end - at >= 2:
                self.rise(at + 1, end)
        return False

    def rise(self, at: int, end: int) -> None:
        while at < end and self.is_less(at, at - 1):
            self.swap(at, at - 1)
            at += 1

    def part(self, start: int, end: int, pivot: int) -> tuple[int, bool]:
        """Moves lesser elements before the pivot, the others after it; returns whether they were so already."""
        self.swap(start, pivot)
        low, high = start + 1, end - 1
        exchanges = 0
        while True:
            while low <= high and self.is_less(low, start):
                low += 1
            while low <= high and not self.is_less(high, start):
                high -= 1
            if low > high:
                self.swap(high, start)
                return high, exchanges == 0
            self.swap(low, high)
            low, high, exchanges = low + 1, high - 1, exchanges + 1

    def part_equal(self, start: int, end: int, pivot: int) -> int:
        """Elements equal to the pivot first, greater ones after; returns where those begin."""
        self.swap(start, pivot)
        low, high = start + 1, end - 1
        while True:
            while low <= high and not self.is_less(start, low):
                low += 1
            while low <= high and self.is_less(start, high):
                high -= 1
            if low > high:
                return low
            self.swap(low, high)
            low, high = low + 1, high - 1

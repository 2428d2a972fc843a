"""Cuts the life of every GPU into segments within which nothing changes: who holds how much, how busy, what is known.

Given the records of a window and times at which to cut as well (steps, changes of prices). Shares are integers in
trillionths of a GPU (pico-GPU): where holders have more than there is, their shares are scaled so that they sum to
exactly what is there. Of records that say the same thing twice, the one that began later counts. A record that is still
open lasts to the end of the window. Never knows prices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from dovetail.answer.cost.cost_window import Window
from dovetail.model.accounting import records

PICO_PER_MICRO: Final = 1_000_000
PICO_GPU: Final = records.MICRO_GPU * PICO_PER_MICRO  # one whole GPU
BUSY: Final = 1_000_000  # all of what is allocated, in millionths
NANOJOULES: Final = 1_000_000  # in one millijoule

R = TypeVar("R")
A = TypeVar("A", records.Asset, records.Allocation, records.Usage, records.Unusable)


class Share(NamedTuple):
    """What one allocation has of the GPU."""

    allocation: records.Allocation
    pico_gpu: int
    busy_micro: int | None  # None: not measured
    nanojoules: int | None


class Segment(NamedTuple):
    """One GPU, or the counted GPUs of a node, while nothing changes."""

    asset: records.Asset
    start: records.Millis
    end: records.Millis
    shares: tuple[Share, ...]
    unusable_pico: int  # of what is free
    free_pico: int  # what is left: free, and work could use it
    free_nanojoules: int | None
    gaps: tuple[records.Gap, ...]

    @property
    def millis(self) -> int:
        """How long it lasts."""
        return self.end - self.start


def segments(
    recorded: records.Records, window: Window, cuts: Iterable[records.Millis] = ()
) -> Iterator[Segment]:
    """All segments of all GPUs in the window, each GPU's in order of time."""
    assets = _by_asset(recorded.assets)
    allocations = _by_asset(recorded.allocations)
    usage = _by_asset(recorded.usage)
    unusable = _by_asset(recorded.unusable)
    inner_cuts = sorted({cut for cut in cuts if window.start < cut < window.end})
    gaps_by_subject: dict[str, list[records.Gap]] = {}
    for gap in recorded.gaps:
        gaps_by_subject.setdefault(gap.subject, []).append(gap)
    for name in sorted(assets):
        subjects = dict.fromkeys(("", name, *(asset.node for asset in assets[name])))
        gaps = [gap for subject in subjects for gap in gaps_by_subject.get(subject, ())]
        life = _Life(window, inner_cuts)
        for asset in assets[name]:
            life.assets.take(asset, "", asset.start, asset.end)
        for allocation in allocations.get(name, ()):
            life.allocations.take(
                allocation, allocation.allocation, allocation.start, allocation.end
            )
        for sample in usage.get(name, ()):
            life.usage.take(sample, sample.allocation, sample.start, sample.end)
        for number, part in enumerate(unusable.get(name, ())):
            life.unusable.take(part, str(number), part.start, part.end)
        for number, gap in enumerate(gaps):
            life.gaps.take(gap, str(number), gap.start, gap.end)
        yield from life.segments()


def unknown_assets(recorded: records.Records, window: Window) -> list[records.Allocation]:
    """Allocations of the window whose GPU no record describes: they cannot be priced."""
    known = {asset.asset for asset in recorded.assets}
    return [
        allocation
        for allocation in recorded.allocations
        if allocation.asset not in known
        and allocation.start < window.end
        and (allocation.end is None or allocation.end > window.start)
    ]


class _Active(Generic[R]):
    """Records of one kind: when each begins and ends, and which are active now, by what they are about."""

    def __init__(self, window: Window) -> None:
        self.now: dict[str, R] = {}  # by identity: the one that counts
        self.edges: list[tuple[records.Millis, bool, str, int]] = []
        self._window = window
        self._records: list[tuple[records.Millis, R]] = []
        self._active: dict[str, list[int]] = {}

    def take(self, record: R, key: str, start: records.Millis, end: records.Millis | None) -> None:
        """Adds a record, cut to the window."""
        begins = max(start, self._window.start)
        ends = self._window.end if end is None else min(end, self._window.end)
        if begins >= ends:
            return
        number = len(self._records)
        self._records.append((start, record))
        self.edges.append((begins, True, key, number))
        self.edges.append((ends, False, key, number))

    def change(self, *, is_start: bool, key: str, number: int) -> None:
        """One record begins or ends."""
        active = self._active.setdefault(key, [])
        if is_start:
            active.append(number)
        else:
            active.remove(number)
        if active:
            latest = max(active, key=lambda each: (self._records[each][0], each))
            self.now[key] = self._records[latest][1]
        else:
            del self._active[key]
            self.now.pop(key, None)


class _Life:
    """All records about one asset, swept in order of time."""

    def __init__(self, window: Window, cuts: Sequence[records.Millis]) -> None:
        self.assets: _Active[records.Asset] = _Active(window)
        self.allocations: _Active[records.Allocation] = _Active(window)
        self.usage: _Active[records.Usage] = _Active(window)
        self.unusable: _Active[records.Unusable] = _Active(window)
        self.gaps: _Active[records.Gap] = _Active(window)
        self._cuts = cuts

    def segments(self) -> Iterator[Segment]:
        kinds = (self.assets, self.allocations, self.usage, self.unusable, self.gaps)
        edges = [
            (time, is_start, kind, key, number)
            for kind in kinds
            for time, is_start, key, number in kind.edges
        ]
        edges.sort(key=lambda edge: edge[0])
        times = sorted({edge[0] for edge in edges} | set(self._cuts))
        position = 0
        for index, time in enumerate(times):
            while position < len(edges) and edges[position][0] == time:
                _, is_start, kind, key, number = edges[position]
                kind.change(is_start=is_start, key=key, number=number)
                position += 1
            asset = self.assets.now.get("")
            if asset is not None and index + 1 < len(times):
                yield self._segment(asset, time, times[index + 1])

    def _segment(self, asset: records.Asset, start: records.Millis, end: records.Millis) -> Segment:
        capacity = asset.count * PICO_GPU
        held = sorted(self.allocations.now.values(), key=lambda each: each.allocation)
        sizes = _fitting([each.micro_gpu * PICO_PER_MICRO for each in held], capacity)
        free = capacity - sum(sizes)
        wasted = sum(each.micro_gpu for each in self.unusable.now.values()) * PICO_PER_MICRO
        unusable = min(free, wasted)
        energies, free_energy = self._energies(held, sizes, free, end - start)
        shares = [
            Share(allocation, size, self._busy(allocation, len(held)), energy)
            for allocation, size, energy in zip(held, sizes, energies, strict=True)
        ]
        return Segment(
            asset=asset,
            start=start,
            end=end,
            shares=tuple(shares),
            unusable_pico=unusable,
            free_pico=free - unusable,
            free_nanojoules=free_energy,
            gaps=tuple(self.gaps.now.values()),
        )

    def _busy(self, allocation: records.Allocation, holders: int) -> int | None:
        sample = self.usage.now.get(allocation.allocation)
        if (sample is None or sample.busy_micro is None) and holders == 1:
            sample = self.usage.now.get("")  # what the GPU did, its only holder did
        if sample is None or sample.busy_micro is None:
            return None
        return min(max(sample.busy_micro, 0), BUSY)

    def _energies(
        self,
        held: Sequence[records.Allocation],
        sizes: Sequence[int],
        free: int,
        millis: int,
    ) -> tuple[list[int | None], int | None]:
        """The energy of every holder and of what is free.

        What was measured of the GPU, less what was measured of single holders, is divided by shares among the other
        holders and what is free.
        """
        own = [_energy(self.usage.now.get(each.allocation), millis) for each in held]
        whole = _energy(self.usage.now.get(""), millis)
        if whole is None:
            return own, None
        rest = max(0, whole - sum(energy or 0 for energy in own))
        unmeasured = sum(size for size, energy in zip(sizes, own, strict=True) if energy is None)
        divisor = unmeasured + free
        if not divisor:
            return own, rest
        divided = [
            rest * size // divisor if energy is None else energy
            for size, energy in zip(sizes, own, strict=True)
        ]
        given = sum(part for part, energy in zip(divided, own, strict=True) if energy is None)
        return list(divided), rest - given


def _by_asset(recorded: Iterable[A]) -> dict[str, list[A]]:
    grouped: dict[str, list[A]] = {}
    for record in recorded:
        grouped.setdefault(record.asset, []).append(record)
    return grouped


def _fitting(sizes: list[int], capacity: int) -> list[int]:
    """The sizes; scaled where they are more than the capacity together, so that they sum to exactly that."""
    total = sum(sizes)
    if total <= capacity:
        return sizes
    scaled = [divmod(size * capacity, total) for size in sizes]
    fitting = [whole for whole, _ in scaled]
    left = capacity - sum(fitting)
    for index in sorted(range(len(sizes)), key=lambda each: (-scaled[each][1], each))[:left]:
        fitting[index] += 1
    return fitting


def _energy(sample: records.Usage | None, millis: int) -> int | None:
    """The part of a sample's energy that falls into so many of its milliseconds."""
    if sample is None or sample.energy_millijoules is None:
        return None
    length = max(1, sample.end - sample.start)
    return sample.energy_millijoules * NANOJOULES * millis // length

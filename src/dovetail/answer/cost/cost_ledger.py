"""The exact account of a window: for every step and row, GPU time and money by line, energy, carbon, waiting.

Given records, prices, steps and keys. Amounts are integers, so that for every GPU and any time the lines sum to exactly
what the GPU cost. What a reader left out (a filter, work that a user may not see) counts nowhere, but it still held
its share of GPUs. Figures that are not complete carry the reasons. Never rounds.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec

from dovetail import timestamps
from dovetail.answer.cost import cost_keys, gpu_segments
from dovetail.answer.cost.cost_window import Window, moment_of
from dovetail.answer.cost.price_list import NANO, PriceList
from dovetail.model.accounting import records

GPU_HOUR: Final = gpu_segments.PICO_GPU * gpu_segments.BUSY * records.MILLISECONDS_PER_HOUR
CURRENCY: Final = GPU_HOUR * NANO  # units of money in one of the currency
CENT: Final = CURRENCY // 100
WAITING_GPU_HOUR: Final = records.MICRO_GPU * records.MILLISECONDS_PER_HOUR
KWH: Final = 3_600_000 * 10**9  # nanojoules
CO2E_KG: Final = KWH * 10**6  # nanojoules times milligrams


class Line(IntEnum):
    """What GPU time was spent on."""

    USED = 0
    IDLE = 1  # allocated, and its holder did not use it
    UNMEASURED = 2  # allocated; whether it was used is not known
    UNALLOCATED = 3  # free, and work could have used it
    UNUSABLE = 4  # free, and no work could have used it


LINES: Final = len(Line)
Key = tuple[str, ...]


class Row:
    """The sums of one row in one step."""

    __slots__ = ("carbon", "energy", "gpu_time", "money", "reasons", "unpriced", "waiting")

    def __init__(self) -> None:
        self.gpu_time = [0] * LINES
        self.money = [0] * LINES
        self.unpriced = 0  # GPU time without a price
        self.waiting = 0
        self.energy: int | None = None  # None: nothing was measured
        self.carbon: int | None = None
        self.reasons: dict[str, None] = {}

    def add(self, line: Line, gpu_time: int, nano_per_hour: int | None) -> None:
        """GPU time, with its price where there is one."""
        self.gpu_time[line] += gpu_time
        if nano_per_hour is None:
            self.unpriced += gpu_time
        else:
            self.money[line] += gpu_time * nano_per_hour

    def add_energy(self, nanojoules: int | None, milligrams_per_kwh: int | None) -> None:
        """Energy, with its carbon where there is a factor."""
        if nanojoules is None:
            return
        self.energy = (self.energy or 0) + nanojoules
        if milligrams_per_kwh is not None:
            self.carbon = (self.carbon or 0) + nanojoules * milligrams_per_kwh

    def merge(self, other: Row) -> None:
        """Adds the sums of another row."""
        for line in Line:
            self.gpu_time[line] += other.gpu_time[line]
            self.money[line] += other.money[line]
        self.unpriced += other.unpriced
        self.waiting += other.waiting
        if other.energy is not None:
            self.energy = (self.energy or 0) + other.energy
        if other.carbon is not None:
            self.carbon = (self.carbon or 0) + other.carbon
        self.reasons |= other.reasons


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Why figures are not complete, and what to do about it."""

    code: str  # no-price, api-gap, metrics-gap, unknown-gpu, left-out, example-prices
    message: str


class Step(NamedTuple):
    """One step of the window."""

    window: Window
    rows: dict[Key, Row]
    assets: int  # what all GPUs cost, in units of money; summed apart from the rows


class Ledger(NamedTuple):
    """The account of a window."""

    window: Window
    steps: tuple[Step, ...]
    subjects: dict[Key, list[cost_keys.Subject]]  # of each row in any step
    notes: tuple[Note, ...]


class Question(NamedTuple):
    """What is asked of the records."""

    prices: PriceList
    steps: tuple[Window, ...]  # of the window, in order, without holes
    keys: cost_keys.Keys
    cluster: str = ""
    keep: Callable[[cost_keys.Subject], bool] | None = None  # None: everything
    kept_by: frozenset[str] = frozenset()  # the keys of a subject that `keep` looks at
    gap_text: Callable[[records.Gap, Window], str] | None = None  # None: as people read it

    @property
    def window(self) -> Window:
        """The whole of it."""
        return Window(self.steps[0].start, self.steps[-1].end)


def ledger(recorded: records.Records, question: Question, now: records.Millis) -> Ledger:
    """The account. Records that are still open last until now. Linear in changes of the records and steps."""
    accounting = _Accounting(recorded, question, now)
    return accounting.ledger()


class _Accounting:
    def __init__(self, recorded: records.Records, question: Question, now: records.Millis) -> None:
        self._recorded = recorded
        self._question = question
        self._known = question.window.until(now)
        self._rows: list[dict[Key, Row]] = [{} for _ in question.steps]
        self._subjects: dict[Key, list[cost_keys.Subject]] = {}
        self._assets = [0] * len(question.steps)
        self._ends = [step.end for step in question.steps]
        self._keys_of: dict[tuple[int, int], Key | None] = {}
        self._rates: dict[tuple[int, int], tuple[int | None, int | None]] = {}
        self._changes = question.prices.changes()
        self._unpriced: dict[str, _Unpriced] = {}

    def ledger(self) -> Ledger:
        cuts = [*(step.start for step in self._question.steps), *self._changes]
        if self._known.start < self._known.end:
            index, epoch, last_start = 0, 0, None
            for segment in gpu_segments.segments(self._recorded, self._known, cuts):
                if last_start is None or segment.start < last_start:  # the next GPU
                    index, epoch = 0, 0
                last_start = segment.start
                while self._question.steps[index].end <= segment.start:
                    index += 1
                while epoch < len(self._changes) and self._changes[epoch] <= segment.start:
                    epoch += 1
                self._add(segment, index, epoch)
            self._add_waiting()
        notes = tuple(self._notes())
        steps = tuple(map(Step, self._question.steps, self._rows, self._assets))
        return Ledger(self._question.window, steps, self._subjects, notes)

    def _add(self, segment: gpu_segments.Segment, index: int, epoch: int) -> None:
        rate, carbon = self._rate(segment, epoch)
        reasons = list(self._reasons(segment, rate))
        whole = segment.asset.count * gpu_segments.PICO_GPU * gpu_segments.BUSY * segment.millis
        self._assets[index] += whole * (rate or 0)
        for share in segment.shares:
            row = self._row(index, segment.asset, share.allocation)
            gpu_time = share.pico_gpu * segment.millis
            if share.busy_micro is None:
                row.add(Line.UNMEASURED, gpu_time * gpu_segments.BUSY, rate)
            else:
                row.add(Line.USED, gpu_time * share.busy_micro, rate)
                row.add(Line.IDLE, gpu_time * (gpu_segments.BUSY - share.busy_micro), rate)
            row.add_energy(share.nanojoules, carbon)
            for reason, is_of_usage in reasons:
                if not is_of_usage or share.busy_micro is None:
                    row.reasons[reason] = None
        if not segment.free_pico and not segment.unusable_pico and not segment.free_nanojoules:
            return
        row = self._row(index, segment.asset, None)
        gpu_time = gpu_segments.BUSY * segment.millis
        row.add(Line.UNALLOCATED, segment.free_pico * gpu_time, rate)
        row.add(Line.UNUSABLE, segment.unusable_pico * gpu_time, rate)
        row.add_energy(segment.free_nanojoules, carbon)
        for reason, is_of_usage in reasons:
            if not is_of_usage:
                row.reasons[reason] = None

    def _rate(self, segment: gpu_segments.Segment, epoch: int) -> tuple[int | None, int | None]:
        """Price and carbon factor: they change only where an entry begins or ends."""
        key = (id(segment.asset), epoch)
        if key not in self._rates:
            prices = self._question.prices
            self._rates[key] = (
                prices.nano_per_hour(segment.asset, segment.start),
                prices.milligrams_per_kwh(segment.asset, segment.start),
            )
        return self._rates[key]

    def _reasons(
        self, segment: gpu_segments.Segment, rate: int | None
    ) -> Iterator[tuple[str, bool]]:
        """Why figures of the segment are not complete, and whether only how busy holders were is unknown."""
        if rate is None:
            self._note_unpriced(segment)
            yield no_price_text(segment.asset), False
        for gap in segment.gaps:
            describe = self._question.gap_text or gap_text
            yield describe(gap, self._known), gap.source is records.GapSource.METRICS

    def _note_unpriced(self, segment: gpu_segments.Segment) -> None:
        unpriced = self._unpriced.setdefault(_described(segment.asset), _Unpriced(set(), []))
        unpriced.assets.add((segment.asset.asset, segment.asset.count))
        unpriced.gpu_millis.append(segment.asset.count * segment.millis)

    def _row(self, index: int, asset: records.Asset, allocation: records.Allocation | None) -> Row:
        identity = (id(asset), id(allocation))
        if identity not in self._keys_of:
            owner = None if allocation is None else allocation.owner
            subject = cost_keys.Subject(self._question.cluster, asset, owner, allocation)
            self._keys_of[identity] = self._key(subject)
        return self._row_of(index, self._keys_of[identity])

    def _key(self, subject: cost_keys.Subject) -> Key | None:
        """The key of a row; None where the subject is left out."""
        keep = self._question.keep
        if keep is not None and not keep(subject):
            return None
        key = self._question.keys.of(subject)
        self._subjects.setdefault(key, []).append(subject)
        return key

    def _row_of(self, index: int, key: Key | None) -> Row:
        if key is None:
            return Row()  # added up nowhere
        return self._rows[index].setdefault(key, Row())

    def _add_waiting(self) -> None:
        for waiting, start, end in _waiting(self._recorded.waiting, self._known):
            subject = cost_keys.Subject(self._question.cluster, None, waiting.owner)
            key = self._key(subject)
            index = bisect.bisect_right(self._ends, start)
            while index < len(self._ends) and self._question.steps[index].start < end:
                step = self._question.steps[index]
                overlap = min(end, step.end) - max(start, step.start)
                self._row_of(index, key).waiting += waiting.micro_gpu * overlap
                index += 1

    def _notes(self) -> Iterator[Note]:
        prices = self._question.prices
        if prices.is_example:
            yield Note(
                code="example-prices",
                message="prices are placeholders of no provider; give your own with --prices FILE",
            )
        for product, unpriced in sorted(self._unpriced.items()):
            gpus = sum(count for _, count in unpriced.assets)
            hours = sum(unpriced.gpu_millis) / records.MILLISECONDS_PER_HOUR
            where = f" in {prices.source}" if prices.source else ""
            yield Note(
                code="no-price",
                message=f"no price for {product}{where}: {hours:.2f} GPU-hours of {_gpus(gpus)} "
                "count no money",
            )
        for gap in self._recorded.gaps:
            end = self._known.end if gap.end is None else gap.end
            if gap.start < self._known.end and end > self._known.start:
                code = f"{gap.source.value}-gap"
                yield Note(code=code, message=gap_text(gap, self._known))
        strays = gpu_segments.unknown_assets(self._recorded, self._known)
        yield from unknown_notes(unknown_times(strays, self._known))


class _Unpriced(NamedTuple):
    assets: set[tuple[str, int]]
    gpu_millis: list[int]


def _waiting(
    waiting: tuple[records.Waiting, ...], window: Window
) -> Iterator[tuple[records.Waiting, records.Millis, records.Millis]]:
    """Each wait of the window. Of two of the same pod at the same time the later counts."""
    by_pod: dict[str, list[records.Waiting]] = {}
    for record in waiting:
        owner = record.owner
        by_pod.setdefault(owner.pod_uid or f"{owner.namespace}/{owner.pod}", []).append(record)
    for waits in by_pod.values():
        yield from _latest_of_each_time(waits, window)


def _latest_of_each_time(
    waits: list[records.Waiting], window: Window
) -> Iterator[tuple[records.Waiting, records.Millis, records.Millis]]:
    """When each of one pod's waits is the one that began last. Each is put on a stack, and taken off, once."""
    waits.sort(key=lambda record: record.start)
    begun: list[records.Waiting] = []  # the last on top
    time = window.start
    for following in (*waits, None):
        until = window.end
        if following is not None:
            until = min(max(following.start, window.start), window.end)
        while begun and time < until:
            record = begun[-1]
            end = window.end if record.end is None else record.end
            if end <= time:
                begun.pop()
                continue
            yield record, time, min(end, until)
            time = min(end, until)
        time = max(time, until)
        if following is not None:
            begun.append(following)


def unknown_times(strays: Iterable[records.Allocation], window: Window) -> dict[str, int]:
    """Micro-GPU times milliseconds by GPUs that no record describes."""
    times: dict[str, int] = {}
    for allocation in strays:
        end = window.end if allocation.end is None else min(allocation.end, window.end)
        time = (end - max(allocation.start, window.start)) * allocation.micro_gpu
        if time > 0:
            times[allocation.asset] = times.get(allocation.asset, 0) + time
    return dict(sorted(times.items()))


def unknown_notes(times: Mapping[str, int]) -> Iterator[Note]:
    """That allocated GPUs count nowhere."""
    for asset, time in sorted(times.items()):
        yield Note(
            code="unknown-gpu",
            message=f"no record describes GPU {asset}: {time / WAITING_GPU_HOUR:.2f} allocated GPU-hours "
            "count nowhere",
        )


def no_price_text(asset: records.Asset) -> str:
    """Why a figure is not complete."""
    return f"no price for {_described(asset)}"


def _described(asset: records.Asset) -> str:
    """What prices are looked up by."""
    words = [asset.product or "a GPU without a product name"]
    if asset.pool:
        words.append(f"in pool {asset.pool}")
    if asset.is_spot:
        words.append("(spot)")
    return " ".join(words)


def gap_text(gap: records.Gap, window: Window) -> str:
    """Why figures that touch a gap are not complete."""
    end = window.end if gap.end is None else min(gap.end, window.end)
    start = timestamps.to_text(moment_of(max(gap.start, window.start)))
    what = f"{gap.subject or 'the cluster'} was not watched"
    if gap.source is records.GapSource.METRICS:
        what = f"no samples of {gap.subject or 'any GPU'}"
    why = f": {gap.why}" if gap.why else ""
    return f"{what} from {start} to {timestamps.to_text(moment_of(end))}{why}"


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"

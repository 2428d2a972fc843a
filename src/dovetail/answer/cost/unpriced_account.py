"""The account of a time before prices: exact GPU time by kind of GPU, namespace and queue; and the ledger made of such.

Given records and steps, or accounts that were made and stored earlier, and a question whose keys they know. Prices are
those of kinds of GPUs, so a price list may change without any account being made again. The ledger of accounts is that
of the records; only energy may differ, by nanojoules, because it is cut in other places. Never stores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from dovetail.answer.cost import cost_keys, cost_ledger, gpu_segments, price_list
from dovetail.answer.cost.cost_ledger import Key, Line, Row
from dovetail.answer.cost.cost_window import Window
from dovetail.model.accounting import records

# What entries know of work and of GPUs.
KEYS: Final = frozenset({"cluster", "namespace", "queue", "product", "pool", "form"})
_WAITING: Final = "waiting"
_FREE: Final = "free"


class GpuKind(msgspec.Struct, frozen=True, array_like=True):
    """What prices and keys may name of a GPU."""

    product: str
    pool: str
    is_spot: bool
    labels: dict[str, str]


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """GPU time of one kind of GPU, and of work of one namespace and queue."""

    kind: int | None  # the place among the account's kinds; None: work that waited
    form: str  # in which work held it; empty: free, or work that waited
    namespace: str  # empty: free
    queue: str
    gpu_time: tuple[int, ...]  # by line, in the units of the ledger
    waiting: int
    nanojoules: int | None
    gaps: tuple[int, ...]  # places among the account's gaps: why figures are not complete


class GapName(msgspec.Struct, frozen=True, array_like=True):
    """By what a gap is known."""

    source: str
    subject: str
    start: records.Millis


class UnpricedAccount(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that happened in one step."""

    kinds: tuple[GpuKind, ...] = ()
    entries: tuple[Entry, ...] = ()
    gaps: tuple[GapName, ...] = ()
    unknown: dict[str, int] = {}  # micro-GPU times milliseconds, by GPUs that no record describes


class Part(NamedTuple):
    """The account of one part of a window. Neither a step nor a price changes within it."""

    window: Window
    account: UnpricedAccount


def is_answerable(question: cost_ledger.Question) -> bool:
    """Whether entries know all that is asked."""
    read = {*question.keys.names, *question.kept_by} - question.keys.computed
    return KEYS.issuperset(read)


# From records to accounts


def accounts_of(
    recorded: records.Records, steps: tuple[Window, ...], now: records.Millis
) -> tuple[UnpricedAccount, ...]:
    """The account of every step."""
    question = cost_ledger.Question(
        prices=price_list.FREE, steps=steps, keys=_ENTRY_KEYS, gap_text=_name_of_gap
    )
    account = cost_ledger.ledger(recorded, question, now)
    strays = gpu_segments.unknown_assets(recorded, question.window)
    return tuple(
        _account(step, cost_ledger.unknown_times(strays, step.window.until(now)))
        for step in account.steps
    )


def _account(step: cost_ledger.Step, unknown: Mapping[str, int]) -> UnpricedAccount:
    kinds: dict[str, int] = {}
    gaps: dict[str, int] = {}
    entries = []
    for (kind, state, namespace, queue), row in sorted(step.rows.items()):
        entry = Entry(
            kind=None if kind == cost_keys.UNALLOCATED else kinds.setdefault(kind, len(kinds)),
            form="" if state in (_WAITING, _FREE) else state,
            namespace=_unquoted(namespace),
            queue=_unquoted(queue),
            gpu_time=tuple(row.gpu_time),
            waiting=row.waiting,
            nanojoules=row.energy,
            gaps=tuple(gaps.setdefault(name, len(gaps)) for name in sorted(row.reasons)),
        )
        entries.append(entry)
    return UnpricedAccount(
        kinds=tuple(msgspec.json.decode(kind, type=GpuKind) for kind in kinds),
        entries=tuple(entries),
        gaps=tuple(msgspec.json.decode(name, type=GapName) for name in gaps),
        unknown=dict(unknown),
    )


def _kind_text(subject: cost_keys.Subject) -> str:
    asset = subject.asset
    if asset is None:
        return ""
    kind = GpuKind(asset.product, asset.pool, asset.is_spot, dict(sorted(asset.labels.items())))
    return msgspec.json.encode(kind).decode()


def _state(subject: cost_keys.Subject) -> str:
    if subject.allocation is not None:
        return subject.allocation.form.value
    return _FREE if subject.owner is None else _WAITING


def _quoted(value: str) -> str:
    """Never empty: what is empty is one key's value, not all keys' `__unallocated__`."""
    return f"={value}"


def _unquoted(value: str) -> str:
    return value.removeprefix("=")


def _name_of_gap(gap: records.Gap, window: Window) -> str:
    return msgspec.json.encode(GapName(gap.source.value, gap.subject, gap.start)).decode()


_ENTRY_KEYS: Final = cost_keys.Keys(
    ("kind", "state", "namespace", "queue"),
    (
        _kind_text,
        _state,
        lambda subject: _quoted("" if subject.owner is None else subject.owner.namespace),
        lambda subject: _quoted("" if subject.owner is None else subject.owner.queue),
    ),
)


# From accounts to the ledger


def ledger(
    parts: Iterable[Part],
    recorded: records.Records,
    question: cost_ledger.Question,
    now: records.Millis,
) -> cost_ledger.Ledger:
    """The account of a question that entries can answer. Of the records it reads GPUs and gaps only."""
    return _Pricing(recorded, question, now).ledger(parts)


class _Pricing:
    def __init__(
        self, recorded: records.Records, question: cost_ledger.Question, now: records.Millis
    ) -> None:
        self._recorded = recorded
        self._question = question
        self._now = now
        self._known = question.window.until(now)
        self._rows: list[dict[Key, Row]] = [{} for _ in question.steps]
        self._assets = [0] * len(question.steps)
        self._subjects: dict[Key, list[cost_keys.Subject]] = {}
        self._subject_keys: dict[tuple[int, str, str, str], Key | None] = {}
        self._unknown: dict[str, int] = {}
        self._gap_texts = {
            _name_of_gap(gap, self._known): cost_ledger.gap_text(gap, self._known)
            for gap in recorded.gaps
        }
        self._stubs: dict[str, records.Asset] = {}

    def ledger(self, parts: Iterable[Part]) -> cost_ledger.Ledger:
        index = 0
        for part in parts:
            while self._question.steps[index].end <= part.window.start:
                index += 1
            self._add(part, index)
        steps = tuple(map(cost_ledger.Step, self._question.steps, self._rows, self._assets))
        return cost_ledger.Ledger(
            self._question.window, steps, self._subjects, tuple(self._notes())
        )

    def _add(self, part: Part, index: int) -> None:
        account = part.account
        stubs = [self._stub(kind) for kind in account.kinds]
        prices = self._question.prices
        at = part.window.start
        rates = [prices.nano_per_hour(stub, at) for stub in stubs]
        carbon = [prices.milligrams_per_kwh(stub, at) for stub in stubs]
        texts = [self._gap_text(name) for name in account.gaps]
        for entry in account.entries:
            asset = None if entry.kind is None else stubs[entry.kind]
            rate = None if entry.kind is None else rates[entry.kind]
            self._assets[index] += sum(entry.gpu_time) * (rate or 0)
            key = self._key(asset, entry)
            if key is None:
                continue
            row = self._rows[index].setdefault(key, Row())
            row.waiting += entry.waiting
            if asset is None or entry.kind is None:
                continue
            for line, gpu_time in zip(Line, entry.gpu_time, strict=True):
                if gpu_time:
                    row.add(line, gpu_time, rate)
            row.add_energy(entry.nanojoules, carbon[entry.kind])
            if rate is None:
                row.reasons[cost_ledger.no_price_text(asset)] = None
            for place in entry.gaps:
                row.reasons[texts[place]] = None
        for name, micro_time in account.unknown.items():
            self._unknown[name] = self._unknown.get(name, 0) + micro_time

    def _stub(self, kind: GpuKind) -> records.Asset:
        """A GPU of the kind, for price lists and keys."""
        text = msgspec.json.encode(kind).decode()
        if text not in self._stubs:
            self._stubs[text] = records.Asset(
                asset="",
                node="",
                product=kind.product,
                start=0,
                pool=kind.pool,
                is_spot=kind.is_spot,
                labels=kind.labels,
            )
        return self._stubs[text]

    def _gap_text(self, name: GapName) -> str:
        text = msgspec.json.encode(name).decode()
        # A gap that is no longer among the records still made figures partial.
        return self._gap_texts.get(
            text, f"nothing is known of {name.subject or 'any GPU'} for a while"
        )

    def _key(self, asset: records.Asset | None, entry: Entry) -> Key | None:
        """The key of a row; None where the subject is left out."""
        identity = (id(asset), entry.form, entry.namespace, entry.queue)
        if identity not in self._subject_keys:
            subject = self._subject(asset, entry)
            keep = self._question.keep
            key = (
                None if keep is not None and not keep(subject) else self._question.keys.of(subject)
            )
            self._subject_keys[identity] = key
            if key is not None:
                self._subjects.setdefault(key, []).append(subject)
        return self._subject_keys[identity]

    def _subject(self, asset: records.Asset | None, entry: Entry) -> cost_keys.Subject:
        """What an entry is about: as much as it knows of the work and its GPU."""
        cluster = self._question.cluster
        if asset is not None and not entry.form:
            return cost_keys.Subject(cluster, asset, None)
        owner = records.Owner(entry.namespace, pod="", pod_uid="", queue=entry.queue)
        if asset is None:
            return cost_keys.Subject(cluster, None, owner)
        allocation = records.Allocation(
            allocation="",
            asset="",
            node="",
            micro_gpu=0,
            form=records.Form(entry.form),
            owner=owner,
            start=0,
        )
        return cost_keys.Subject(cluster, asset, owner, allocation)

    def _notes(self) -> Iterable[cost_ledger.Note]:
        """Those of the GPUs alone, and GPUs that no record describes."""
        alone = records.Records(assets=self._recorded.assets, gaps=self._recorded.gaps)
        whole = self._question._replace(steps=(self._question.window,), keys=_NO_KEYS, keep=None)
        yield from cost_ledger.ledger(alone, whole, self._now).notes
        known = {asset.asset for asset in self._recorded.assets}
        unknown = {name: time for name, time in self._unknown.items() if name not in known}
        yield from cost_ledger.unknown_notes(unknown)


_NO_KEYS: Final = cost_keys.parse("")

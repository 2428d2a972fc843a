"""How GPUs were used over time: allocated, busy, idle, free, by GPU type, namespace, queue or any other key.

Given records, the steps of a window and keys. Whether allocated GPUs were busy is only said where it was measured: what
was not measured is neither busy nor idle. Never knows prices.
"""

from __future__ import annotations

import datetime
from fractions import Fraction
from typing import Final

import msgspec

from dovetail.answer.cost import cost_keys, cost_ledger, cost_window, price_list
from dovetail.answer.cost.cost_ledger import Line
from dovetail.model.accounting import records

DIGITS: Final = 6


class UtilisationRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """GPU-hours of one row. Figures of a row with reasons in `partial` are not complete."""

    name: str  # the values of the keys, with / between
    keys: dict[str, str]
    allocated: float
    busy: float | None  # None: nothing of what was allocated was measured
    idle: float | None
    unmeasured: float  # allocated; whether it was busy is not known
    unallocated: float
    unusable: float  # free, and no work could have used it
    waiting: float  # that work waited for
    partial: tuple[str, ...]


class UtilisationStep(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One step. GPU-hours divided by the hours that are known are the GPUs at that time, on average."""

    start: datetime.datetime
    end: datetime.datetime
    known_hours: float  # 0: nothing was recorded
    rows: tuple[UtilisationRow, ...]
    total: UtilisationRow


class Utilisation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The whole answer."""

    start: datetime.datetime
    end: datetime.datetime
    as_of: datetime.datetime  # records that are still open were counted until then
    aggregate: tuple[str, ...]
    is_measured: bool  # whether anything is known about how busy GPUs were
    known_hours: float
    rows: tuple[UtilisationRow, ...]  # of the whole window
    total: UtilisationRow
    steps: tuple[UtilisationStep, ...]
    notes: tuple[cost_ledger.Note, ...]


def question(steps: tuple[cost_window.Window, ...], keys: cost_keys.Keys) -> cost_ledger.Question:
    """What is asked of the records. A reader may add what is to be kept."""
    return cost_ledger.Question(prices=price_list.FREE, steps=steps, keys=keys)


def utilisation(
    account: cost_ledger.Ledger, keys: cost_keys.Keys, *, first: records.Millis, now: records.Millis
) -> Utilisation:
    """The answer, of the account of such a question. `first`: since when there are records of GPUs."""
    known = [_known_hours(step.window, first, now) for step in account.steps]

    whole: dict[cost_ledger.Key, cost_ledger.Row] = {}
    for step in account.steps:
        for key, row in step.rows.items():
            whole.setdefault(key, cost_ledger.Row()).merge(row)
    total = _total(whole)
    return Utilisation(
        start=cost_window.moment_of(account.window.start),
        end=cost_window.moment_of(account.window.end),
        as_of=cost_window.moment_of(now),
        aggregate=keys.names,
        is_measured=total.busy is not None,
        known_hours=round(sum(known), DIGITS),
        rows=_rows(whole, keys),
        total=total,
        steps=tuple(
            _step(step, keys, hours) for step, hours in zip(account.steps, known, strict=True)
        ),
        notes=account.notes,
    )


def _known_hours(step: cost_window.Window, first: records.Millis, now: records.Millis) -> float:
    """The part of a step after the first record and before now."""
    length = min(step.end, now) - max(step.start, first)
    return max(0, length) / records.MILLISECONDS_PER_HOUR


def _step(step: cost_ledger.Step, keys: cost_keys.Keys, known_hours: float) -> UtilisationStep:
    return UtilisationStep(
        start=cost_window.moment_of(step.window.start),
        end=cost_window.moment_of(step.window.end),
        known_hours=round(known_hours, DIGITS),
        rows=_rows(step.rows, keys),
        total=_total(step.rows),
    )


def _rows(
    rows: dict[cost_ledger.Key, cost_ledger.Row], keys: cost_keys.Keys
) -> tuple[UtilisationRow, ...]:
    """The largest holder first; what no work held last."""

    def order(key: cost_ledger.Key) -> tuple[bool, int, cost_ledger.Key]:
        return cost_keys.IDLE in key, -sum(rows[key].gpu_time), key

    return tuple(
        _row("/".join(key) or "all", dict(zip(keys.names, key, strict=True)), rows[key])
        for key in sorted(rows, key=order)
    )


def _total(rows: dict[cost_ledger.Key, cost_ledger.Row]) -> UtilisationRow:
    whole = cost_ledger.Row()
    for row in rows.values():
        whole.merge(row)
    return _row("total", {}, whole)


def _row(name: str, keys: dict[str, str], row: cost_ledger.Row) -> UtilisationRow:
    used, idle, unmeasured = (
        row.gpu_time[line] for line in (Line.USED, Line.IDLE, Line.UNMEASURED)
    )
    is_measured = used + idle > 0
    return UtilisationRow(
        name=name,
        keys=keys,
        allocated=_hours(used + idle + unmeasured),
        busy=_hours(used) if is_measured else None,
        idle=_hours(idle) if is_measured else None,
        unmeasured=_hours(unmeasured),
        unallocated=_hours(row.gpu_time[Line.UNALLOCATED]),
        unusable=_hours(row.gpu_time[Line.UNUSABLE]),
        waiting=round(row.waiting / cost_ledger.WAITING_GPU_HOUR, DIGITS),
        partial=tuple(sorted(row.reasons)),
    )


def _hours(gpu_time: int) -> float:
    return round(float(Fraction(gpu_time, cost_ledger.GPU_HOUR)), DIGITS)

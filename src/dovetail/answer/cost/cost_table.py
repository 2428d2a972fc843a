"""The table of `dovetail cost`: the exact account in GPU-hours and cents that add up.

Given an account and its question. Cents are divided from the whole down: the total among steps, each step's among GPUs
where rows are of single GPUs, then among rows, each row's among its lines. So every sum of printed figures is the
figure printed for it, and neither a row nor one of its lines is a cent or more from the exact amount. Never prices.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

import msgspec

from dovetail.answer.cost import apportionment, cost_keys, cost_ledger, recorded_prices
from dovetail.answer.cost.cost_ledger import CENT, CURRENCY
from dovetail.answer.cost.cost_window import moment_of
from dovetail.model.accounting import records

HOUR_DIGITS = 6
ENERGY_DIGITS = 6
MONEY_DIGITS = 9


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """GPU-hours or money, by what the GPU time was spent on."""

    used: float = 0.0
    idle: float = 0.0  # allocated, and its holder did not use it
    unmeasured: float = 0.0  # allocated; whether it was used is not known
    unallocated: float = 0.0
    unusable: float = 0.0  # free, and no work could have used it
    total: float = 0.0


class CostRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One row. Figures of a row with reasons in `partial` are not complete."""

    name: str  # the values of the keys, with / between
    keys: dict[str, str]
    gpu_hours: Split
    cost: Split  # in cents that add up
    exact_cost: str  # to a billionth
    unpriced_gpu_hours: float  # of which no price is known: they are not part of the cost
    waiting_gpu_hours: float
    energy_kwh: float | None
    co2e_kg: float | None
    partial: tuple[str, ...]


class CostStep(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One step of the window."""

    start: datetime.datetime
    end: datetime.datetime
    rows: tuple[CostRow, ...]
    total: CostRow
    asset_cost: (
        str  # what all GPUs cost, exactly; the total's exact cost unless something was left out
    )


class CostTable(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The whole answer."""

    currency: str
    start: datetime.datetime
    end: datetime.datetime
    as_of: datetime.datetime  # records that are still open were counted until then
    aggregate: tuple[str, ...]
    steps: tuple[CostStep, ...]
    total: CostRow
    asset_cost: str
    notes: tuple[cost_ledger.Note, ...]


def cost(
    recorded: records.Records, question: cost_ledger.Question, now: records.Millis
) -> CostTable:
    """The table. Without prices in the question, the recorded ones count."""
    prices = recorded_prices.in_force(question.prices, recorded.prices, question.window)
    question = question._replace(prices=prices)
    return table(cost_ledger.ledger(recorded, question, now), question, now)


def table(
    account: cost_ledger.Ledger, question: cost_ledger.Question, now: records.Millis
) -> CostTable:
    """The account as people and programs read it."""
    cents = _divided(account, question.keys)
    steps = tuple(
        _step(step, question.keys, step_cents)
        for step, step_cents in zip(account.steps, cents, strict=True)
    )
    whole = cost_ledger.Row()
    for step in account.steps:
        for row in step.rows.values():
            whole.merge(row)
    line_cents = [sum(column) for column in zip(*_all_cells(cents), strict=True)]
    return CostTable(
        currency=question.prices.currency,
        start=moment_of(account.window.start),
        end=moment_of(account.window.end),
        as_of=moment_of(now),
        aggregate=question.keys.names,
        steps=steps,
        total=_row("total", {}, whole, line_cents or [0] * cost_ledger.LINES),
        asset_cost=_exact(sum(step.assets for step in account.steps)),
        notes=account.notes,
    )


Cells = list[int]  # cents by line
StepCents = dict[cost_ledger.Key, Cells]


def _all_cells(cents: Sequence[StepCents]) -> list[Cells]:
    return [cells for step in cents for cells in step.values()]


def _divided(account: cost_ledger.Ledger, keys: cost_keys.Keys) -> list[StepCents]:
    """The cents of every row and line, by step."""
    amounts = [sum(sum(row.money) for row in step.rows.values()) for step in account.steps]
    total = apportionment.cents_of(sum(amounts), CENT)
    of_steps = apportionment.apportioned(total, amounts, CENT)
    return [
        _divided_step(step, keys, cents)
        for step, cents in zip(account.steps, of_steps, strict=True)
    ]


def _divided_step(step: cost_ledger.Step, keys: cost_keys.Keys, cents: int) -> StepCents:
    groups: dict[str, list[cost_ledger.Key]] = {}
    position = keys.names.index(cost_keys.GPU) if cost_keys.GPU in keys.names else None
    for key in sorted(step.rows):
        groups.setdefault("" if position is None else key[position], []).append(key)
    amounts = [sum(sum(step.rows[key].money) for key in members) for members in groups.values()]
    of_groups = apportionment.apportioned(cents, amounts, CENT)
    divided: StepCents = {}
    for members, group_cents in zip(groups.values(), of_groups, strict=True):
        divided |= _divided_group(step, members, group_cents)
    return divided


def _divided_group(
    step: cost_ledger.Step, members: Sequence[cost_ledger.Key], cents: int
) -> StepCents:
    """Rows before lines: a row is what someone pays."""
    rows = [step.rows[key].money for key in members]
    of_rows = apportionment.apportioned(cents, [sum(money) for money in rows], CENT)
    divided = zip(members, rows, of_rows, strict=True)
    return {
        key: apportionment.apportioned(row_cents, money, CENT) for key, money, row_cents in divided
    }


def _step(step: cost_ledger.Step, keys: cost_keys.Keys, cents: StepCents) -> CostStep:
    rows = []
    whole = cost_ledger.Row()
    for key in sorted(step.rows, key=_order(step.rows)):
        row = step.rows[key]
        named = dict(zip(keys.names, key, strict=True))
        rows.append(_row("/".join(key) or "all", named, row, cents[key]))
        whole.merge(row)
    line_cents = [sum(column) for column in zip(*cents.values(), strict=True)]
    return CostStep(
        start=moment_of(step.window.start),
        end=moment_of(step.window.end),
        rows=tuple(rows),
        total=_row("total", {}, whole, line_cents or [0] * cost_ledger.LINES),
        asset_cost=_exact(step.assets),
    )


def _order(
    rows: dict[cost_ledger.Key, cost_ledger.Row],
) -> Callable[[cost_ledger.Key], tuple[bool, int, cost_ledger.Key]]:
    """The dearest first; what no work held last."""
    return lambda key: (cost_keys.IDLE in key, -sum(rows[key].money), key)


def _row(name: str, keys: dict[str, str], row: cost_ledger.Row, cents: Sequence[int]) -> CostRow:
    energy = None if row.energy is None else round(row.energy / cost_ledger.KWH, ENERGY_DIGITS)
    carbon = None if row.carbon is None else round(row.carbon / cost_ledger.CO2E_KG, ENERGY_DIGITS)
    return CostRow(
        name=name,
        keys=keys,
        gpu_hours=_split([_hours(time) for time in (*row.gpu_time, sum(row.gpu_time))]),
        cost=_split([amount / 100 for amount in (*cents, sum(cents))]),
        exact_cost=_exact(sum(row.money)),
        unpriced_gpu_hours=_hours(row.unpriced),
        waiting_gpu_hours=round(row.waiting / cost_ledger.WAITING_GPU_HOUR, HOUR_DIGITS),
        energy_kwh=energy,
        co2e_kg=carbon,
        partial=tuple(sorted(row.reasons)),
    )


def _split(values: Iterable[float]) -> Split:
    return Split(**dict(zip(Split.__struct_fields__, values, strict=True)))


def _hours(gpu_time: int) -> float:
    return round(float(Fraction(gpu_time, cost_ledger.GPU_HOUR)), HOUR_DIGITS)


def _exact(money: int) -> str:
    """To a billionth of the currency, half of one rounded up."""
    billionths = (2 * money * 10**MONEY_DIGITS + CURRENCY) // (2 * CURRENCY)
    whole, part = divmod(billionths, 10**MONEY_DIGITS)
    return f"{whole}.{part:0{MONEY_DIGITS}d}"

"""For every GPU and hour, the lines sum to exactly what the GPU cost, whatever happened to it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import hypothesis
import msgspec
from hypothesis import strategies

from dovetail.answer.cost import (
    apportionment,
    cost_ledger,
    cost_table,
    opencost_allocations,
    price_list,
)
from dovetail.answer.cost.cost_ledger import CENT, CURRENCY, GPU_HOUR, Line
from dovetail.model.accounting import records
from dovetail.model.accounting.records import Form
from tests.answer.cost import accounts

TICK = accounts.HOUR // 6  # ten minutes: all times of these histories are multiples of it
HOURS = 5
TICKS = HOURS * 6
MIG_MICRO = (142857, 285714, 428571, 571429, 500000, 1_000_000)
PRODUCTS = (accounts.H100, accounts.A100, "NVIDIA Unknown")

times = strategies.integers(-3, TICKS + 3)
spans = strategies.tuples(times, strategies.one_of(strategies.none(), strategies.integers(1, 12)))


def millis(tick: int) -> int:
    return accounts.MONDAY + tick * TICK


def end_of(span: tuple[int, int | None]) -> int | None:
    start, length = span
    return None if length is None else millis(start + length)


@strategies.composite
def histories(draw: Any) -> records.Records:
    """A few GPUs whose records overlap, repeat, end early, never end or are missing."""
    names = ("g0", "g1", "n2/nvidia.com/gpu")
    assets = []
    for name in names:
        for span in draw(strategies.lists(spans, max_size=3)):
            assets.append(
                records.Asset(
                    name,
                    draw(strategies.sampled_from(("n0", "n1"))),
                    draw(strategies.sampled_from(PRODUCTS)),
                    millis(span[0]),
                    end_of(span),
                    count=4 if "/" in name else 1,
                    is_spot=draw(strategies.booleans()),
                )
            )
    allocations = []
    for number, span in enumerate(draw(strategies.lists(spans, max_size=8))):
        namespace = draw(strategies.sampled_from(("a", "b", "c")))
        repeats = draw(strategies.integers(0, 3)) == 0
        allocations.append(
            records.Allocation(
                "twice" if repeats else f"x{number}",
                draw(strategies.sampled_from((*names, "nowhere"))),
                "n0",
                draw(strategies.sampled_from(MIG_MICRO)),
                draw(strategies.sampled_from(list(Form))),
                accounts.owner(namespace, f"p{number}"),
                millis(span[0]),
                end_of(span),
            )
        )
    usage = []
    for allocation in allocations:
        for span in draw(strategies.lists(spans, max_size=2)):
            length = span[1] or 1
            usage.append(
                records.Usage(
                    allocation.asset,
                    draw(strategies.sampled_from((allocation.allocation, ""))),
                    millis(span[0]),
                    millis(span[0] + length),
                    busy_micro=draw(
                        strategies.one_of(strategies.none(), strategies.integers(0, 1_200_000))
                    ),
                    energy_millijoules=draw(strategies.integers(0, 10**9)),
                )
            )
    unusable = [
        records.Unusable(
            draw(strategies.sampled_from(names)),
            "n0",
            draw(strategies.sampled_from(MIG_MICRO)),
            millis(span[0]),
            end_of(span),
        )
        for span in draw(strategies.lists(spans, max_size=3))
    ]
    gaps = [
        records.Gap(
            draw(strategies.sampled_from(list(records.GapSource))), millis(span[0]), end_of(span)
        )
        for span in draw(strategies.lists(spans, max_size=2))
    ]
    return records.Records(
        assets=tuple(assets),
        allocations=tuple(allocations),
        usage=tuple(usage),
        unusable=tuple(unusable),
        gaps=tuple(gaps),
    )


@strategies.composite
def price_lists(draw: Any) -> price_list.PriceList:
    """Prices that begin and end within hours, overlap, and leave some GPUs out."""
    entries = []
    for _ in range(draw(strategies.integers(0, 4))):
        start = draw(strategies.one_of(strategies.none(), times))
        length = draw(strategies.one_of(strategies.none(), strategies.integers(1, 20)))
        match = price_list.Match(
            product=draw(strategies.sampled_from(("*", "*H100*", "*a100*"))),
            spot=draw(strategies.sampled_from((None, True, False))),
            start=None if start is None else millis(start),
            end=None if start is None or length is None else millis(start + length),
        )
        nano = draw(strategies.integers(0, 9_999)) * 1_000_000
        entries.append(price_list.Price(match=match, nano_per_hour=nano))
    return price_list.PriceList(currency="USD", prices=tuple(entries))


# What the lines must be, one tick at a time, in plain fractions.


def is_active(record: Any, tick: int) -> bool:
    moment = millis(tick)
    return record.start <= moment and (record.end is None or moment < record.end)


def latest(candidates: list[Any], tick: int) -> Any:
    """Of records that say the same thing twice: the one that began later, of those the last."""
    active = [record for record in candidates if is_active(record, tick)]
    return max(enumerate(active), key=lambda pair: (pair[1].start, pair[0]))[1] if active else None


def price_of(asset: records.Asset, known: price_list.PriceList, tick: int) -> Fraction:
    moment = millis(tick)
    for entry in known.prices:
        word = entry.match.product.strip("*").lower()
        fits = word in asset.product.lower() and entry.match.spot in (None, asset.is_spot)
        begun = entry.match.start is None or entry.match.start <= moment
        if fits and begun and (entry.match.end is None or moment < entry.match.end):
            return Fraction(entry.nano_per_hour, 10**9)
    return Fraction(0)


def expected(
    recorded: records.Records, known: price_list.PriceList, name: str, tick: int
) -> tuple[Fraction, dict[str, Fraction], list[Fraction]]:
    """What one GPU cost in a tick, of it by namespace, and by line."""
    asset = latest([each for each in recorded.assets if each.asset == name], tick)
    if asset is None:
        return Fraction(0), {}, [Fraction(0)] * 5
    price = price_of(asset, known, tick) / 6
    of_asset = [each for each in recorded.allocations if each.asset == name]
    identities = sorted({each.allocation for each in of_asset})
    held = [
        latest([each for each in of_asset if each.allocation == identity], tick)
        for identity in identities
    ]
    held = [each for each in held if each is not None]
    total = Fraction(sum(each.micro_gpu for each in held), 10**6)
    scale = Fraction(asset.count) / total if total > asset.count else Fraction(1)
    by_namespace: dict[str, Fraction] = {}
    lines = [Fraction(0)] * 5
    samples = [each for each in recorded.usage if each.asset == name]
    for each in held:
        cost = Fraction(each.micro_gpu, 10**6) * scale * price
        namespace = each.owner.namespace
        by_namespace[namespace] = by_namespace.get(namespace, Fraction(0)) + cost
        sample = latest([one for one in samples if one.allocation == each.allocation], tick)
        if (sample is None or sample.busy_micro is None) and len(held) == 1:
            sample = latest([one for one in samples if one.allocation == ""], tick)
        if sample is None or sample.busy_micro is None:
            lines[Line.UNMEASURED] += cost
        else:
            share = Fraction(min(sample.busy_micro, 10**6), 10**6)
            lines[Line.USED] += cost * share
            lines[Line.IDLE] += cost * (1 - share)
    free = asset.count - total * scale
    wasted = sum(
        each.micro_gpu for each in recorded.unusable if each.asset == name and is_active(each, tick)
    )
    unusable = min(free, Fraction(wasted, 10**6))
    lines[Line.UNUSABLE] = unusable * price
    lines[Line.UNALLOCATED] = (free - unusable) * price
    return asset.count * price, by_namespace, lines


@hypothesis.settings(max_examples=60)
@hypothesis.given(histories(), price_lists())
def test_the_lines_of_every_gpu_and_hour_sum_to_its_price(
    recorded: records.Records, known: price_list.PriceList
) -> None:
    question = accounts.asked(known, "gpu,namespace", hours=(0, HOURS), step="1h")
    account = cost_ledger.ledger(recorded, question, question.window.end)
    names = {asset.asset for asset in recorded.assets}
    for hour, step in enumerate(account.steps):
        for name in names:
            ticks = [expected(recorded, known, name, hour * 6 + tick) for tick in range(6)]
            rows = {key[1]: row for key, row in step.rows.items() if key[0] == name}
            exact = sum(sum(row.money) for row in rows.values())
            assert Fraction(exact, CURRENCY) == sum(cost for cost, _, _ in ticks)
            for line in Line:
                ours = Fraction(sum(row.money[line] for row in rows.values()), CURRENCY)
                theirs = sum(lines[line] for _, _, lines in ticks)
                assert abs(ours - theirs) < Fraction(1, 10**6), line  # shares are trillionths
            for namespace in "abc":
                theirs = sum(by.get(namespace, Fraction(0)) for _, by, _ in ticks)
                row = rows.get(namespace)
                ours = Fraction(sum(row.money) if row is not None else 0, CURRENCY)
                assert abs(ours - theirs) < Fraction(1, 10**6), namespace


@hypothesis.settings(max_examples=60)
@hypothesis.given(
    histories(),
    price_lists(),
    strategies.sampled_from(("namespace", "gpu", "node", "gpu,namespace", "product,pod", "")),
    strategies.sampled_from(("", "1h", "40m")),
)
def test_printed_cents_add_up_and_are_within_a_cent(
    recorded: records.Records, known: price_list.PriceList, aggregate: str, step: str
) -> None:
    question = accounts.asked(known, aggregate, hours=(0, HOURS), step=step)
    answer = cost_table.cost(recorded, question, question.window.end)
    assert answer.total.exact_cost == answer.asset_cost
    assert cents(answer.total.cost.total) == sum(
        cents(each.total.cost.total) for each in answer.steps
    )
    for each in answer.steps:
        assert each.total.exact_cost == each.asset_cost
        for field in cost_table.Split.__struct_fields__:
            parts = sum(cents(getattr(row.cost, field)) for row in each.rows)
            assert parts == cents(getattr(each.total.cost, field))
        for row in each.rows:
            printed_row = Fraction(cents(row.cost.total), 100)
            assert abs(Fraction(row.exact_cost) - printed_row) < Fraction(101, 10**4)
        for row in (*each.rows, each.total):
            lines = [getattr(row.cost, field) for field in cost_table.Split.__struct_fields__]
            assert sum(map(cents, lines[:-1])) == cents(lines[-1])
        printed_total = Fraction(cents(each.total.cost.total), 100)
        assert abs(Fraction(each.total.exact_cost) - printed_total) < Fraction(101, 10**4)
        if "gpu" in question.keys.names:
            for name in {row.keys["gpu"] for row in each.rows}:
                of_gpu = [row for row in each.rows if row.keys["gpu"] == name]
                exact = sum(Fraction(row.exact_cost) for row in of_gpu)
                printed = Fraction(sum(cents(row.cost.total) for row in of_gpu), 100)
                assert abs(exact - printed) < Fraction(101, 10**4)


def cents(amount: float) -> int:
    whole = round(amount * 100)
    assert amount == whole / 100
    return whole


@hypothesis.given(strategies.lists(strategies.integers(0, 10**6), max_size=30))
def test_apportioned_cents_differ_from_amounts_by_less_than_one(amounts: list[int]) -> None:
    total = apportionment.cents_of(sum(amounts), 1000)
    divided = apportionment.apportioned(total, amounts, 1000)
    assert sum(divided) == total
    for amount, part in zip(amounts, divided, strict=True):
        assert abs(Fraction(amount, 1000) - part) < 1


@hypothesis.settings(max_examples=60)
@hypothesis.given(histories(), price_lists())
def test_gpu_hours_do_not_depend_on_prices(
    recorded: records.Records, known: price_list.PriceList
) -> None:
    question = accounts.asked(known, "gpu", hours=(0, HOURS))
    free = question._replace(prices=price_list.PriceList())
    priced_account = cost_ledger.ledger(recorded, question, question.window.end)
    free_account = cost_ledger.ledger(recorded, free, question.window.end)
    (priced_step,), (free_step,) = priced_account.steps, free_account.steps
    assert priced_step.rows.keys() == free_step.rows.keys()
    for key, row in priced_step.rows.items():
        assert row.gpu_time == free_step.rows[key].gpu_time
        ticks = sum(
            asset.count
            for tick in range(TICKS)
            if (asset := latest([each for each in recorded.assets if each.asset == key[0]], tick))
        )
        assert Fraction(sum(row.gpu_time), GPU_HOUR) == Fraction(ticks, 6)
    assert CENT * 100 == CURRENCY


@hypothesis.settings(max_examples=60)
@hypothesis.given(
    histories(),
    price_lists(),
    strategies.sampled_from(("namespace", "node", "pod,queue", "")),
    strategies.booleans(),
    strategies.sampled_from(("", "all", "hour")),
)
def test_allocations_in_the_form_of_opencost_sum_to_what_gpus_cost(
    recorded: records.Records,
    known: price_list.PriceList,
    aggregate: str,
    idle_by_node: bool,
    accumulate_by: str,
) -> None:
    question = accounts.asked(known, "gpu", hours=(0, HOURS), step="40m")
    account = cost_ledger.ledger(recorded, question, question.window.end)
    assets = sum(step.assets for step in account.steps) / CURRENCY
    asked = question._replace(keys=opencost_allocations.keys_of(aggregate))
    shape = opencost_allocations.Shape(
        include_idle=True, idle_by_node=idle_by_node, accumulate_by=accumulate_by
    )
    reply = _reply(recorded, asked, shape)
    items = [item for step in reply.data for item in step.values()]
    rounding = 0.00001 * max(1, len(items))
    assert abs(sum(item.total_cost for item in items) - assets) <= rounding
    shared = msgspec.structs.replace(shape, share_idle=True, idle_by_node=False)
    reply = _reply(recorded, asked, shared)
    names = {name for step in reply.data for name in step}
    assert not any("__idle__" in name for name in names)
    items = [item for step in reply.data for item in step.values()]
    worked = [step for step in account.steps if _has_work(step)]
    due = sum(step.assets for step in worked) / CURRENCY
    assert abs(sum(item.total_cost for item in items) - due) <= 0.00001 * max(1, len(items))


def _reply(
    recorded: records.Records, asked: cost_ledger.Question, shape: opencost_allocations.Shape
) -> opencost_allocations.AllocationReply:
    end = asked.window.end
    account = cost_ledger.ledger(recorded, opencost_allocations.marked(asked, shape), end)
    return opencost_allocations.allocations(account, shape, end)


def _has_work(step: cost_ledger.Step) -> bool:
    """Whether there is a cost of work, by which idle is shared."""
    return any(any(row.money[: Line.UNALLOCATED]) for row in step.rows.values())

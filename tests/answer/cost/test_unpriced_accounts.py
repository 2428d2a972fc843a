"""Accounts made in parts, before prices are known, give the ledger that the records give."""

from __future__ import annotations

import itertools

import hypothesis
import msgspec
from hypothesis import strategies

from dovetail.answer.cost import cost_filter, cost_ledger, price_list, unpriced_account
from dovetail.answer.cost.cost_window import Window
from dovetail.model.accounting import records
from tests.answer.cost import accounts, test_sums

waits = strategies.lists(
    strategies.tuples(test_sums.spans, strategies.sampled_from(("p0", "p1"))), max_size=6
)


def in_parts(
    recorded: records.Records, question: cost_ledger.Question, cuts: list[int]
) -> cost_ledger.Ledger:
    """The ledger of accounts that were made part by part, each of what it overlaps, and stored in between."""
    window = question.window
    edges = {window.start, window.end, *(step.start for step in question.steps), *cuts}
    edges |= set(question.prices.changes())
    inside = sorted(edge for edge in edges if window.start <= edge <= window.end)
    parts = []
    for start, end in itertools.pairwise(inside):
        seen = overlapping(recorded, start, end)
        (account,) = unpriced_account.accounts_of(seen, (Window(start, end),), end)
        stored = msgspec.json.encode(account)
        read = msgspec.json.decode(stored, type=unpriced_account.UnpricedAccount)
        parts.append(unpriced_account.Part(Window(start, end), read))
    described = overlapping(recorded, window.start, window.end)
    return unpriced_account.ledger(parts, described, question, window.end)


def overlapping(recorded: records.Records, start: int, end: int) -> records.Records:
    fields = {
        field: tuple(
            record
            for record in getattr(recorded, field)
            if record.start < end and (record.end is None or record.end > start)
        )
        for field in ("assets", "allocations", "usage", "waiting", "unusable", "gaps")
    }
    return records.Records(**fields)


def seen(account: cost_ledger.Ledger) -> list[dict[cost_ledger.Key, tuple[object, ...]]]:
    """All that is exact, of rows that are about anything."""
    return [
        {
            key: (row.gpu_time, row.money, row.unpriced, row.waiting, sorted(row.reasons))
            for key, row in step.rows.items()
            if any(row.gpu_time) or row.waiting
        }
        for step in account.steps
    ]


@hypothesis.settings(max_examples=60)
@hypothesis.given(
    test_sums.histories(),
    waits,
    test_sums.price_lists(),
    strategies.sampled_from(("namespace", "product,form", "queue", "")),
    strategies.sampled_from(("", "1h", "40m")),
    strategies.lists(strategies.integers(0, test_sums.TICKS).map(test_sums.millis), max_size=4),
)
def test_parts_give_the_ledger_of_the_records(
    recorded: records.Records,
    waited: list[tuple[tuple[int, int | None], str]],
    known: price_list.PriceList,
    aggregate: str,
    step: str,
    cuts: list[int],
) -> None:
    waiting = tuple(
        records.Waiting(
            accounts.owner("a", pod), 500_000, test_sums.millis(span[0]), test_sums.end_of(span)
        )
        for span, pod in waited
    )
    gaps = {(gap.source, gap.start): gap for gap in recorded.gaps}  # a gap is known by these
    recorded = msgspec.structs.replace(recorded, waiting=waiting, gaps=tuple(gaps.values()))
    question = accounts.asked(known, aggregate, hours=(0, test_sums.HOURS), step=step)
    recorded = overlapping(recorded, *question.window)  # as a store returns it
    whole = cost_ledger.ledger(recorded, question, question.window.end)
    added_up = in_parts(recorded, question, cuts)
    assert seen(added_up) == seen(whole)
    assert [part.assets for part in added_up.steps] == [part.assets for part in whole.steps]
    assert added_up.notes == whole.notes
    for ours, theirs in zip(added_up.steps, whole.steps, strict=True):
        for key, row in theirs.rows.items():
            mine = ours.rows[key].energy if key in ours.rows else None
            assert (mine or 0) // 10**6 - (row.energy or 0) // 10**6 in (-1, 0, 1)


def test_only_what_accounts_know_is_asked_of_them() -> None:
    def is_answerable(aggregate: str, filter_: str = "") -> bool:
        question = accounts.asked(accounts.flat(1), aggregate)
        kept_by = cost_filter.fields(filter_)
        return unpriced_account.is_answerable(question._replace(kept_by=kept_by))

    assert is_answerable("namespace,queue,product,pool,form,cluster", 'namespace:"a" + queue!:"b"')
    for aggregate in ("pod", "controller", "label:team", "node", "gpu", "claim"):
        assert not is_answerable(aggregate)
    for filter_ in ('pod:"a"', 'label[app]:"a"', 'product:"an app, to OpenCost"'):
        assert not is_answerable("namespace", filter_)


def test_of_two_waits_of_a_pod_the_later_counts_while_it_lasts() -> None:
    pod = accounts.owner("a", "p")
    waiting = (
        records.Waiting(pod, 1_000_000, accounts.at(0), accounts.at(4)),
        records.Waiting(pod, 2_000_000, accounts.at(1), accounts.at(2)),
    )
    question = accounts.asked(accounts.flat(1), hours=(0, 5), step="1h")
    account = cost_ledger.ledger(records.Records(waiting=waiting), question, accounts.at(5))
    hours = [
        row.waiting / cost_ledger.WAITING_GPU_HOUR
        for step in account.steps
        for row in step.rows.values()
    ]
    assert hours == [1.0, 2.0, 1.0, 1.0]

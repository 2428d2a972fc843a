"""Fair shares: held against an independent, slow division in fractions, and against what must always be true."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from dovetail.kubetypes import meta
from dovetail.kubetypes.custom import queues
from dovetail.quantity import quantity
from dovetail.schedule.queue import amounts, fair_share
from dovetail.schedule.queue.accounts import NO_QUEUE, Accounts
from tests.batch import stories

WHOLE = 1000


class Asks(NamedTuple):
    """A queue in whole GPUs; None has no bound."""

    name: str
    wants: int
    quota: int | None = 0
    limit: int | None = None
    weight: int = 1
    priority: int = 0
    age: int = 0
    parent: str = ""


def divided(
    total: int, *asked: Asks, usage: Mapping[str, float] | None = None, strength: float = 1.0
) -> Accounts:
    """The accounts after a division of so many GPUs."""
    known = {item.name: _queue(item) for item in asked}
    accounts = Accounts(known, enforces=True, capacity={amounts.GPU: total * WHOLE})
    leaves = {item.name for item in asked} - {item.parent for item in asked}
    for item in asked:
        if item.name in leaves:
            accounts.wait(item.name, {amounts.GPU: item.wants * WHOLE})
    past = {name: {amounts.GPU: part} for name, part in (usage or {}).items()}
    fair_share.divide(accounts, usage=past, usage_weight=strength)
    return accounts


def _queue(asks: Asks) -> queues.Queue:
    share = {
        "quota": quantity.parse("1E") if asks.quota is None else asks.quota,
        "limit": asks.limit,
        "weight": asks.weight,
    }
    queue = stories.queue(asks.name, {"gpu": share}, priority=asks.priority, parent=asks.parent)
    metadata = meta.ObjectMeta(name=asks.name, creation_timestamp=stories.stamp(10_000 - asks.age))
    return queues.Queue(metadata=metadata, spec=queue.spec)


def shares(accounts: Accounts) -> dict[str, float]:
    """GPUs by queue."""
    return {
        name: one.fair[amounts.GPU] / WHOLE
        for name, one in accounts.by_name.items()
        if name != NO_QUEUE
    }


def fair(total: int, *asked: Asks) -> dict[str, float]:
    return shares(divided(total, *asked))


# An independent division, by the book: quota, bands, rounds in exact fractions, then the largest remainders.


def oracle(total: int, asked: Sequence[Asks]) -> dict[str, Fraction]:
    want = {
        item.name: Fraction(min(item.wants, math.inf if item.limit is None else item.limit))
        for item in asked
    }
    given_ = {
        item.name: min(want[item.name], Fraction(total if item.quota is None else item.quota))
        for item in asked
    }
    left = Fraction(total) - sum(given_.values())
    claims: dict[str, Fraction] = {}
    for priority in sorted({item.priority for item in asked}, reverse=True):
        band = [item for item in asked if item.priority == priority]
        while left > 0:
            hungry = [
                item for item in band if given_[item.name] < want[item.name] and item.weight > 0
            ]
            if not hungry:
                break
            pool, weights = left, sum(item.weight for item in hungry)
            satisfied = False
            for item in hungry:
                offer = pool * item.weight / weights
                lacking = want[item.name] - given_[item.name]
                part = lacking if lacking <= offer else Fraction(math.floor(offer))
                satisfied = satisfied or lacking < offer
                if lacking <= offer:
                    claims.pop(item.name, None)
                else:
                    claims[item.name] = offer - part
                given_[item.name] += part
                left -= part
            if not satisfied:
                break
    owed = [item for item in asked if claims.get(item.name)]
    for item in sorted(
        owed, key=lambda item: (-item.priority, -claims[item.name], item.age, item.name)
    ):
        part = min(Fraction(1), left, want[item.name] - given_[item.name])
        if part > 0:
            given_[item.name] += part
            left -= part
    return given_


@st.composite
def siblings(draw: st.DrawFn, *, priorities: int = 2) -> list[Asks]:
    """A few queues of one level, some without bounds."""
    result = []
    for number in range(draw(st.integers(1, 5))):
        quota = draw(st.one_of(st.none(), st.integers(0, 6)))
        limit = (
            draw(st.one_of(st.none(), st.integers(quota or 0, 12))) if quota is not None else None
        )
        result.append(
            Asks(
                f"q{number}",
                draw(st.integers(0, 15)),
                quota=quota,
                limit=limit,
                weight=draw(st.integers(0, 4)),
                priority=draw(st.integers(0, priorities)),
                age=number,
            )
        )
    return result


@given(st.integers(0, 24), siblings())
def test_shares_are_those_of_the_slow_division(total: int, asked: list[Asks]) -> None:
    assert fair(total, *asked) == {name: float(part) for name, part in oracle(total, asked).items()}


@given(st.integers(0, 24), siblings())
def test_beyond_quotas_no_more_is_given_than_there_is(total: int, asked: list[Asks]) -> None:
    result = fair(total, *asked)
    sure = sum(
        min(item.wants, total if item.quota is None else item.quota, item.limit or 99)
        for item in asked
    )
    assert sum(result.values()) <= max(total, sure)


@given(st.integers(0, 24), siblings())
def test_no_queue_gets_less_than_its_quota_nor_more_than_its_demand(
    total: int, asked: list[Asks]
) -> None:
    result = fair(total, *asked)
    for item in asked:
        want = min(item.wants, math.inf if item.limit is None else item.limit)
        assert min(want, total if item.quota is None else item.quota) <= result[item.name] <= want


@given(st.integers(0, 24), siblings())
def test_nothing_is_left_while_a_queue_with_weight_has_demand(
    total: int, asked: list[Asks]
) -> None:
    result = fair(total, *asked)
    lacking = [
        item
        for item in asked
        if item.weight
        and result[item.name] < min(item.wants, math.inf if item.limit is None else item.limit)
    ]
    assert not lacking or sum(result.values()) >= total


@given(st.integers(0, 24), siblings(priorities=0), st.integers(1, 3))
def test_more_weight_never_gives_less(total: int, asked: list[Asks], more: int) -> None:
    heavier = [asked[0]._replace(weight=asked[0].weight + more), *asked[1:]]
    assert (
        fair(total, *heavier)["q0"] >= fair(total, *asked)["q0"] - 1
    )  # what cannot be divided may turn either way


@given(st.integers(0, 24), siblings(), st.integers(1, 4))
def test_a_higher_priority_never_gives_less(total: int, asked: list[Asks], more: int) -> None:
    higher = [asked[0]._replace(priority=asked[0].priority + more), *asked[1:]]
    assert fair(total, *higher)["q0"] >= fair(total, *asked)["q0"] - 1


@given(st.integers(0, 24), siblings(), siblings())
def test_children_divide_what_their_parent_is_due(
    total: int, first: list[Asks], second: list[Asks]
) -> None:
    item = [asks._replace(name=f"a-{asks.name}", parent="a") for asks in first]
    two = [asks._replace(name=f"b-{asks.name}", parent="b") for asks in second]
    accounts = divided(total, Asks("a", 0, quota=4), Asks("b", 0, quota=4, weight=2), *item, *two)
    for parent, children in (("a", item), ("b", two)):
        due = accounts.by_name[parent].fair[amounts.GPU] / WHOLE
        mine = {
            asks.name: accounts.by_name[asks.name].fair[amounts.GPU] / WHOLE for asks in children
        }
        assert mine == {name: float(part) for name, part in oracle(int(due), children).items()}


@given(st.integers(0, 24), siblings(), st.data())
def test_the_order_of_queues_does_not_matter(
    total: int, asked: list[Asks], data: st.DataObject
) -> None:
    mixed = data.draw(st.permutations(asked))
    assert fair(total, *mixed) == fair(total, *asked)


# By hand


def test_quota_first_then_weights() -> None:
    assert fair(10, Asks("a", 10, quota=2, weight=1), Asks("b", 10, quota=2, weight=2)) == {
        "a": 4,
        "b": 6,
    }


def test_what_one_does_not_want_goes_to_the_others() -> None:
    assert fair(9, Asks("a", 1), Asks("b", 9), Asks("c", 9)) == {"a": 1, "b": 4, "c": 4}


def test_of_what_cannot_be_divided_the_older_queue_has_one_more() -> None:
    assert fair(3, Asks("young", 9, age=5), Asks("old", 9, age=1)) == {"young": 1, "old": 2}


def test_the_example_of_the_documentation() -> None:
    asked = (Asks("a", 10, quota=2), Asks("b", 10, quota=2, weight=2), Asks("c", 1))
    assert fair(10, *asked) == {"a": 3, "b": 6, "c": 1}


def test_higher_bands_come_first() -> None:
    assert fair(6, Asks("a", 4, priority=1), Asks("b", 9)) == {"a": 4, "b": 2}


def test_without_weight_there_is_nothing_beyond_the_quota() -> None:
    assert fair(6, Asks("a", 9, quota=1, weight=0), Asks("b", 9)) == {"a": 1, "b": 5}


def test_what_may_be_had_is_the_larger_of_quota_and_share_within_the_limit() -> None:
    accounts = divided(
        10, Asks("a", 1, quota=4), Asks("b", 20, quota=1, limit=6), Asks("c", 1, quota=None)
    )
    assert accounts.by_name["a"].allocatable[amounts.GPU] == 4 * WHOLE
    assert accounts.by_name["b"].allocatable[amounts.GPU] == 6 * WHOLE
    assert accounts.by_name["c"].allocatable[amounts.GPU] == math.inf

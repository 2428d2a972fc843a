"""Properties on random clusters: where stated runtimes are true, a promise moves later only for what outranks it."""

from __future__ import annotations

import datetime
import itertools

import hypothesis
import pytest
from hypothesis import strategies as st

from dovetail.schedule.backfill import runtimes
from tests.backfill.timed_cluster import NOON, TimedCluster, Work

pytestmark = pytest.mark.slow
MINUTE = 60


@st.composite
def works(draw: st.DrawFn, *, priorities: tuple[int, ...] = (0,)) -> list[Work]:
    """Work that arrives within an hour, takes no longer than it says, or says nothing."""
    result = []
    for number in range(draw(st.integers(3, 10))):
        stated = draw(st.integers(1, 40))
        is_silent = draw(st.integers(0, 9)) == 0
        result.append(
            Work(
                name=f"w{number}",
                pods=draw(st.sampled_from((1, 1, 1, 2, 3))),
                gpus=draw(st.sampled_from((1, 1, 2, 3, 4))),
                seconds=draw(st.integers(1, stated)) * MINUTE,
                states=None if is_silent else stated * MINUTE,
                at=draw(st.integers(0, 60)),
                priority=draw(st.sampled_from(priorities)),
            )
        )
    return result


@hypothesis.settings(max_examples=25, derandomize=True)
@hypothesis.given(works(), st.integers(1, 4), st.sampled_from((1, 4, 8)))
def test_no_backfilled_work_moves_a_promise_later(
    drawn: list[Work], nodes: int, promises: int
) -> None:
    timed = TimedCluster(nodes=nodes, gpus=4, promises=promises).arrive(*drawn)
    timed.go_on()
    for name, messages in timed.promised.items():
        starts = [message.start for message in messages if message.start is not None]
        assert starts == sorted(starts, reverse=True), (
            name,
            [(message.start, message.cause) for message in messages],
        )
        began = timed.started(name)
        if starts:
            assert began is not None
            assert NOON.timestamp() + began * MINUTE <= starts[0].timestamp()


@hypothesis.settings(max_examples=25, derandomize=True)
@hypothesis.given(works(priorities=(0, 0, 50)), st.integers(1, 2))
def test_a_promise_that_moves_later_names_its_cause(drawn: list[Work], nodes: int) -> None:
    timed = TimedCluster(nodes=nodes, gpus=4).arrive(*drawn)
    timed.go_on()
    late = datetime.timedelta(seconds=runtimes.LATE_SECONDS)
    for name, messages in timed.promised.items():
        dated = [
            (turn, one)
            for turn, one in zip(timed.turns[name], messages, strict=True)
            if one.start is not None
        ]
        for (first, before), (second, after) in itertools.pairwise(dated):
            assert before.start is not None
            assert after.start is not None
            is_same = second == first + 1  # else it started meanwhile, and was evicted
            if is_same and after.start > before.start + late:
                assert after.moved_from == before.start
                assert after.cause
                assert (
                    "less is free" not in after.cause
                )  # no work ran longer than stated: other work took the place


@hypothesis.settings(max_examples=8, derandomize=True)
@hypothesis.given(works(), st.integers(1, 3))
def test_the_same_yard_goes_on_the_same_way(drawn: list[Work], nodes: int) -> None:
    item, other = (TimedCluster(nodes=nodes, gpus=4).arrive(*drawn).go_on() for _ in range(2))
    assert item.promised == other.promised
    assert item.course.started == other.course.started

"""When a write that keeps failing is abandoned, and when it is retried."""

from __future__ import annotations

import math

import pytest

from dovetail.live.bind import write_retry
from dovetail.ports import failures

NEVER = -math.inf


def failing(
    failure: failures.ApiFailure, *, seconds: float, every: float = 5.0, others_at: float = NEVER
) -> bool:
    """Whether a write is given up that fails like this for so long."""
    tries = write_retry.Attempts()
    now = 0.0
    while now <= seconds:
        tries.failed(failure, now)
        now += every
    return tries.are_over(now, others_succeeded_at=others_at)


@pytest.mark.parametrize("status", [409, 500])
def test_the_same_answer_while_others_succeed_is_for_good_after_a_minute(status: int) -> None:
    failure = failures.Unavailable("no", status=status)
    assert failing(failure, seconds=60, others_at=30)
    assert not failing(failure, seconds=40, others_at=30)
    assert not failing(failure, seconds=60)
    assert not failing(failure, seconds=60, every=20.0, others_at=30)  # three times say nothing yet


@pytest.mark.parametrize("status", sorted(write_retry.PASSING))
def test_a_server_that_is_away_or_overloaded_refuses_nothing(status: int) -> None:
    failure = failures.Unavailable("not now", status=status)
    assert not failing(failure, seconds=10_000)
    assert not failing(failure, seconds=60, others_at=60)
    assert failing(
        failure, seconds=write_retry.LONGEST_SECONDS, others_at=60
    )  # others are served all the while


def test_answers_that_differ_each_time_end_too() -> None:
    tries = write_retry.Attempts()
    for second in range(0, int(write_retry.LONGEST_SECONDS), 5):
        tries.failed(
            failures.Conflict(f"another writer stored version {second}", status=409), second
        )
        assert not tries.are_over(second, others_succeeded_at=second)
    assert tries.are_over(write_retry.LONGEST_SECONDS, others_succeeded_at=NEVER)


def test_what_never_failed_is_not_over() -> None:
    assert not write_retry.Attempts().are_over(1e9, others_succeeded_at=1e9)


def test_the_verdict_says_how_often_for_how_long_and_what_the_server_said() -> None:
    tries = write_retry.Attempts()
    for second in (0.0, 30.0, 60.0):
        tries.failed(failures.Unavailable("500: no", status=500), second)
    verdict = tries.verdict(62.0)
    assert isinstance(verdict, failures.Refused)
    assert str(verdict) == "tried 3 times in 62 s, the last answer: 500: no"

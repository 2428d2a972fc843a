"""Work that runs longer than it states: its statement gives others a start time, and lets nothing run ahead."""

from __future__ import annotations

import pytest

from tests.backfill.__main__ import drawn, overtaken
from tests.backfill.timed_cluster import TimedCluster, Work


def liar(name: str, gpus: int, *, at: int, pods: int = 1) -> Work:
    """A work that says it takes a minute, and never ends."""
    return Work(name=name, pods=pods, gpus=gpus, seconds=None, states=60, at=at, is_bounded=False)


def honest(name: str, gpus: int, minutes: int, *, at: int = 0, **more: int) -> Work:
    """A work that ends when it says, and would be ended then."""
    return Work(
        name=name, pods=1, gpus=gpus, seconds=minutes * 60, states=minutes * 60, at=at, **more
    )


def test_a_runtime_that_is_not_enforced_lets_no_pod_run_ahead() -> None:
    """Half of the node is free until the head starts; a minute that is only expected does not count."""
    timed = TimedCluster(gpus=8).arrive(
        honest("first", 4, 30),
        honest("head", 8, 60, at=1),
        liar("liar", 4, at=2),
        honest("short", 4, 20, at=3),
    )
    timed.go_on(200)
    assert timed.started("short") == 3
    assert timed.started("head") == 30
    assert timed.started("liar") == 90


def test_two_pods_that_each_fit_next_to_a_promise_do_not_both_start() -> None:
    """Each leaves six GPUs to the head if the other ends when it says; neither does."""
    timed = TimedCluster(gpus=8).arrive(
        honest("first", 4, 30),
        honest("head", 6, 60, at=1),
        liar("one", 2, at=2),
        liar("other", 2, at=10),
    )
    timed.go_on(80)
    assert timed.started("one") == 2
    assert timed.started("other") is None
    assert timed.started("head") == 30


def test_two_that_come_together_do_not_start_both_either() -> None:
    """The same in one decision."""
    timed = TimedCluster(gpus=8).arrive(
        honest("first", 4, 30),
        honest("head", 6, 60, at=1),
        liar("one", 2, at=2),
        liar("other", 2, at=2),
    )
    timed.go_on(80)
    assert [timed.started(name) for name in ("one", "other")].count(None) == 1
    assert timed.started("head") == 30


def test_pods_that_ran_before_a_promise_still_give_it_a_start_time() -> None:
    """An expected runtime is no licence, but it is a forecast: the head is promised the first's expected end."""
    first = Work(name="first", pods=1, gpus=4, seconds=1800, states=1800, is_bounded=False)
    timed = TimedCluster(gpus=4).arrive(first, honest("head", 4, 60, at=1))
    timed.go_on()
    assert timed.starts("head") == [30]
    assert timed.started("head") == 30


@pytest.mark.parametrize("seed", range(12))
def test_promises_made_before_the_liars_came_are_kept(seed: int) -> None:
    """Random yards in which the second half of the work says when it ends, and does not."""
    assert [*overtaken(drawn(seed, is_ranked=False, are_liars=True))] == []

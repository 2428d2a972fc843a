"""Stories about promises: who is promised what, who runs ahead, and what moves a promise."""

from __future__ import annotations

import pytest

from tests.backfill.yard import Work, Yard
from tests.batch import stories

HOUR = 3600


def work(name: str, gpus: int, minutes: int | None = None, *, pods: int = 1, **more: int | str | None) -> Work:
    """A work that tells the truth, unless told otherwise."""
    seconds = None if minutes is None else minutes * 60
    facts = {"seconds": seconds, "states": seconds} | more
    return Work(name=name, pods=pods, gpus=gpus, **facts)  # type: ignore[arg-type]


def test_the_textbook_case_of_easy_backfilling() -> None:
    """Four processors; the head needs all of them at ten; a short job runs ahead, a long one does not."""
    yard = Yard(gpus=4).arrive(
        work("running", 2, 10),
        work("head", 4, 10, at=1),
        work("long", 2, 30, at=2),
        work("short", 2, 7, at=3),
    )
    yard.go_on()
    assert yard.starts("head") == [10]
    assert yard.started("short") == 3
    assert yard.started("head") == 10
    assert yard.started("long") == 20


def test_what_lasts_longer_runs_ahead_beside_what_is_promised() -> None:
    """The head needs three of four GPUs: one that is left over is nobody's, for however long."""
    yard = Yard(gpus=4).arrive(work("running", 3, 10), work("head", 3, 10, at=1), work("long", 1, 300, at=2))
    yard.go_on()
    assert yard.started("long") == 2
    assert yard.started("head") == 10


def test_work_without_a_runtime_takes_only_what_is_not_promised() -> None:
    yard = Yard(gpus=4).arrive(
        work("running", 2, 10), work("head", 3, 10, at=1), work("silent-a", 1, at=2), work("silent-b", 1, at=3)
    )
    yard.go_on(9)
    assert yard.started("silent-a") == 2
    assert yard.started("silent-b") is None
    yard.go_on()
    assert yard.started("head") == 10


def test_without_promises_the_head_may_wait_for_ever() -> None:
    """The same line with promises off: whoever fits goes first."""
    yard = Yard(gpus=4, promises=0).arrive(
        work("running", 2, 10), work("head", 4, 10, at=1), *(work(f"ahead-{n}", 2, 10, at=2 + 5 * n) for n in range(4))
    )
    yard.go_on(20)
    assert yard.started("head") is None
    assert yard.promised == {}


def test_a_gang_is_promised_nodes_for_all_its_pods_or_nothing() -> None:
    yard = Yard(nodes=2, gpus=2).arrive(
        work("one", 2, 10), work("two", 2, 20), work("gang", 2, 10, pods=2, at=1), work("ahead", 2, 12, at=2)
    )
    yard.go_on(9)
    assert yard.starts("gang") == [20]
    assert {seat.node for seat in yard.promised["gang"][-1].seats} == {"n0", "n1"}
    assert len(yard.devices("gang")) == 4
    yard.go_on()
    assert yard.started("ahead") is not None
    assert yard.started("ahead") >= 10  # type: ignore[operator]
    assert yard.started("gang") == 20


def test_those_who_end_early_bring_a_promise_forward() -> None:
    yard = Yard(gpus=4).arrive(work("running", 4, 5, states=600), work("head", 4, 10, at=1))
    yard.go_on()
    assert yard.starts("head") == [10]
    assert yard.started("head") == 5


def test_a_holder_that_runs_longer_than_it_stated_moves_a_promise_and_is_named() -> None:
    yard = Yard(gpus=4).arrive(work("running", 4, 30, states=600), work("head", 4, 10, at=1))
    yard.go_on()
    first, last = yard.promised["head"][0], yard.promised["head"][-1]
    assert first.cause == ""
    assert first.moved_from is None
    assert "running" in last.cause
    assert "longer than it stated" in last.cause
    assert last.moved_from is not None
    assert yard.started("head") == 30


def test_more_important_work_moves_a_promise_and_is_named() -> None:
    yard = Yard(gpus=4).arrive(
        work("running", 4, 10), work("head", 4, 10, at=1), work("urgent", 4, 10, at=2, priority=100)
    )
    yard.go_on(5)
    last = yard.promised["head"][-1]
    assert yard.starts("head")[-1] > 10
    assert "urgent" in last.cause
    assert "priority 100" in last.cause
    assert last.moved_from is not None


def test_a_lost_node_moves_a_promise_and_is_named() -> None:
    yard = Yard(nodes=2, gpus=2).arrive(work("one", 2, 10), work("two", 2, 20), work("head", 2, 10, at=1))
    yard.go_on(2)
    (node,) = {seat.node for seat in yard.promised["head"][-1].seats}
    assert yard.starts("head") == [10]
    yard.lose(node).go_on(3)
    assert yard.promised["head"][-1].cause == f"node {node} is gone"
    assert yard.starts("head") == [10, 20]


def test_a_head_nobody_can_know_anything_about_says_how_many_are_silent() -> None:
    yard = Yard(gpus=4).arrive(work("silent", 4), work("head", 2, 10, at=1))
    yard.go_on(5)
    assert {one.cause for one in yard.promised["head"]} == {"unbounded: 1 holder states no runtime"}
    assert all(one.start is None for one in yard.promised["head"])


def test_a_head_too_large_for_the_cluster_is_promised_nothing() -> None:
    yard = Yard(gpus=4).arrive(work("running", 4, 10), work("huge", 5, 10, at=1), work("other", 4, 10, at=2))
    yard.go_on()
    assert all(one.start is None and one.cause.startswith("never") for one in yard.promised["huge"])
    assert yard.started("other") == 10


@pytest.mark.parametrize("count", [1, 2, 3])
def test_so_many_are_promised_a_start_as_the_policy_says(count: int) -> None:
    heads = [work(f"head-{number}x", 4, 10, at=1 + number) for number in range(4)]
    yard = Yard(gpus=4, promises=count).arrive(work("running", 4, 60), *heads)
    yard.go_on(9)
    assert len(yard.promised) == count
    for number in range(count):
        assert yard.starts(f"head-{number}x") == [60 + 10 * number]


def test_who_waits_is_told_the_hour_beside_the_reason() -> None:
    yard = Yard(gpus=4).arrive(work("running", 4, 10), work("head", 4, 10, at=1)).go_on(2)
    (refusal,) = yard.course.plan.refusals
    assert refusal.summary.endswith("(needs 4); starts by 2026-06-01T12:10:00Z")
    silent = Yard(gpus=4).arrive(work("silent", 4), work("head", 2, 10, at=1)).go_on(2)
    (refusal,) = silent.course.plan.refusals
    assert refusal.summary.endswith("; its start is unbounded: 1 holder states no runtime")


def test_nobody_is_moved_into_what_is_promised() -> None:
    """What is free would do for the long one if others moved; the head would lose its node."""
    yard = Yard(nodes=2, gpus=2).arrive(
        work("one", 1, 10), work("two", 1, 10), work("head", 2, 10, pods=2, at=1), work("long", 2, 90, at=2)
    )
    yard.go_on()
    assert yard.starts("head") == [10]
    assert yard.started("head") == 10
    assert yard.course.evicted == []


def test_a_queue_within_its_quota_comes_before_what_was_promised_beyond_another() -> None:
    queues = [stories.queue("rich", gpu=4), stories.queue("poor", gpu=0)]
    yard = Yard(*stories.world().namespaces.values(), *queues, gpus=4)
    yard.arrive(work("running", 4, 10, queue="poor"), work("head", 4, 10, at=1, queue="poor")).go_on(2)
    assert yard.starts("head") == [10]
    yard.arrive(work("due", 4, 10, at=2, queue="rich")).go_on(2)
    moved = [one for one in yard.promised["head"] if one.moved_from is not None]
    assert moved[0].cause == "queue rich is due what default/pod/due-0 takes"
    assert yard.starts("head")[1] > 10

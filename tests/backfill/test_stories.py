"""Stories about promises: who is promised what, who runs ahead, and what moves a promise."""

from __future__ import annotations

import datetime

import pytest

from dovetail.schedule.backfill import runtimes
from tests.backfill.timed_cluster import TimedCluster, Work, after
from tests.batch import stories

HOUR = 3600


def work(
    name: str, gpus: int, minutes: int | None = None, *, pods: int = 1, **more: int | str | None
) -> Work:
    """A work whose stated runtime is true, by default."""
    seconds = None if minutes is None else minutes * 60
    facts = {"seconds": seconds, "states": seconds} | more
    return Work(name=name, pods=pods, gpus=gpus, **facts)  # type: ignore[arg-type]


def test_the_textbook_case_of_easy_backfilling() -> None:
    """Four processors; the head needs all of them at ten; a short job runs ahead, a long one does not."""
    timed = TimedCluster(gpus=4).arrive(
        work("running", 2, 10),
        work("head", 4, 10, at=1),
        work("long", 2, 30, at=2),
        work("short", 2, 7, at=3),
    )
    timed.go_on()
    assert timed.starts("head") == [10]
    assert timed.started("short") == 3
    assert timed.started("head") == 10
    assert timed.started("long") == 20


def test_longer_work_runs_ahead_next_to_the_promised_devices() -> None:
    """The head needs three of four GPUs: the one left over is not promised, for however long."""
    timed = TimedCluster(gpus=4).arrive(
        work("running", 3, 10), work("head", 3, 10, at=1), work("long", 1, 300, at=2)
    )
    timed.go_on()
    assert timed.started("long") == 2
    assert timed.started("head") == 10


def test_work_without_a_runtime_takes_only_what_is_not_promised() -> None:
    timed = TimedCluster(gpus=4).arrive(
        work("running", 2, 10),
        work("head", 3, 10, at=1),
        work("silent-a", 1, at=2),
        work("silent-b", 1, at=3),
    )
    timed.go_on(9)
    assert timed.started("silent-a") == 2
    assert timed.started("silent-b") is None
    timed.go_on()
    assert timed.started("head") == 10


def test_without_promises_the_head_may_wait_endlessly() -> None:
    """The same line with promises off: work that fits goes first."""
    timed = TimedCluster(gpus=4, promises=0).arrive(
        work("running", 2, 10),
        work("head", 4, 10, at=1),
        *(work(f"ahead-{n}", 2, 10, at=2 + 5 * n) for n in range(4)),
    )
    timed.go_on(20)
    assert timed.started("head") is None
    assert timed.promised == {}


def test_a_gang_that_falls_back_on_its_promise_still_has_its_devices() -> None:
    """`silent` looks for an earlier start and finds none; `next` must not have been given its two GPUs by then."""
    timed = TimedCluster(gpus=4, promises=8).arrive(
        work("running", 1, 4, pods=2, at=53),
        work("head", 3, 11, at=53, states=21 * 60),
        work("next", 2, 8, at=54, states=30 * 60),
        work("silent", 2, 8, at=54, states=None),
        work("ahead", 1, 22, at=56, states=26 * 60),
    )
    timed.go_on()
    assert timed.starts("silent") == [78]
    assert timed.starts("next") == [78]


def test_what_was_tried_and_taken_back_leaves_promises_where_they_were() -> None:
    """An eviction for `gang` is tried and rolled back: meanwhile `last` was given devices next to it."""
    timed = TimedCluster(gpus=4, promises=8).arrive(
        work("a", 1, 32, at=27, states=37 * 60),
        work("b", 1, 10, pods=2, at=33, states=24 * 60),
        work("c", 1, 4, at=34, states=12 * 60),
        work("d", 1, 18, at=34, states=27 * 60),
        work("gang", 1, 29, pods=3, at=35),
        work("last", 1, 35, at=49, states=38 * 60),
    )
    timed.go_on()
    assert timed.starts("gang") == [64]
    assert timed.starts("last")[0] == 65


def test_one_that_gave_way_without_being_later_passes_the_cause_on() -> None:
    """`nine` takes what `eleven` was promised, which finds room at the same hour where `three` was to be."""
    timed = TimedCluster(nodes=3, gpus=4).arrive(
        work("one", 3, 23, pods=2, at=5, states=34 * 60, priority=50),
        work("thirteen", 3, 10, pods=2, at=9, states=13 * 60),
        work("eleven", 2, 24, pods=3, at=14, states=37 * 60),
        work("three", 2, 6, at=22, states=7 * 60),
        work("twelve", 3, 18, at=26, states=36 * 60, priority=50),
        work("nine", 1, 29, at=31, states=31 * 60, priority=50),
    )
    timed.go_on(32)
    moved = timed.promised["three"][-1]
    nine = "default/pod/nine-0 of priority 50 comes first"
    assert moved.cause == f"default/gang/eleven, promised before it, moved: {nine}"


def test_what_could_start_at_once_and_was_found_out_late_is_asked_about_again_now() -> None:
    """When others leave early a promise comes forward to this very moment: ten seconds later others would pay."""
    timed = TimedCluster(nodes=2, gpus=4, promises=8).arrive(
        work("w0", 1, 20, pods=2, at=8, states=23 * 60),
        work("w1", 2, 22, pods=3, at=17),
        work("w2", 1, 8, at=15, states=10 * 60),
        work("w3", 3, 12, at=5, states=13 * 60),
        work("w6", 3, 1, at=28, states=38 * 60),
        work("w7", 3, 12, at=26, states=26 * 60),
        work("w8", 1, 4, pods=2, at=40, states=5 * 60),
        work("w10", 1, 14, at=37, states=35 * 60),
        work("w12", 3, 11, pods=2, at=18, states=21 * 60),
    )
    timed.go_on()
    assert timed.started("w10") == 43
    assert timed.starts("w8") == [80, 78]


def test_a_guess_stays_until_it_is_over() -> None:
    """Work that should have ended after ten minutes: it is expected to take a tenth more, and a tenth more of that."""
    began, stated = after(0), 600
    looks = {
        seconds: began + datetime.timedelta(seconds=seconds)
        for seconds in (605, 611, 640, 669, 671, 700)
    }
    ends = {
        seconds: (runtimes.ending(began, now, seconds=stated, most=None).at - began).total_seconds()
        for seconds, now in looks.items()
    }
    assert ends == {605: 605, 611: 660, 640: 660, 669: 669, 671: 726, 700: 726}


def test_a_gang_is_promised_nodes_for_all_its_pods_or_nothing() -> None:
    timed = TimedCluster(nodes=2, gpus=2).arrive(
        work("one", 2, 10),
        work("two", 2, 20),
        work("gang", 2, 10, pods=2, at=1),
        work("ahead", 2, 12, at=2),
    )
    timed.go_on(9)
    assert timed.starts("gang") == [20]
    assert {seat.node for seat in timed.promised["gang"][-1].seats} == {"n0", "n1"}
    assert len(timed.devices("gang")) == 4
    timed.go_on()
    assert timed.started("ahead") is not None
    assert timed.started("ahead") >= 10  # type: ignore[operator]
    assert timed.started("gang") == 20


def test_those_who_end_early_bring_a_promise_forward() -> None:
    timed = TimedCluster(gpus=4).arrive(
        work("running", 4, 5, states=600), work("head", 4, 10, at=1)
    )
    timed.go_on()
    assert timed.starts("head") == [10]
    assert timed.started("head") == 5


def test_a_holder_that_runs_longer_than_it_stated_moves_a_promise_and_is_named() -> None:
    timed = TimedCluster(gpus=4).arrive(
        work("running", 4, 30, states=600, is_bounded=False), work("head", 4, 10, at=1)
    )
    timed.go_on()
    first, last = timed.promised["head"][0], timed.promised["head"][-1]
    assert first.cause == ""
    assert first.moved_from is None
    assert "running" in last.cause
    assert "longer than it stated" in last.cause
    assert last.moved_from is not None
    assert timed.started("head") == 30


def test_more_important_work_moves_a_promise_and_is_named() -> None:
    timed = TimedCluster(gpus=4).arrive(
        work("running", 4, 10), work("head", 4, 10, at=1), work("urgent", 4, 10, at=2, priority=100)
    )
    timed.go_on(5)
    last = timed.promised["head"][-1]
    assert timed.starts("head")[-1] > 10
    assert "urgent" in last.cause
    assert "priority 100" in last.cause
    assert last.moved_from is not None


def test_a_lost_start_time_is_reported_with_its_cause_until_there_is_another() -> None:
    """How long the urgent one takes is unknown; the head's lost start time, and what took it, stay on record."""
    timed = TimedCluster(gpus=4).arrive(work("running", 4, 10), work("head", 4, 10, at=1)).go_on(1)
    timed.arrive(work("urgent", 4, 30, at=2, states=None, priority=100)).go_on(5)
    timed.arrive(work("later", 1, 1, at=6)).go_on(7)
    lost = timed.promised["head"][-1]
    assert (lost.start, lost.moved_from) == (None, after(10))
    assert lost.cause == "unbounded: 1 holder states no runtime"
    assert lost.lost_to == "default/pod/urgent-0 of priority 100 comes first"
    messages = next(
        refusal.summary for refusal in timed.course.plan.refusals if refusal.pod.name == "head-0"
    )
    assert messages.endswith(
        f"; its start is {lost.cause}, instead of 2026-06-01T12:10:00Z: {lost.lost_to}"
    )


def test_a_start_time_the_queue_can_no_longer_pay_for_is_lost() -> None:
    world = stories.world()
    timed = TimedCluster(
        *world.namespaces.values(), stories.queue("team", {"gpu": {"limit": 8}}, gpu=4), gpus=4
    )
    timed.arrive(
        work("running", 4, 10, queue="team"), work("head", 4, 10, at=1, queue="team")
    ).go_on(1)
    assert timed.starts("head") == [10]
    timed.course.submit(stories.queue("team", {"gpu": {"limit": 4}}, gpu=4))
    timed.go_on(3)
    lost = timed.promised["head"][-1]
    assert (lost.start, lost.moved_from, lost.lost_to) == (
        None,
        after(10),
        "queue team takes no more",
    )
    timed.course.submit(stories.queue("team", {"gpu": {"limit": 8}}, gpu=4))
    timed.go_on(5)
    assert timed.promised["head"][-1].start == after(10)
    assert timed.promised["head"][-1].cause == ""


def test_a_lost_node_moves_a_promise_and_is_named() -> None:
    timed = TimedCluster(nodes=2, gpus=2).arrive(
        work("one", 2, 10), work("two", 2, 20), work("head", 2, 10, at=1)
    )
    timed.go_on(2)
    (node,) = {seat.node for seat in timed.promised["head"][-1].seats}
    assert timed.starts("head") == [10]
    timed.lose(node).go_on(3)
    assert timed.promised["head"][-1].cause == f"node {node} is gone"
    assert timed.starts("head") == [10, 20]


def test_a_first_gang_without_a_known_start_says_how_many_pods_state_no_runtime() -> None:
    timed = TimedCluster(gpus=4).arrive(work("silent", 4), work("head", 2, 10, at=1))
    timed.go_on(5)
    assert {item.cause for item in timed.promised["head"]} == {
        "unbounded: 1 holder states no runtime"
    }
    assert all(item.start is None for item in timed.promised["head"])


def test_a_head_too_large_for_the_cluster_is_promised_nothing() -> None:
    timed = TimedCluster(gpus=4).arrive(
        work("running", 4, 10), work("huge", 5, 10, at=1), work("other", 4, 10, at=2)
    )
    timed.go_on()
    assert all(
        item.start is None and item.cause.startswith("never") for item in timed.promised["huge"]
    )
    assert timed.started("other") == 10


@pytest.mark.parametrize("count", [1, 2, 3])
def test_so_many_are_promised_a_start_as_the_policy_says(count: int) -> None:
    heads = [work(f"head-{number}x", 4, 10, at=1 + number) for number in range(4)]
    timed = TimedCluster(gpus=4, promises=count).arrive(work("running", 4, 60), *heads)
    timed.go_on(9)
    assert len(timed.promised) == count
    for number in range(count):
        assert timed.starts(f"head-{number}x") == [60 + 10 * number]


def test_a_pending_gang_shows_its_start_time_next_to_the_reason() -> None:
    timed = TimedCluster(gpus=4).arrive(work("running", 4, 10), work("head", 4, 10, at=1)).go_on(2)
    (refusal,) = timed.course.plan.refusals
    assert refusal.summary.endswith("(needs 4); starts by 2026-06-01T12:10:00Z")
    silent = TimedCluster(gpus=4).arrive(work("silent", 4), work("head", 2, 10, at=1)).go_on(2)
    (refusal,) = silent.course.plan.refusals
    assert refusal.summary.endswith("; its start is unbounded: 1 holder states no runtime")


def test_no_pod_is_moved_onto_promised_devices() -> None:
    """What is free would do for the long one if others moved; the head would lose its node."""
    timed = TimedCluster(nodes=2, gpus=2).arrive(
        work("one", 1, 10),
        work("two", 1, 10),
        work("head", 2, 10, pods=2, at=1),
        work("long", 2, 90, at=2),
    )
    timed.go_on()
    assert timed.starts("head") == [10]
    assert timed.started("head") == 10
    assert timed.course.evicted == []


def test_a_queue_within_its_quota_comes_before_what_was_promised_beyond_another() -> None:
    queues = [stories.queue("rich", gpu=4), stories.queue("poor", gpu=0)]
    timed = TimedCluster(*stories.world().namespaces.values(), *queues, gpus=4)
    timed.arrive(
        work("running", 4, 10, queue="poor"), work("head", 4, 10, at=1, queue="poor")
    ).go_on(2)
    assert timed.starts("head") == [10]
    timed.arrive(work("due", 4, 10, at=2, queue="rich")).go_on(2)
    moved = [item for item in timed.promised["head"] if item.moved_from is not None]
    assert moved[0].cause == "queue rich is due what default/pod/due-0 takes"
    assert timed.starts("head")[1] > 10

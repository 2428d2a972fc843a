"""The cost of a decision grows no faster than its input: executed lines of the scheduler are counted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from dovetail.model import policy
from dovetail.world.world import World
from tests.batch import stories
from tests.schedule import build

SMALL = 60


def lines_of(work: Callable[[], object]) -> int:
    """How many lines of the package are executed, every round of a loop counted."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        nonlocal count
        if "dovetail" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def ground(size: int) -> World:
    machines = [stories.plugin_node(f"n{index}", size // 4) for index in range(4)]
    return stories.world(*machines, stories.queue("a", gpu=size))


def elastic(size: int) -> World:
    world = ground(size)
    for index in range(size):
        build.put(world, stories.member(f"p{index:04d}", "a", "sweep", 1, gpus=1))
    return world


def whole(size: int) -> World:
    world = ground(size)
    for index in range(size):
        build.put(world, stories.member(f"p{index:04d}", "a", "whole", size, gpus=1))
    return world


def groups(size: int) -> World:
    world = ground(size)
    for index in range(size):
        labels = {"dovetail.dev/gang-group": f"g{index:04d}"}
        build.put(world, stories.member(f"p{index:04d}", "a", "groups", 1, gpus=1, labels=labels))
    return world


@pytest.mark.parametrize("shape", [elastic, whole, groups])
def test_a_gang_twice_as_large_takes_twice_as_long(shape: Callable[[int], World]) -> None:
    taken = []
    for size in (SMALL, 2 * SMALL):
        world = shape(size)
        done: list[Any] = []
        taken.append(lines_of(lambda world=world, done=done: done.append(stories.decided(world))))
        assert len(done[0].placements) == size
    assert taken[1] < 2.2 * taken[0]


def crowd(size: int) -> World:
    """Equal pods of one queue, and no room for any."""
    world = stories.world(stories.plugin_node("n0", 1), stories.queue("a", gpu=1))
    for index in range(size):
        build.put(world, stories.pod(f"p{index:05d}", "a", gpus=2, age=9000))
    return world


def test_a_bounded_decision_costs_no_more_because_more_wait() -> None:
    """But for taking notice of them, once."""
    taken = []
    for size in (3_000, 6_000):
        world = crowd(size)
        budget = policy.Budget(steps=1000)
        for _ in range(4):
            stories.decided(world, budget=budget)
        taken.append(
            lines_of(lambda world=world, budget=budget: stories.decided(world, budget=budget))
        )
    assert taken[1] < 1.3 * taken[0]


def test_every_pod_of_many_gets_the_reason_why_it_is_pending() -> None:
    world = crowd(3_000)
    names: set[str] = set()
    for _ in range(40):
        done = stories.decided(world, budget=policy.LIVE)
        names |= {refusal.pod.name for refusal in done.refusals if not refusal.is_undecided}
        assert len(done.refusals) <= 2_100
        if done.wake_at != stories.NOW:
            break
    else:
        raise AssertionError("it never ends")
    assert len(names) == 3_000


def test_a_queue_asks_for_what_its_whole_crowd_waits_for() -> None:
    world = crowd(3_000)
    whole = stories.decided(world).queues["a"]
    for _ in range(4):
        seen = stories.decided(world, budget=policy.LIVE).queues["a"]
    assert seen == whole


def test_the_last_of_a_crowd_gets_what_only_it_can_use() -> None:
    world = crowd(5_000)
    build.put(world, stories.pod("small", "a", gpus=1, age=1))
    for _ in range(40):
        if "small" in stories.started(stories.decided(world, budget=policy.LIVE)):
            return
    raise AssertionError("the last in line never had a turn")

"""What a decision costs grows with what it is about and no faster: lines of the scheduler's own code are counted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

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
    made = ground(size)
    for index in range(size):
        build.put(made, stories.member(f"p{index:04d}", "a", "sweep", 1, gpus=1))
    return made


def whole(size: int) -> World:
    made = ground(size)
    for index in range(size):
        build.put(made, stories.member(f"p{index:04d}", "a", "whole", size, gpus=1))
    return made


def groups(size: int) -> World:
    made = ground(size)
    for index in range(size):
        labels = {"dovetail.dev/gang-group": f"g{index:04d}"}
        build.put(made, stories.member(f"p{index:04d}", "a", "groups", 1, gpus=1, labels=labels))
    return made


@pytest.mark.parametrize("shape", [elastic, whole, groups])
def test_a_gang_twice_as_large_takes_twice_as_long(shape: Callable[[int], World]) -> None:
    taken = []
    for size in (SMALL, 2 * SMALL):
        world = shape(size)
        done: list[Any] = []
        taken.append(lines_of(lambda world=world, done=done: done.append(stories.decided(world))))
        assert len(done[0].placements) == size
    assert taken[1] < 2.2 * taken[0]

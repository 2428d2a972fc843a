"""A decision that ends before everybody had a turn: the next goes on, and meanwhile nobody yields."""

from __future__ import annotations

from dovetail.model import policy
from tests.batch import stories
from tests.schedule import build


def test_the_next_turn_goes_on_and_nobody_yields_before_all_that_is_free_is_given() -> None:
    made = stories.world(stories.plugin_node("n0", 6), stories.queue("a", gpu=6))
    build.put(made, stories.pod("runs", "a", gpus=1, node="n0"))
    for index in range(5):
        build.put(made, stories.pod(f"p{index}", "a", gpus=1, age=600 - index))
    build.put(made, stories.pod("large", "a", gpus=6, priority=10, age=10))
    first = stories.decided(made, budget=policy.Budget(pods=3))
    assert sorted(stories.started(first)) == ["p0", "p1", "p2"]
    assert stories.evicted(first) == {}
    assert {one.pod.name for one in first.refusals if one.is_undecided} == {"p3", "p4"}


def test_a_gang_is_never_too_large_for_a_turn() -> None:
    made = stories.world(stories.plugin_node("n0", 8), stories.queue("a", gpu=8))
    for index in range(4):
        build.put(made, stories.member(f"p{index}", "a", "big", 4, gpus=1))
    done = stories.decided(made, budget=policy.Budget(pods=2))
    assert len(stories.started(done)) == 4

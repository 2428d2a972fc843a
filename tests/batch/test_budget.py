"""A decision that ends before every gang had a turn: the next one goes on, and meanwhile no pod is evicted."""

from __future__ import annotations

from typing import Any

from dovetail.kubetypes.core import pods
from dovetail.model import plan, policy
from dovetail.world.events import Changed
from dovetail.world.world import World
from tests.batch import stories
from tests.schedule import build


def test_the_next_cycle_continues_and_evicts_only_after_free_capacity_is_used() -> None:
    world = stories.world(stories.plugin_node("n0", 6), stories.queue("a", gpu=6))
    build.put(world, stories.pod("runs", "a", gpus=1, node="n0"))
    for index in range(5):
        build.put(world, stories.pod(f"p{index}", "a", gpus=1, age=600 - index))
    build.put(world, stories.pod("large", "a", gpus=6, priority=10, age=10))
    first = stories.decided(world, budget=policy.Budget(pods=3))
    assert sorted(stories.started(first)) == ["p0", "p1", "p2"]
    assert stories.evicted(first) == {}
    assert {refusal.pod.name for refusal in first.refusals if refusal.is_undecided} == {"p3", "p4"}


def test_a_gang_is_never_too_large_for_a_turn() -> None:
    world = stories.world(stories.plugin_node("n0", 8), stories.queue("a", gpu=8))
    for index in range(4):
        build.put(world, stories.member(f"p{index}", "a", "big", 4, gpus=1))
    done = stories.decided(world, budget=policy.Budget(pods=2))
    assert len(stories.started(done)) == 4


def rounds(world: World, budget: policy.Budget, most: int = 60) -> list[plan.Plan]:
    """Decision after decision until one is not to be carried on; what starts is bound meanwhile."""
    plans = []
    for _ in range(most):
        plans.append(stories.decided(world, budget=budget))
        build.carried_out(world, plans[-1])
        if plans[-1].wake_at != stories.NOW and not plans[-1].undecided:
            return plans
    raise AssertionError("it never ends")


def test_what_is_beyond_the_minimum_of_a_gang_is_carried_on_in_the_next_turn() -> None:
    world = stories.world(stories.plugin_node("n0", 8), stories.queue("a", gpu=8))
    for index in range(7):
        build.put(world, stories.member(f"p{index}", "a", "sweep", 2, gpus=1))
    first = stories.decided(world, budget=policy.Budget(pods=3))
    assert sorted(stories.started(first)) == ["p0", "p1", "p2"]
    assert {refusal.pod.name for refusal in first.refusals if refusal.is_undecided} == {
        "p3",
        "p4",
        "p5",
        "p6",
    }
    build.carried_out(world, first)
    second = stories.decided(world, budget=policy.Budget(pods=3))
    assert sorted(stories.started(second)) == ["p3", "p4", "p5"]


def crowded(waiting: int) -> World:
    """One node with room for one small pod, behind many that are too large, each of another size."""
    world = stories.world(
        build.node("n0", allocatable={"cpu": "2"}), stories.queue("a", {"cpu": {"quota": 99}})
    )
    for index in range(waiting):
        large = [{"name": "main", "resources": {"requests": {"cpu": f"{3000 + index}m"}}}]
        build.put(world, sized(f"large{index:03d}", large, age=9000 - index))
    build.put(
        world, sized("small", [{"name": "main", "resources": {"requests": {"cpu": "1"}}}], age=10)
    )
    return world


def sized(name: str, containers: list[dict[str, Any]], *, age: int) -> pods.Pod:
    labels = {"dovetail.dev/queue": "a"}
    metadata = {"labels": labels, "ownerReferences": [stories.OWNER]}
    return build.pod(name, metadata=metadata, containers=containers, created=stories.stamp(age))


def test_every_gang_has_a_turn_though_the_first_ones_never_fit() -> None:
    world = crowded(40)
    budget = policy.Budget(steps=200)
    plans = rounds(world, budget)
    assert len(plans) > 3
    assert [name for done in plans for name in stories.started(done)] == ["small"]
    names = {
        refusal.pod.name for done in plans for refusal in done.refusals if not refusal.is_undecided
    }
    assert names == {f"large{index:03d}" for index in range(40)}


def test_every_gang_has_a_turn_however_often_something_changes() -> None:
    world = crowded(40)
    for turn in range(60):
        done = stories.decided(world, budget=policy.Budget(steps=200))
        if "small" in stories.started(done):
            return
        build.put(
            world,
            stories.pod(f"new{turn}", "a", priority=5, age=1, schedulingGates=[{"name": "wait"}]),
        )
    raise AssertionError("the last in line never had a turn")


def test_a_round_in_which_something_changed_is_followed_by_another() -> None:
    world = crowded(40)
    first = stories.decided(world, budget=policy.Budget(steps=200))
    assert first.wake_at == stories.NOW
    world.apply(
        Changed(build.node("n1", allocatable={"cpu": "4"}))
    )  # the first that were refused fit there
    plans = rounds(world, policy.Budget(steps=200))
    assert {"large000", "small"} <= {name for done in plans for name in stories.started(done)}


def test_a_bounded_decision_that_reaches_every_gang_is_the_unbounded_one() -> None:
    world = crowded(10)
    assert stories.decided(world, budget=policy.Budget(steps=100_000)) == stories.decided(world)


def test_a_gang_that_may_evict_others_has_a_turn_too() -> None:
    world = stories.world(
        *(stories.plugin_node(f"n{index}", 4) for index in range(4)), stories.queue("a", gpu=16)
    )
    for index in range(16):
        build.put(world, stories.pod(f"runs{index:02d}", "a", gpus=1, node=f"n{index % 4}"))
    for index in range(6):
        build.put(
            world, stories.pod(f"urgent{index}", "a", gpus=2, priority=10 + index, age=600 - index)
        )
    first = stories.decided(world, budget=policy.Budget(steps=1000))
    assert 0 < len(stories.nominated(first)) < 6
    assert first.wake_at == stories.NOW
    started: set[str] = set()
    for _ in range(30):
        done = stories.decided(world, budget=policy.Budget(steps=1000))
        started |= stories.started(done).keys()
        stories.carried_out(world, done)
    assert {f"urgent{index}" for index in range(6)} <= started


def test_a_gang_too_large_for_the_steps_of_a_cycle_may_still_evict_others() -> None:
    world = stories.world(
        *(stories.plugin_node(f"n{index}", 4) for index in range(2)), stories.queue("a", gpu=8)
    )
    for index in range(8):
        build.put(world, stories.pod(f"runs{index}", "a", gpus=1, node=f"n{index % 2}"))
    for index in range(8):
        build.put(world, stories.member(f"p{index}", "a", "big", 8, gpus=1, priority=10))
    for _ in range(5):
        done = stories.decided(world, budget=policy.Budget(steps=100))
        if len(stories.nominated(done)) == 8:
            return
    raise AssertionError("it never starts")

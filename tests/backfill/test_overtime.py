"""Work that ran for longer than it may, by its own word or its queue's, yields: all of it, to no beneficiary."""

from __future__ import annotations

import datetime
from typing import Any

from dovetail.model import gangs, plan, policy, workload_annotations
from dovetail.schedule import decide
from dovetail.world.world import World
from tests.backfill.timed_cluster import NOON, OWNER
from tests.batch import stories
from tests.schedule import build


def running(
    name: str,
    minutes: int,
    *,
    gang: str = "",
    queue: str = "",
    most: int | None = None,
    **spec: Any,
) -> Any:
    """A pod that runs for so long."""
    labels = {gangs.GANG_LABEL: gang, gangs.MIN_LABEL: "2"} if gang else {}
    labels |= {gangs.QUEUE_LABEL: queue} if queue else {}
    notes = {workload_annotations.MAX_RUNTIME: f"{most}m"} if most is not None else {}
    began = (NOON - datetime.timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata = {"labels": labels, "annotations": notes, "ownerReferences": [OWNER]}
    status = {"phase": "Running", "startTime": began}
    return build.pod(name, nodeName="n0", metadata=metadata, status=status, **spec)


def decided(world: World, **options: Any) -> plan.Plan:
    return decide.decide(world, policy.DEFAULT, NOON, **options)


def ended(decision: plan.Plan) -> list[str]:
    assert all(
        eviction.rule is plan.Rule.OVERTIME and eviction.beneficiary is None
        for eviction in decision.evictions
    )
    return sorted(eviction.pod.name for eviction in decision.evictions)


def test_a_gang_that_ran_out_its_time_ends_as_a_whole() -> None:
    world = build.world(
        running("a-0", 61, gang="a", most=60), running("a-1", 50, gang="a", most=60), nodes=1
    )
    decision = decided(world)
    assert ended(decision) == ["a-0", "a-1"]
    assert decision.evictions[0].detail == "it ran for the 3600 s it states as its longest"


def test_a_gang_that_has_time_left_is_asked_about_again_when_it_is_over() -> None:
    decision = decided(build.world(running("a-0", 45, most=60), nodes=1))
    assert ended(decision) == []
    assert decision.wake_at == NOON + datetime.timedelta(minutes=15)


def test_a_queue_says_how_long_its_work_may_run_and_so_does_the_one_above() -> None:
    above = stories.queue("above", max_runtime_seconds=1800)
    below = stories.queue("below", parent="above")
    world = stories.world(
        build.node("n0"),
        above,
        below,
        running("old", 31, queue="below"),
        running("new", 1, queue="below"),
    )
    decision = decided(world)
    assert ended(decision) == ["old"]
    assert decision.evictions[0].detail == "it ran for the 1800 s queue below allows"
    assert decision.wake_at == NOON + datetime.timedelta(minutes=29)


def test_the_shorter_of_both_counts() -> None:
    queue = stories.queue("q", max_runtime_seconds=1800)
    world = stories.world(
        build.node("n0"),
        queue,
        running("a", 20, queue="q", most=10),
        running("b", 20, queue="q", most=600),
    )
    assert ended(decided(world)) == ["a"]


def test_work_without_a_longest_time_in_a_queue_without_one_is_never_ended() -> None:
    world = stories.world(build.node("n0"), stories.queue("q"), running("a", 100_000, queue="q"))
    decision = decided(world)
    assert ended(decision) == []
    assert decision.wake_at is None


def test_a_pod_its_node_ends_by_itself_is_left_to_it() -> None:
    world = stories.world(
        build.node("n0"),
        stories.queue("q"),
        running("a", 61, queue="q", activeDeadlineSeconds=3600),
    )
    assert ended(decided(world)) == []


def test_who_is_spared_stays() -> None:
    world = build.world(running("a", 61, most=60), nodes=1)
    assert ended(decided(world, spared=("uid-of-a",))) == []


def test_the_step_can_be_left_out() -> None:
    world = build.world(running("a", 61, most=60), nodes=1)
    steps = tuple(step for step in policy.Step if step is not policy.Step.OVERTIME)
    assert decide.decide(world, policy.Policy(steps=steps), NOON).evictions == ()

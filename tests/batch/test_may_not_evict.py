"""A pod without room that may not evict others reads why: its queue's share, its age, its policy, or no queue."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.kubetypes import meta
from dovetail.model import plan
from dovetail.model.reasons import ReasonCode
from dovetail.world.events import Object
from dovetail.world.world import World
from tests.batch import stories
from tests.schedule import build

FULL = "1 node: 1 lacks nvidia.com/gpu (needs 1, at most 0 free)"
LATER = {"dovetail.dev/may-evict-after": "60s"}
NEVER = "its preemptionPolicy is Never: it waits for free room"


def full_node(*more: Object, of: str = "lab") -> World:
    """Four GPUs, all in use."""
    world = stories.world(stories.plugin_node("n", 4), *more)
    return build.put(world, *[stories.pod(f"r{i}", of, gpus=1, node="n") for i in range(4)])


def refusal_of(decided: plan.Plan, name: str) -> plan.Refusal:
    return next(refusal for refusal in decided.refusals if refusal.pod.name == name)


def codes(refusal: plan.Refusal) -> list[ReasonCode]:
    return [obstacle.reason.code for obstacle in refusal.obstacles]


def test_a_queue_at_its_fair_share_is_named_with_its_numbers() -> None:
    world = stories.world(stories.plugin_node("n", 4), stories.queue("a", gpu=2))
    build.put(world, stories.queue("b", gpu=2))
    for number in range(2):
        build.put(world, stories.pod(f"a{number}", "a", gpus=1, node="n"))
        build.put(world, stories.pod(f"b{number}", "b", gpus=1, node="n"))
    build.put(world, stories.pod("more", "a", gpus=1))
    refusal = refusal_of(stories.decided(world), "more")
    assert codes(refusal) == [ReasonCode.ROOM, ReasonCode.QUEUE_SHARE]
    assert refusal.summary == (
        f"{FULL}; queue a: 2 in use and 1 wanted exceed its fair share, 2 gpu"
    )


def test_where_no_queue_exists_nothing_is_said_about_shares() -> None:
    world = full_node(of="")
    build.put(world, *[stories.member(f"m{i}", "", "train", 2, gpus=1) for i in range(2)])
    refusals = stories.decided(world).refusals
    assert len(refusals) == 2
    assert not any(ReasonCode.QUEUE_SHARE in codes(refusal) for refusal in refusals)


def test_a_pod_that_fits_no_node_anyway_reads_nothing_about_shares() -> None:
    world = full_node(stories.queue("lab", gpu=4))
    build.put(world, stories.pod("lost", "lab", gpus=1, nodeSelector={"zone": "nowhere"}))
    assert ReasonCode.QUEUE_SHARE not in codes(refusal_of(stories.decided(world), "lost"))


@pytest.mark.parametrize("has_queue", [True, False])
def test_a_pod_that_is_too_young_to_evict_reads_when_it_may(has_queue: bool) -> None:
    world = full_node(*([stories.queue("lab", gpu=4)] if has_queue else []))
    urgent: dict[str, Any] = {"gpus": 1, "priority": 100, "annotations": LATER}
    build.put(world, stories.pod("urgent", "lab", age=10, **urgent))
    refusal = refusal_of(stories.decided(world), "urgent")
    assert codes(refusal) == [ReasonCode.ROOM, ReasonCode.TOO_YOUNG]
    assert refusal.summary == f"{FULL}; evicts no pod until it has waited 60 s; it is 10 s old"

    build.put(world, stories.pod("urgent", "lab", age=70, **urgent))
    decided = stories.decided(world)
    assert len(decided.evictions) == 1
    assert decided.refusals == ()


@pytest.mark.parametrize("has_queue", [True, False])
def test_a_pod_that_never_preempts_reads_so_where_it_could(has_queue: bool) -> None:
    world = full_node(*([stories.queue("lab", gpu=4)] if has_queue else []))
    build.put(world, stories.pod("polite", "lab", gpus=1, priority=9, preemptionPolicy="Never"))
    assert refusal_of(stories.decided(world), "polite").summary == f"{FULL}; {NEVER}"


def test_without_pods_of_lower_priority_the_policy_is_not_to_blame() -> None:
    world = full_node()
    build.put(world, stories.pod("polite", "lab", gpus=1, preemptionPolicy="Never"))
    assert refusal_of(stories.decided(world), "polite").summary == FULL


def test_a_priority_pod_of_no_queue_reads_that_it_belongs_to_none() -> None:
    """Every GPU is in use by a queue within its quota, so priority alone takes nothing from it."""
    queue = stories.queue("lab", gpu=4)
    selector = meta.LabelSelector(match_labels={"team": "lab"})
    spec = msgspec.structs.replace(queue.spec, namespace_selector=selector)
    world = full_node(msgspec.structs.replace(queue, spec=spec))
    build.put(world, namespace("default", team="lab"), namespace("elsewhere"))
    outside = {"namespace": "elsewhere", "labels": {}}
    build.put(world, stories.pod("high", "", gpus=1, priority=1000, metadata=outside))

    refusal = refusal_of(stories.decided(world), "high")
    assert refusal.summary.startswith(FULL)
    assert refusal.summary.endswith(
        "belongs to no queue, so it evicts only work of lower priority that belongs to none; "
        "label dovetail.dev/queue names one"
    )
    assert codes(refusal)[-1] is ReasonCode.TOO_YOUNG


def namespace(name: str, **labels: str) -> Object:
    return build.struct("Namespace", {"metadata": {"name": name, "labels": labels}})  # type: ignore[no-any-return]

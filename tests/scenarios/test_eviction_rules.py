"""The same for rules of eviction: which job may evict which, which are safe, which go first, which gangs are stale."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scenarios import build
from tests.scenarios.asking import (
    ALLOCATE,
    CONSOLIDATE,
    NOTHING,
    PREEMPT,
    RECLAIM,
    STALE,
    answer,
    group,
    runs,
    states,
)
from tests.scenarios.build import job, node, queue, waiting

# Yielding


def two_queues(**more: Any) -> list[build.Tree]:
    """One that is due both GPUs, and one that is due none."""
    return [
        queue("q0", quota={"gpu": 2}),
        queue("q1", quota=NOTHING, over_quota_weight={"gpu": 0}, **more),
    ]


@pytest.mark.parametrize(("age", "state"), [(599, "pending"), (600, "nominated")])
def test_before_a_certain_age_a_job_evicts_no_other(age: int, state: str) -> None:
    asked = job("a", waiting(gpu=1), age_s=age, may_evict_after_s=600)
    assert states(asked, job("b", runs(gpu=2), queue="q1"), queues=two_queues(), run=RECLAIM)[
        "a"
    ] == {state: 1}
    low = job("b", runs(gpu=2), priority=1)
    assert states(asked, low, run=PREEMPT)["a"] == {state: 1}
    assert states(asked, run=ALLOCATE)["a"] == {"bound": 1}


@pytest.mark.parametrize(("least", "lost"), [(0, 1), (60, 1), (61, 0)])
def test_a_recently_started_job_is_not_evicted(least: int, lost: int) -> None:
    victim = job("b", runs(gpu=2), priority=1, started_s_ago=60)
    asked = job("a", waiting(gpu=1))
    for where in ("q0", "top"):
        top = queue("top", quota={}) | ({"preempt_min_runtime_s": least} if where == "top" else {})
        leaf = queue("q0", parent="top") | (
            {"preempt_min_runtime_s": least} if where == "q0" else {}
        )
        messages = states(asked, victim, queues=[top, leaf], run=PREEMPT)
        assert messages["b"].get("terminating", 0) == lost, where
    messages = states(
        asked, victim | {"queue": "q1"}, queues=two_queues(reclaim_min_runtime_s=least), run=RECLAIM
    )
    assert messages["b"].get("terminating", 0) == lost


def test_the_nearest_shortest_runtime_that_is_set_counts() -> None:
    tree = [
        queue("top", quota={}, preempt_min_runtime_s=1000),
        queue("q0", parent="top", preempt_min_runtime_s=30),
    ]
    victim = job("b", runs(gpu=2), priority=1, started_s_ago=60)
    assert states(job("a", waiting(gpu=1)), victim, queues=tree, run=PREEMPT)["b"] == {
        "terminating": 1
    }


@pytest.mark.parametrize(("set_on", "lost"), [("d1", 0), ("q1", 1), ("d0", 1)])
def test_between_unrelated_trees_the_victims_root_alone_protects(set_on: str, lost: int) -> None:
    tree = [
        queue("d0", quota={"gpu": 2}),
        queue("q0", parent="d0", quota={"gpu": 2}),
        queue("d1", quota=NOTHING, over_quota_weight={"gpu": 0}),
        queue("q1", parent="d1", quota=NOTHING),
    ]
    tree = [
        item | ({"reclaim_min_runtime_s": 1000} if item["name"] == set_on else {}) for item in tree
    ]
    victim = job("b", runs(gpu=2), queue="q1", started_s_ago=60)
    messages = states(job("a", waiting(gpu=1)), victim, queues=tree, run=RECLAIM)
    assert messages["b"].get("terminating", 0) == lost


@pytest.mark.parametrize(("set_on", "lost"), [("top", 0), ("d1", 0), ("q1", 1), ("d0", 1)])
def test_in_one_tree_protection_begins_below_where_both_meet(set_on: str, lost: int) -> None:
    tree = [
        queue("top", quota={}),
        queue("d0", parent="top", quota={"gpu": 2}),
        queue("q0", parent="d0", quota={"gpu": 2}),
        queue("d1", parent="top", quota=NOTHING, over_quota_weight={"gpu": 0}),
        queue("q1", parent="d1", quota=NOTHING),
    ]
    tree = [
        item | ({"reclaim_min_runtime_s": 1000} if item["name"] == set_on else {}) for item in tree
    ]
    victim = job("b", runs(gpu=2), queue="q1", started_s_ago=60)
    messages = states(job("a", waiting(gpu=1)), victim, queues=tree, run=RECLAIM)
    assert messages["b"].get("terminating", 0) == lost


def test_the_young_still_lose_what_is_beyond_their_minimum() -> None:
    victim = job("b", runs(gpu=1), runs(gpu=1), queue="q1", started_s_ago=1)
    asked = job("a", waiting(gpu=1), waiting(gpu=1))
    messages = states(asked, victim, queues=two_queues(reclaim_min_runtime_s=60), run=RECLAIM)
    assert messages == {"a": {"nominated": 1, "pending": 1}, "b": {"running": 1, "terminating": 1}}


def test_only_the_less_important_of_the_same_queue_are_preempted() -> None:
    asked = job("a", waiting(gpu=1))
    equal = job("b", runs(gpu=2))
    other = job("b", runs(gpu=2), queue="q1", priority=1)
    fixed = job("b", runs(gpu=2), priority=1, preemptible=False)
    for victim in (equal, other, fixed):
        messages = states(asked, victim, queues=[queue("q0"), queue("q1")], run=PREEMPT)
        assert messages == {"a": {"pending": 1}, "b": {"running": 1}}


@pytest.mark.parametrize(("most", "moved"), [(None, 2), (2, 2), (1, 0), (0, 0)])
def test_consolidation_moves_no_more_than_it_may(most: int | None, moved: int) -> None:
    nodes = [node("n0", gpus=2), node("n1", gpus=2), node("n2", gpus=1), node("n3", gpus=1)]
    held = [
        job("x", build.running("n0", gpu=1)),
        job("y", build.running("n0", gpu=1)),
        job("z", build.running("n1", gpu=2)),
    ]
    report = answer(
        job("a", waiting(gpu=2)),
        *held,
        nodes=nodes,
        run=CONSOLIDATE,
        settings={"consolidation_max_victims": most},
    )
    assert report.per_cycle[0].evictions == moved
    assert report.jobs["a"].states == {"nominated" if moved else "pending": 1}


def test_no_pod_moves_for_a_non_preemptible_job_and_it_does_not_move_itself() -> None:
    nodes = [node("n0", gpus=2), node("n1", gpus=1)]
    asked, held = job("a", waiting(gpu=2)), job("x", build.running("n0", gpu=1))
    assert states(asked, held, nodes=nodes, run=CONSOLIDATE) == {
        "a": {"nominated": 1},
        "x": {"nominated": 1},
    }
    for item, other in (({"preemptible": False}, {}), ({}, {"preemptible": False})):
        messages = states(asked | item, held | other, nodes=nodes, run=CONSOLIDATE)
        assert messages == {"a": {"pending": 1}, "x": {"running": 1}}


@pytest.mark.parametrize(("may_move", "state"), [(True, "nominated"), (False, "terminating")])
def test_victims_of_a_reclaim_move_where_that_is_allowed(may_move: object, state: str) -> None:
    nodes = [node("n0", gpus=2), node("n1", gpus=1)]
    victim = job("b", build.running("n0", gpu=1), queue="q1")
    settings = {"reclaim_may_move_victims": may_move}
    messages = states(
        job("a", waiting(gpu=2)),
        victim,
        nodes=nodes,
        queues=two_queues(),
        run=RECLAIM,
        settings=settings,
    )
    assert messages == {"a": {"nominated": 1}, "b": {state: 1}}


@pytest.mark.parametrize(("multiplier", "lost"), [(1, 0), (0.5, 2), (2, 0)])
def test_a_reclaimer_above_its_share_stays_behind_those_who_lose(
    multiplier: float, lost: int
) -> None:
    """Afterwards both trees would have twice what they are due; the multiplier says how that is compared."""
    tree = [
        queue("d0", quota={"gpu": 1}, over_quota_weight={"gpu": 0}),
        queue("q0", parent="d0", quota={"gpu": 3}),
        queue("d1", quota={"gpu": 1}, over_quota_weight={"gpu": 0}),
        queue("q1", parent="d1", quota={"gpu": 4}),
    ]
    victim = job("v", *[runs(gpu=1)] * 4, queue="q1")
    settings = {"reclaim_saturation_multiplier": multiplier}
    messages = states(
        job("x", waiting(gpu=2)),
        victim,
        nodes=[node("n0", gpus=4)],
        queues=tree,
        run=RECLAIM,
        settings=settings,
    )
    assert messages["v"].get("terminating", 0) == lost


@pytest.mark.parametrize("actions", [RECLAIM, PREEMPT])
def test_no_pod_is_evicted_for_free_capacity(actions: dict[str, list[str]]) -> None:
    victim = job("b", runs(gpu=1), priority=1, queue="q1" if actions is RECLAIM else "q0")
    messages = states(job("a", waiting(gpu=1)), victim, queues=two_queues(), run=actions)
    assert messages == {"a": {"nominated": 1}, "b": {"running": 1}}


def test_room_that_one_victim_leaves_is_given_to_the_next_who_may_ask() -> None:
    nodes = [node("n0", gpus=3)]
    queues = [
        queue("q0", quota={"gpu": 3}),
        queue("q1", quota=NOTHING, over_quota_weight={"gpu": 0}),
    ]
    held = [job("b", runs(gpu=2), queue="q1", age_s=1), job("c", runs(gpu=1), queue="q1", age_s=9)]
    asked = [job("x", waiting(gpu=1), age_s=5), job("y", waiting(gpu=1), age_s=4)]
    messages = states(*held, *asked, nodes=nodes, queues=queues, run=RECLAIM)
    assert messages == {
        "b": {"terminating": 1},
        "c": {"running": 1},
        "x": {"nominated": 1},
        "y": {"nominated": 1},
    }


def test_surplus_pods_go_in_turn_from_the_group_that_has_most() -> None:
    pods = [runs(gpu=1) | {"group": name} for name in "aaabbb"]
    victim = job("v", *pods, queue="q1", min_groups=2, groups=[group("a"), group("b")])
    queues = [
        queue("q0", quota={"gpu": 6}),
        queue("q1", quota=NOTHING, over_quota_weight={"gpu": 0}),
    ]
    asked = job("x", waiting(gpu=2), age_s=5)
    report = answer(victim, asked, nodes=[node("n0", gpus=6)], queues=queues, run=RECLAIM)
    lost = {name: one.states.get("terminating", 0) for name, one in report.jobs["v"].groups.items()}
    assert lost == {"a": 1, "b": 1}


def test_a_gang_that_may_do_with_fewer_groups_loses_a_whole_one_before_the_rest() -> None:
    pods = [runs(gpu=1) | {"group": name} for name in "aabb"]
    victim = job("v", *pods, queue="q1", min_groups=1, groups=[group("a", 2), group("b", 2)])
    queues = [
        queue("q0", quota={"gpu": 4}),
        queue("q1", quota=NOTHING, over_quota_weight={"gpu": 0}),
    ]
    report = answer(
        victim, job("x", waiting(gpu=1)), nodes=[node("n0", gpus=4)], queues=queues, run=RECLAIM
    )
    assert report.jobs["v"].groups["a"].states == {"running": 2}
    assert report.jobs["v"].groups["b"].states == {"terminating": 2}


# Gangs that fell below their minimum


@pytest.mark.parametrize(
    ("own", "setting", "stale_for", "lost"),
    [
        (None, 60, 61, 1),
        (None, 60, 59, 0),
        (10, 60, 11, 1),
        (-1, 0, 1000, 0),
        (None, -1, 1000, 0),
        (None, 0, None, 1),
    ],
)
def test_a_gang_below_its_minimum_is_taken_back_after_its_grace(
    own: int | None, setting: int, stale_for: int | None, lost: int
) -> None:
    failed = build.running(gpu=1, state="failed")
    gang = job("a", runs(gpu=1), failed, groups=[group("default", 2)], preemptible=False)
    gang |= {"stale_grace_s": own, "stale_for_s": stale_for}
    messages = states(gang, settings={"stale_grace_s": setting}, run=STALE)
    assert messages["a"].get("terminating", 0) == lost


def test_a_gang_of_which_one_pod_succeeded_is_left_alone() -> None:
    done = build.running(gpu=1, state="succeeded")
    gang = job("a", runs(gpu=1), done, groups=[group("default", 3)], stale_for_s=1000)
    assert states(gang, run=STALE)["a"] == {"running": 1, "succeeded": 1}

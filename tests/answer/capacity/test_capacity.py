"""Capacity: what the answer counts is what the engine then starts, no more and no less."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.answer.capacity import (
    blockers,
    conserved_gpus,
    fragmentation,
    headroom,
    room_left,
    shapes,
)
from dovetail.answer.replica.replica import Replica
from dovetail.kubetypes import codec, object_set
from dovetail.model import policy

NOW = datetime.datetime(2026, 11, 17, 12, tzinfo=datetime.UTC)
GPU = "nvidia.com/gpu"
Tree = dict[str, Any]


def node(name: str, *, gpus: int, rack: str = "r1", cpu: int = 64) -> Tree:
    amounts = {GPU: str(gpus), "cpu": str(cpu), "memory": "512Gi", "pods": "110"}
    labels = {"rack": rack, "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": amounts},
    }


def pod(name: str, *, gpus: int, on: str = "", priority: int = 0, owned: bool = False) -> Tree:
    container = {"name": "main", "resources": {"limits": {GPU: str(gpus)}}}
    spec: Tree = {"containers": [container], "priority": priority}
    metadata: Tree = {"namespace": "team", "name": name, "uid": name}
    if owned:
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r"}
        metadata["ownerReferences"] = [owner | {"controller": True}]
    status: Tree = {"phase": "Running" if on else "Pending"}
    if on:
        spec["nodeName"] = on
        status["startTime"] = "2026-11-17T10:00:00Z"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def topology() -> Tree:
    return {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "racks"},
        "spec": {"levels": [{"nodeLabel": "rack", "alias": "rack"}]},
    }


def replica_of(*trees: Tree) -> Replica:
    stored = [codec.decode(tree) for tree in trees]
    return Replica(object_set.of("test", stored), policy.DEFAULT, NOW)


def shape(gpus: int, *, priority: int = 0) -> shapes.Shape:
    struct: Any = codec.decode(pod("shape", gpus=gpus, priority=priority)).struct
    return shapes.Shape(f"{gpus} GPUs", struct, {})


NODES = st.lists(st.integers(0, 8), min_size=1, max_size=4)
RUNNING = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(0, 2)), max_size=6)


def world(
    sizes: list[int], running: list[tuple[int, int, int]], *, owned: bool = False
) -> list[Tree]:
    """Nodes, and pods on them as far as they fit."""
    left = dict(enumerate(sizes))
    trees = [node(f"n{number}", gpus=size) for number, size in enumerate(sizes)]
    for number, (gpus, place, priority) in enumerate(running):
        if left.get(place, 0) >= gpus:
            left[place] -= gpus
            name, place_name = f"p{number}", f"n{place}"
            trees.append(pod(name, gpus=gpus, on=place_name, priority=priority, owned=owned))
    return trees


@settings(max_examples=40)
@given(NODES, RUNNING, st.integers(1, 5), st.integers(0, 3))
def test_so_many_copies_start_and_not_one_more(
    sizes: list[int], running: list[tuple[int, int, int]], gpus: int, priority: int
) -> None:
    trees = world(sizes, running)
    asked = shape(gpus, priority=priority)
    answer = room_left.of_shape(replica_of(*trees), asked)

    free = dict(enumerate(sizes))
    for tree in trees:
        if tree["kind"] == "Pod":
            used = int(tree["spec"]["containers"][0]["resources"]["limits"][GPU])
            free[int(tree["spec"]["nodeName"][1:])] -= used
    assert answer.now == sum(left // gpus for left in free.values())
    assert answer.after_moving is not None
    assert answer.if_lower_yields is not None
    assert answer.now <= answer.after_moving <= answer.if_lower_yields

    for count in (answer.now, answer.now + 1):
        fresh = replica_of(*trees, *(pod(f"new-{number}", gpus=gpus) for number in range(count)))
        started = [each for each in fresh.decide().placements if each.pod.name.startswith("new")]
        assert len(started) == answer.now


@settings(max_examples=60)
@given(NODES, RUNNING, st.integers(1, 5), st.integers(0, 3), st.booleans())
def test_the_bound_saves_a_search_and_changes_no_number(
    sizes: list[int],
    running: list[tuple[int, int, int]],
    gpus: int,
    priority: int,
    owned: bool,
) -> None:
    trees = world(sizes, running, owned=owned)
    asked = shape(gpus, priority=priority)
    bounded = room_left.of_shape(replica_of(*trees), asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conserved_gpus, "most_copies", lambda *_: None)
        patch.setattr(conserved_gpus, "can_none_yield", lambda *_: False)
        searched = room_left.of_shape(replica_of(*trees), asked)
    assert bounded == searched


def test_the_bound_is_met_where_copies_take_every_free_gpu_and_not_where_gpus_are_shared() -> None:
    trees = [node("a", gpus=8), node("b", gpus=4), pod("p", gpus=2, on="a", owned=True)]
    replica = replica_of(*trees)
    uses = headroom.free_room(replica, shape(2)).uses
    assert conserved_gpus.most_copies(replica.world, uses) == 5
    labels = {"nvidia.com/gpu.replicas": "4"}
    trees[1]["metadata"]["labels"] |= labels
    assert conserved_gpus.most_copies(replica_of(*trees).world, uses) is None


@settings(max_examples=25)
@given(NODES, RUNNING)
def test_fragmentation_is_at_most_what_is_free(
    sizes: list[int], running: list[tuple[int, int, int]]
) -> None:
    replica = replica_of(*world(sizes, running))
    measured = fragmentation.fragmentation(replica, fragmentation.observed_mix(replica))
    assert 0 <= measured.unusable <= measured.free <= sum(sizes)
    assert sum(group.free for group in measured.by_type) == measured.free


def test_single_gpu_jobs_can_use_every_free_gpu() -> None:
    replica = replica_of(node("a", gpus=3), node("b", gpus=8), pod("p", gpus=1, on="a"))
    measured = fragmentation.fragmentation(replica, fragmentation.observed_mix(replica))
    assert (measured.free, measured.unusable) == (10, 0)


def test_jobs_of_eight_cannot_use_half_nodes() -> None:
    running = [pod(f"p{name}", gpus=4, on=name) for name in "ab"]
    replica = replica_of(
        node("a", gpus=8), node("b", gpus=8), node("c", gpus=8), *running, pod("waits", gpus=8)
    )
    mix = fragmentation.observed_mix(replica)
    assert [observed.pods for observed in mix] == [2, 1]
    measured = fragmentation.fragmentation(replica, mix)
    # Two pods of four can use all 16 free GPUs; the pod of eight leaves the halves of a and b.
    assert measured.free == 16
    assert round(measured.unusable, 2) == round(8 / 3, 2)


def test_lower_work_yields_and_equal_work_does_not() -> None:
    trees = [node("a", gpus=8), pod("low", gpus=8, on="a"), node("b", gpus=8)]
    trees.append(pod("equal", gpus=8, on="b", priority=5))
    answer = room_left.of_shape(replica_of(*trees), shape(8, priority=5))
    assert (answer.now, answer.after_moving, answer.if_lower_yields) == (0, 0, 1)
    assert answer.evicted == 1


def test_the_largest_gang_of_each_level() -> None:
    trees = [
        topology(),
        node("a", gpus=8, rack="r1"),
        node("b", gpus=8, rack="r1"),
        node("c", gpus=4, rack="r2"),
        pod("p", gpus=2, on="a"),
    ]
    answer = room_left.of_shape(replica_of(*trees), shape(2), moves=False)
    largest = {level.level: (level.largest, level.domain) for level in answer.levels}
    assert largest == {"cluster": (9, ""), "rack": (7, "r1"), "node": (4, "b")}
    assert answer.by_type == {"H100-80GB-HBM3": 9}


def test_which_work_blocks_a_gang_and_what_it_loses() -> None:
    trees = [node(name, gpus=8) for name in "abcd"]
    trees += [pod("cheap", gpus=1, on="a"), pod("big", gpus=8, on="b")]
    trees.append(pod("protected", gpus=1, on="c", priority=2_000_000_000))
    answer = blockers.blockers(replica_of(*trees), shape(8), size=2)
    assert answer.starts
    assert [(work.gang, work.gpus, work.gpu_hours_lost) for work in answer.work] == [
        ("team/pod/cheap", 1.0, 2.0)
    ]


def test_a_gang_that_fits_nowhere_says_why() -> None:
    answer = blockers.blockers(replica_of(node("a", gpus=8)), shape(8), size=2)
    assert not answer.starts
    assert answer.work == ()
    assert answer.why


def test_waiting_pods_do_not_count() -> None:
    replica = replica_of(node("a", gpus=8), pod("waits", gpus=8))
    assert headroom.free_room(replica, shape(8)).total == 1
    assert [each.pod.name for each in replica.decide().placements] == ["waits"]

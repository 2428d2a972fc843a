"""A replica of a cluster: edits change what the engine answers, and leave nothing behind."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import errors
from dovetail.answer.replica import patches, verdict
from dovetail.answer.replica.replica import Edit, Replica
from dovetail.kubetypes import codec, object_set
from dovetail.model import policy
from dovetail.sim.fleet import fleet_objects, fleet_spec
from dovetail.world import dump

NOW = datetime.datetime(2026, 11, 17, 12, tzinfo=datetime.UTC)
NODE = {"kind": "Node", "apiVersion": "v1"}

SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["a", "b", ""])
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3) | st.lists(inner, max_size=2)
    ),
    max_leaves=8,
)
TREES = st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=4)


def without_nulls(value: Any) -> Any:
    """A merge patch cannot write a null, so neither tree has one."""
    if isinstance(value, dict):
        return {name: without_nulls(field) for name, field in value.items() if field is not None}
    return value


@given(TREES, TREES)
def test_the_difference_of_two_trees_turns_one_into_the_other(before: Any, after: Any) -> None:
    before, after = without_nulls(before), without_nulls(after)
    patch = patches.difference(before, after)
    assert patches.merged(before, patch) == after
    assert bool(patch) == (before != after)


def pod(name: str, *, gpus: int, priority: int = 0) -> dict[str, Any]:
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "team", "name": name, "uid": name},
        "spec": {"containers": [container], "priority": priority},
    }


def node(name: str, *, gpus: int) -> dict[str, Any]:
    amounts = {"nvidia.com/gpu": str(gpus), "cpu": "64", "memory": "256Gi", "pods": "110"}
    return NODE | {"metadata": {"name": name}, "status": {"allocatable": amounts}}


def replica_of(*trees: dict[str, Any]) -> Replica:
    stored = [codec.decode(tree) for tree in trees]
    return Replica(object_set.of("test", stored), policy.DEFAULT, NOW)


def started(replica: Replica) -> dict[str, str]:
    return {placement.pod.name: placement.node for placement in replica.decide().placements}


def test_an_edit_changes_the_answer_and_is_undone() -> None:
    replica = replica_of(node("a", gpus=4), pod("large", gpus=8))
    before = dump.dump(replica.world)
    assert started(replica) == {}

    larger = replica.edits_of(
        [
            patches.Patch(
                object=patches.ObjectRef(api_version="v1", kind="Node", name="a"),
                merge={"status": {"allocatable": {"nvidia.com/gpu": "8"}}},
            )
        ]
    )
    with replica.edited(larger):
        assert started(replica) == {"large": "a"}

    assert started(replica) == {}
    assert dump.dump(replica.world) == before


def test_edits_are_undone_where_one_of_them_fails() -> None:
    replica = replica_of(node("a", gpus=4), pod("waits", gpus=8))
    before = dump.dump(replica.world)
    gone = object_set.Key("Node", "", "a")

    def edits() -> Any:
        yield Edit(gone, None)
        raise RuntimeError("an edit that cannot be made")

    with pytest.raises(RuntimeError), replica.edited(edits()):
        raise AssertionError("not reached")
    assert dump.dump(replica.world) == before


def test_edits_nest() -> None:
    replica = replica_of(node("a", gpus=4), pod("first", gpus=4), pod("second", gpus=4))
    assert len(started(replica)) == 1
    more = [
        Edit(object_set.Key("Node", "", name), codec.decode(node(name, gpus=4))) for name in "bc"
    ]
    with replica.edited(more[:1]):
        assert len(started(replica)) == 2
        with replica.edited([Edit(object_set.Key("Node", "", "a"), None)]):
            assert started(replica) == {"first": "b"}
        assert len(started(replica)) == 2


def test_a_pod_that_is_created_again_with_another_identity_replaces_the_old_one() -> None:
    replica = replica_of(node("a", gpus=4), pod("large", gpus=8))
    ref = patches.ObjectRef(api_version="v1", kind="Pod", namespace="team", name="large")
    smaller = pod("large", gpus=2)
    smaller["metadata"]["uid"] = "another"
    changes = [patches.Patch(object=ref, delete=True), patches.Patch(object=ref, create=smaller)]
    with replica.edited(replica.edits_of(changes)):
        assert started(replica) == {"large": "a"}
        assert list(replica.world.pods) == ["another"]
    assert list(replica.world.pods) == ["large"]


@pytest.mark.parametrize("change", [{"merge": {}}, {"delete": True}])
def test_a_patch_of_an_object_that_is_not_there_says_so(change: dict[str, Any]) -> None:
    replica = replica_of(node("a", gpus=4))
    ref = patches.ObjectRef(api_version="v1", kind="Pod", namespace="team", name="missing")
    with pytest.raises(errors.InputError, match="Pod team/missing: does not exist"):
        replica.edits_of([patches.Patch(object=ref, **change)])


def test_removing_and_returning_every_object_of_a_fleet_leaves_the_same_world() -> None:
    trees = fleet_objects.objects_of(fleet_spec.sample())
    replica = replica_of(*trees, pod("waits", gpus=1))
    before = dump.dump(replica.world)
    plan = replica.decide()
    every = [object_set.key_of(codec.decode(tree).struct) for tree in trees]
    for size in (1, len(every)):
        with replica.edited([Edit(key, None) for key in every[:size]]):
            pass
    assert dump.dump(replica.world) == before
    assert replica.decide() == plan


def test_the_verdict_is_about_the_whole_cluster() -> None:
    replica = replica_of(
        node("a", gpus=4), pod("first", gpus=4, priority=10), pod("second", gpus=4)
    )
    first = verdict.verdict(replica, "first")
    second = verdict.verdict(replica, "second")
    assert (first.starts, first.node) == (True, "a")
    assert not second.starts
    assert second.refusal is not None


def test_a_pod_starts_where_less_important_pods_leave_first() -> None:
    running = pod("running", gpus=4)
    running["spec"] |= {"nodeName": "a"}
    running["status"] = {"phase": "Running"}
    replica = replica_of(node("a", gpus=4), running, pod("important", gpus=4, priority=10))
    answer = verdict.verdict(replica, "important")
    assert (answer.starts, answer.node) == (True, "a")
    assert [eviction.pod.name for eviction in answer.evictions] == ["running"]
    assert verdict.verdict(replica, "running").is_bound


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 8)), max_size=12), st.data())
def test_a_replica_that_followed_a_cluster_decides_as_a_new_one(
    steps: list[tuple[str, int]], data: st.DataObject
) -> None:
    """Pods and nodes come, change and go; 0 GPUs mean that the object is gone."""
    followed = replica_of()
    trees: dict[str, dict[str, Any]] = {}
    for name, gpus in steps:
        is_node = data.draw(st.booleans())
        key = f"node-{name}" if is_node else f"pod-{name}"
        tree = node(name, gpus=gpus) if is_node else pod(name, gpus=gpus)
        stored = codec.decode(tree)
        trees.pop(key, None)
        if gpus:
            trees[key] = tree
        edit = Edit(object_set.key_of(stored.struct), stored if gpus else None)
        followed.follow([edit], NOW)
    fresh = replica_of(*trees.values())
    assert dump.dump(followed.world) == dump.dump(fresh.world)
    assert started(followed) == started(fresh)


def test_a_replica_that_follows_counts_budgets_and_knows_the_time() -> None:
    replica = replica_of(node("a", gpus=4), pod("small", gpus=1))
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"namespace": "team", "name": "all"},
        "spec": {"minAvailable": 1, "selector": {}},
    }
    stored = codec.decode(budget)
    later = NOW + datetime.timedelta(hours=1)
    replica.follow([Edit(object_set.key_of(stored.struct), stored)], later)
    assert [each.metadata.name for each in replica.budgets()] == ["all"]
    assert replica.now == later

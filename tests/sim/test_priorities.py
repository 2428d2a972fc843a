"""Priority classes in the embedded cluster: resolved when a pod is created, refused as an API server refuses."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from dovetail import timestamps
from dovetail.kubetypes.core import pods
from dovetail.manifest import manifests
from dovetail.sim.fleet import fleet_objects, fleet_spec
from dovetail.sim.local import control, local_cluster, state_dir

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
Tree = dict[str, Any]


@pytest.fixture(scope="module")
def empty() -> local_cluster.Cluster:
    """One node of 224 cpus with the namespaces of every cluster."""
    text = 'name: one\npools: [{name: l4, count: 1, gpu: L4, gpusPerNode: 2, cpu: "224"}]'
    outcome = given(
        local_cluster.Cluster("one"),
        *fleet_objects.objects_of(fleet_spec.read(text, file="fleet.yaml")),
    )
    assert isinstance(outcome, local_cluster.Applied), outcome
    return outcome.cluster


def given(
    cluster: local_cluster.Cluster, *trees: Tree
) -> local_cluster.Applied | local_cluster.Refused:
    listed = [local_cluster.Given(tree) for tree in trees]
    return local_cluster.apply(
        cluster, listed, now=timestamps.to_text(NOW), check_selector=state_dir.check_selector
    )


def applied(cluster: local_cluster.Cluster, *trees: Tree) -> local_cluster.Cluster:
    outcome = given(cluster, *trees)
    assert isinstance(outcome, local_cluster.Applied), outcome
    return outcome.cluster


def refused(cluster: local_cluster.Cluster, *trees: Tree) -> list[str]:
    outcome = given(cluster, *trees)
    assert isinstance(outcome, local_cluster.Refused), outcome
    return [str(one) for one in outcome.problems]


def rank(name: str, value: object, **facts: object) -> Tree:
    metadata = {"name": name}
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": metadata,
        "value": value,
        **facts,
    }


def pod(name: str, *, cpu: str = "1", **spec: object) -> Tree:
    container = {"name": "main", "image": "train", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], **spec},
    }


def standing(cluster: local_cluster.Cluster, name: str = "p") -> tuple[int | None, str, str | None]:
    stored = local_cluster.get(cluster, local_cluster.Key("Pod", "default", name))
    assert stored is not None
    assert isinstance(stored.struct, pods.Pod)
    spec = stored.struct.spec
    return spec.priority, spec.priority_class_name, spec.preemption_policy


def test_a_pod_gets_the_priority_and_the_policy_of_its_class_whatever_the_order_of_the_file(
    empty: local_cluster.Cluster,
) -> None:
    made = applied(
        empty, pod("p", priorityClassName="calm"), rank("calm", 7, preemptionPolicy="Never")
    )
    assert standing(made) == (7, "calm", "Never")


def test_a_pod_without_a_class_has_priority_0_or_that_of_the_default_class(
    empty: local_cluster.Cluster,
) -> None:
    assert standing(applied(empty, pod("p"))) == (0, "", "PreemptLowerPriority")
    made = applied(empty, rank("usual", 5, globalDefault=True), rank("other", 9), pod("p"))
    assert standing(made) == (5, "usual", "PreemptLowerPriority")
    assert refused(made, rank("second", 6, globalDefault=True)) == [
        "PriorityClass second: globalDefault: PriorityClass usual is the default already; only one can be"
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)],
)
def test_two_classes_are_there_from_the_beginning(
    empty: local_cluster.Cluster, name: str, value: int
) -> None:
    assert standing(applied(empty, pod("p", priorityClassName=name)))[:2] == (value, name)


def test_a_class_that_does_not_exist_is_refused(empty: local_cluster.Cluster) -> None:
    assert refused(empty, pod("p", priorityClassName="nosuch")) == [
        'Pod default/p: spec.priorityClassName: no PriorityClass is named "nosuch"; apply one, or name another'
    ]


def test_a_priority_that_is_not_the_class_s_is_refused(empty: local_cluster.Cluster) -> None:
    known = applied(empty, rank("high", 1000))
    assert standing(applied(known, pod("p", priorityClassName="high", priority=1000)))[0] == 1000
    assert refused(known, pod("p", priorityClassName="high", priority=5)) == [
        "Pod default/p: spec.priority: leave it out: with PriorityClass high it is 1000, not 5; "
        "a PriorityClass sets another"
    ]
    assert "with no PriorityClass it is 0, not 5" in refused(known, pod("p", priority=5))[0]
    assert (
        "spec.preemptionPolicy: leave it out"
        in refused(known, pod("p", preemptionPolicy="Never"))[0]
    )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (rank("x", "high"), "value: expected a whole number, got 'high'"),
        (rank("x", 1_000_000_001), "value: must be between -2147483648 and 1000000000"),
        (rank("system-x", 1), 'metadata.name: names that begin with "system-"'),
        (rank("x", 1, preemptionPolicy="Sometimes"), "preemptionPolicy: expected one of"),
        (
            {**rank("x", 1), "apiVersion": "scheduling.k8s.io/v1beta1"},
            'apiVersion: expected "scheduling.k8s.io/v1"',
        ),
    ],
)
def test_a_class_that_an_api_server_would_refuse_is_refused(
    empty: local_cluster.Cluster, wrong: Tree, said: str
) -> None:
    (problem,) = refused(empty, wrong)
    assert said in problem


def test_what_was_decided_when_a_pod_or_class_was_made_does_not_change(
    empty: local_cluster.Cluster,
) -> None:
    made = applied(empty, rank("high", 1000), rank("low", 1), pod("p", priorityClassName="high"))
    assert standing(applied(made, pod("p", priorityClassName="high"))) == standing(made)
    assert (
        "spec.priorityClassName: may not be changed"
        in refused(made, pod("p", priorityClassName="low"))[0]
    )
    assert "value: may not be changed" in refused(made, rank("high", 2000))[0]
    assert applied(made, rank("high", 1000, description="for the night")) != made


def test_a_pod_of_a_higher_class_makes_one_of_a_lower_class_yield(
    empty: local_cluster.Cluster,
) -> None:
    """No queue exists; the pod that ran had no controller."""
    begun = control.turn(
        applied(empty, rank("a", 1000), pod("first", cpu="150", priorityClassName="a")), now=NOW
    )
    then = control.turn(
        applied(begun, rank("b", 2000), pod("second", cpu="150", priorityClassName="b")), now=NOW
    )
    running = [stored.struct for stored in local_cluster.listed(then, "Pod")]
    assert [
        (one.metadata.name, one.status.phase) for one in running if isinstance(one, pods.Pod)
    ] == [("second", "Running")]


def test_a_manifest_says_what_a_class_is_good_for() -> None:
    text = (
        "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 5\n"
    )
    read = manifests.load(text)
    assert [str(one).rpartition("v1: ")[2] for one in read.notes] == [
        "kept, read when pods are created"
    ]

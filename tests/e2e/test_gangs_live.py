"""Gangs and evictions on real API servers: all or none, intents, disruption budgets, and what each pod's events say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.e2e.namespace_scene import (
    SCENE,
    Scene,
    Tree,
    exactly,
    node_of,
    phase_of,
    pod_tree,
    scene,
)
from tests.support import cluster as planes
from tests.support import live, rest
from tests.support.live import Live

pytestmark = [pytest.mark.slow, pytest.mark.newest]


@pytest.fixture(scope="module")
def defined(cluster: Live) -> Iterator[Live]:
    """The cluster, with our own kinds; they go again."""
    result = [item for item in live.installed() if item["kind"] == "CustomResourceDefinition"]
    planes.apply(cluster.plane, result)
    names = [f"crd/{item['metadata']['name']}" for item in result]
    planes.kubectl(cluster.plane, "wait", "--for=condition=Established", *names, "--timeout=60s")
    cluster.wait_for("intents to be served", lambda: _is_served(cluster))
    yield cluster
    planes.kubectl(cluster.plane, "delete", *names, "--ignore-not-found")


def _is_served(cluster: Live) -> bool:
    try:
        cluster.rest.list("intents")
    except rest.RefusedError:  # its storage is being made
        return False
    return True


@pytest.fixture
def story(defined: Live) -> Iterator[Scene]:
    with scene(defined) as scenes:
        yield scenes


def gang(story: Scene, name: str, size: int, **more: Any) -> list[str]:
    """Pods that start together, one device each; their names."""
    labels = {"dovetail.dev/gang": name, "dovetail.dev/gang-min": str(size)}
    return [member(story, f"{name}-{number}", labels=labels, **more) for number in range(size)]


def member(
    story: Scene, name: str, *, labels: dict[str, str] | None = None, owner: str = "", **spec: Any
) -> str:
    """A pod of one device, that a controller recreates or that may just end."""
    notes = {} if owner else {"dovetail.dev/when-evicted": "end"}
    tree = pod_tree(name, templates=["gpu"], annotations=notes)
    tree["metadata"]["labels"] = labels or {}
    if owner:
        head = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "kube-root-ca.crt",
            "controller": True,
        }
        tree["metadata"]["ownerReferences"] = [head | {"uid": owner}]
    tree["spec"]["nodeSelector"] = {SCENE: story.namespace}
    tree["spec"] |= spec
    story.rest.create("pods", tree, story.namespace)
    return name


def test_a_gang_starts_together_all_claims_before_any_binding(story: Scene) -> None:
    story.fleet(nodes=2, gpus=2)
    story.template()
    with (
        story.rest.record("resourceclaims", story.namespace) as claims,
        story.rest.record("pods", story.namespace) as pods,
        story.rest.record("intents", story.namespace) as begun,
    ):
        names = gang(story, "train", 4)
        story.wait_running(*names)
        story.wait("the intent gone", lambda: not story.rest.list("intents", story.namespace))
        allocated = [
            item.version
            for item in claims.seen
            if (item.object.get("status") or {}).get("allocation")
        ]
        bound = [item.version for item in pods.seen if node_of(item.object)]
        story.wait("the intent seen", lambda: begun.seen)
        made = begun.seen[0]
        assert made.version < min(allocated)
        assert max(version for version in allocated if version < min(bound)) > made.version
        assert len([version for version in allocated if version < min(bound)]) >= 4
        assert sorted(item["pod"] for item in made.object["spec"]["members"]) == names
    assert story.live.consistent()["consistent"]


def test_an_intent_can_be_read_and_cannot_be_changed(story: Scene) -> None:
    member_ = {"pod": "llama-0", "uid": "u", "node": "n", "claims": ["llama-0-gpu"]}
    spec = {
        "gang": "gang/llama",
        "attempt": 1,
        "deadline": "2026-11-16T08:20:00Z",
        "members": [member_],
    }
    name = "gang-llama-5d0f3c9a1b"
    head: Tree = {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "Intent",
        "metadata": {"name": name},
    }
    story.rest.create("intents", head | {"spec": spec}, story.namespace)
    shown = planes.kubectl(story.live.plane, "get", "intents", "-n", story.namespace).splitlines()
    assert shown[0].split() == ["NAME", "GANG", "ATTEMPT", "START", "KEPT", "DEADLINE", "AGE"]
    assert shown[1].split()[:4] == [name, "gang/llama", "1", "2026-11-16T08:20:00Z"]
    with pytest.raises(rest.RefusedError, match="an intent is written once"):
        story.rest.patch("intents", name, {"spec": {"attempt": 2}}, story.namespace)
    head["metadata"]["name"] = "empty"
    seat = {"pod": "llama-0", "uid": "u", "node": "n"}
    wrong: list[tuple[str, Tree]] = [
        ("members", spec | {"members": []}),
        ("either members, or a promise, or a slot", {"gang": "gang/llama"}),
        ("either members, or a promise, or a slot", spec | {"slot": seat}),
        ("promise.start", {"gang": "gang/llama", "promise": {"start": "soon", "seats": [seat]}}),
        ("a start and seats, or", {"gang": "gang/llama", "promise": {"cause": "why not"}}),
        ("until a deadline", {"gang": "gang/llama", "slot": seat}),
    ]
    for why, item in wrong:
        with pytest.raises(rest.RefusedError, match=why):
            story.rest.create("intents", head | {"spec": item}, story.namespace)


def test_a_gang_without_room_holds_nothing_and_starts_when_a_node_comes(story: Scene) -> None:
    story.fleet(nodes=1, gpus=2)
    story.template()
    names = gang(story, "train", 3)
    story.wait_refused(names[0], "")
    assert story.held() == []
    assert all(node_of(pod) == "" for pod in story.pods().values())
    story.slice(story.node("late"), [{"name": "gpu-0"}, {"name": "gpu-1"}])
    story.wait_running(*names)
    assert len(set(story.held())) == 3


def test_a_pod_with_a_disruption_budget_is_evicted_only_when_the_budget_allows_it(
    story: Scene,
) -> None:
    """Two pods of less importance hold both devices; a more important pod needs one."""
    story.fleet(nodes=1, gpus=2)
    story.template()
    queue(story)
    for name in ("one", "two"):
        member(story, name, labels={"app": "kept"})
    story.wait_running("one", "two")
    budget(story, least=2)
    member(story, "important", priorityClassName="system-cluster-critical")
    story.wait("a refused eviction", lambda: "evict.refused" in story.live.log())
    assert not any(pod["metadata"].get("deletionTimestamp") for pod in story.pods().values())
    planes.kubectl(story.live.plane, "delete", "pdb", "kept", "-n", story.namespace)
    story.wait_running("important")
    assert len([name for name in ("one", "two") if name in story.pods()]) == 1
    gone = next(name for name in ("one", "two") if name not in story.pods())
    notes = [event["note"] for event in story.events("Preempted", "important")]
    assert notes
    assert all("1 pod yields" in note and gone in note for note in notes), notes
    notes = [event["note"] for event in story.events("Preempted", gone)]
    assert notes
    assert all("pod/important" in note for note in notes), notes


def test_a_promise_and_the_place_of_a_pod_that_moved_outlive_the_leader(story: Scene) -> None:
    """Its leader is killed between a promise and the start, and between an eviction and the pod's replacement.

    Meanwhile the node of the promise is cordoned, and another pod requests the place.
    """
    lease = ("leases", "dovetail-scheduler", "kube-system")
    story.classed()
    story.template()
    story.template("two", exactly("gpu", story.device_class, count=2))
    queue(story)
    first = promised(story)
    expected = moved(story)
    story.live.stop(kill=True)
    (kept,) = intents(story, "slot")
    assert kept["spec"]["slot"]["pod"] == expected.gone
    start, node = first["spec"]["promise"]["start"], first["spec"]["promise"]["seats"][0]["node"]
    story.rest.patch("nodes", node, {"spec": {"unschedulable": True}})
    member(story, "greedy", nodeSelector=expected.where)
    story.rest.delete(*lease)
    story.live.schedule()
    story.wait("a leader", story.live.leads)
    story.wait_refused("greedy", "")
    story.wait_refused("head", f"instead of {start[:16]}", f"node {node} takes no more pods")
    (later,) = story.wait("the promise written again", lambda: _others(story, first))
    assert later["spec"]["promise"]["movedFrom"] == start
    assert later["spec"]["promise"]["cause"] == f"node {node} takes no more pods"
    assert node_of(story.pods()["greedy"]) == ""
    member(story, "after", owner=expected.owner, nodeSelector=expected.where)
    assert node_of(story.wait_running("after")["after"]) == kept["spec"]["slot"]["node"]
    story.wait("the place written off", lambda: not intents(story, "slot"))
    assert node_of(story.pods()["greedy"]) == ""


class Moved(NamedTuple):
    """A pod that was asked to move."""

    gone: str
    owner: str  # the uid of the owner that recreates it
    where: dict[str, str]


def promised(story: Scene) -> Tree:
    """Two nodes that are taken for 10 and for 15 minutes; a pod that waits for two devices is promised the first."""
    for minutes in (10, 15):
        where = {"example.com/kind": f"long-{minutes}"}
        marks = {"example.com/waits": "yes"} | where
        story.slice(
            story.node(f"long-{minutes}", labels=marks), [{"name": "gpu-0"}, {"name": "gpu-1"}]
        )
        notes = {"dovetail.dev/expected-runtime": f"{minutes}m"}
        story.pod(f"long-{minutes}", templates=["two"], annotations=notes, nodeSelector=where)
    story.wait_running("long-10", "long-15")
    here = {"example.com/waits": "yes", SCENE: story.namespace}
    story.pod("head", templates=["two"], nodeSelector=here)
    story.wait_refused("head", "starts by")
    (result,) = intents(
        story, "promise"
    )  # a start time is reported only after its promise is stored
    assert result["spec"]["promise"]["seats"][0]["node"] == f"{story.namespace}-long-10"
    return result


def moved(story: Scene) -> Moved:
    """One pod on each of two nodes of two devices; one of them moves, so that another pod gets a whole node."""
    where = {"example.com/kind": "space", SCENE: story.namespace}
    owner = planes.get(story.live.plane, "configmap", "kube-root-ca.crt", "-n", story.namespace)[
        "metadata"
    ]["uid"]
    for name, beside in (("left", "beside"), ("right", "")):
        story.slice(story.node(name, labels=where), [{"name": "gpu-0"}, {"name": "gpu-1"}])
        names = [item for item in (name, beside) if item]
        for item in names:
            member(story, item, owner=owner, nodeSelector=where)
        story.wait_running(*names)
    planes.kubectl(
        story.live.plane, "delete", "pod", "beside", "-n", story.namespace, "--wait=true"
    )
    story.pod("wide", templates=["two"], nodeSelector=where)
    story.wait_running("wide")
    (gone,) = {"left", "right"} - story.pods().keys()
    return Moved(gone, owner, where)


def intents(story: Scene, about: str) -> list[Tree]:
    return [item for item in story.rest.list("intents", story.namespace) if about in item["spec"]]


def _others(story: Scene, first: Tree) -> list[Tree]:
    trees = intents(story, "promise")
    return (
        trees
        if trees and first["metadata"]["uid"] not in [tree["metadata"]["uid"] for tree in trees]
        else []
    )


def test_of_victims_under_one_budget_as_many_go_as_it_allows_and_of_a_set_all_or_none(
    story: Scene,
) -> None:
    """Each could go, both cannot: a gang that needs both gets neither, of two pods that need one each one does."""
    story.fleet(nodes=1, gpus=2)
    story.template()
    queue(story)
    for name in ("one", "two"):
        member(story, name, labels={"app": "kept"})
    story.wait_running("one", "two")
    budget(story, least=1)
    critical = {"priorityClassName": "system-cluster-critical"}
    both = gang(story, "both", 2, **critical)
    story.wait("a set that was not taken", lambda: "does not allow so many" in _said(story))
    assert not any(_is_leaving(pod) for pod in story.pods().values())
    for name in both:
        story.rest.delete("pods", name, story.namespace, gracePeriodSeconds=0)
    for name in ("x", "y"):
        member(story, name, **critical)
    story.wait("one of them to run", lambda: len(running(story, "x", "y")) == 1)
    (other,) = {"x", "y"} - set(running(story, "x", "y"))
    story.wait_refused(
        other, ""
    )  # whom a budget keeps is known by now: nothing is tried in vain again
    (left,) = [
        pod for name, pod in story.pods().items() if name in ("one", "two") and not _is_leaving(pod)
    ]
    assert "DisruptionTarget" not in {item["type"] for item in left["status"]["conditions"]}


def budget(story: Scene, *, least: int) -> None:
    """A disruption budget over the two pods of the app `kept`, counted."""
    tree = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "kept", "namespace": story.namespace},
        "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": "kept"}}},
    }
    planes.apply(story.live.plane, [tree], namespace=story.namespace)
    story.wait("the budget counted", lambda: _counted(story))


def running(story: Scene, *names: str) -> list[str]:
    """Those of these pods that run."""
    result = story.pods()
    return [name for name in names if name in result and phase_of(result[name]) == "Running"]


def _is_leaving(pod: Tree) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _said(story: Scene) -> str:
    """What the scheduler's log says about this story's pods."""
    return "\n".join(line for line in story.live.log().splitlines() if story.namespace in line)


def queue(story: Scene) -> None:
    """One for this namespace alone."""
    selector = {"matchLabels": {"kubernetes.io/metadata.name": story.namespace}}
    head = {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": story.namespace},
    }
    story.put("queues", head | {"spec": {"namespaceSelector": selector}})
    story.wait(
        "the queue to be known", lambda: story.rest.read("queues", story.namespace).get("status")
    )


def _counted(story: Scene) -> bool:
    result = planes.get(story.live.plane, "pdb", "kept", "-n", story.namespace)
    return bool(result.get("status", {}).get("currentHealthy") == 2)

"""Priority on a real API server, without a queue: a pod makes less important ones yield, and classes are what they are.

Each story has nodes of its own on the shared cluster. What the embedded cluster says about priority classes is held
against the server's own word.
"""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.ports import failures
from dovetail.sim.server.api_server import SimApi
from tests.e2e.namespace_scene import Scene, node_of, scene
from tests.support import rest
from tests.support.live import Live

pytestmark = [pytest.mark.slow, pytest.mark.newest]

Tree = dict[str, Any]


def rank(story: Scene, name: str, value: object, **facts: Any) -> Tree:
    """A class whose name no other story has."""
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return {**head, "metadata": {"name": f"{story.namespace}-{name}"}, "value": value, **facts}


def pod(story: Scene, name: str, cpu: str, *, of: str = "", **spec: Any) -> None:
    """A pod that wants so much cpu."""
    container = {"name": "main", "image": "example", "resources": {"requests": {"cpu": cpu}}}
    if of:
        spec["priorityClassName"] = f"{story.namespace}-{of}"
    story.pod(name, containers=[container], **spec)


def test_a_pod_that_fits_nowhere_next_to_a_pending_one_delays_no_other_pod(cluster: Live) -> None:
    with scene(cluster) as story:
        story.node("n0")
        story.put("priorityclasses", rank(story, "high", 1000))
        pod(story, "runs", "1")
        story.wait_running("runs")
        pod(story, "too-big", "9999")
        story.wait_refused("too-big", "lacks cpu")
        pod(story, "important", "5000", of="high")
        story.wait_refused("important", "lacks cpu")
        pod(story, "next", "1")
        story.wait_running("runs", "next")


def test_a_pod_of_higher_priority_gets_the_room_of_one_without_a_controller(cluster: Live) -> None:
    with scene(cluster) as story:
        node = story.node("n0")
        story.put("priorityclasses", rank(story, "lesser", 1000))
        story.put("priorityclasses", rank(story, "greater", 2000))
        story.put("priorityclasses", rank(story, "polite", 2000, preemptionPolicy="Never"))
        pod(story, "lesser", "40", of="lesser")
        story.wait_running("lesser")
        pod(story, "polite", "40", of="polite")
        story.wait_refused("polite", "lacks cpu")
        pod(story, "equal", "40", of="lesser")
        story.wait_refused("equal", "lacks cpu")
        assert "lesser" in story.pods()
        pod(story, "greater", "40", of="greater")
        result = story.wait_running("greater")
        assert "lesser" not in result
        assert node_of(result["greater"]) == node
        events = story.events("Preempted", "lesser")
        assert "priority 2000 comes before its 1000" in events[0]["note"]


def test_a_device_goes_to_the_higher_priority(cluster: Live) -> None:
    with scene(cluster) as story:
        story.fleet(nodes=1, gpus=2)
        story.template()
        for name, value in (("low", 1), ("middle", 2), ("high", 3)):
            story.put("priorityclasses", rank(story, name, value))
        for name in ("middle", "low"):
            story.pod(name, templates=["gpu"], priorityClassName=f"{story.namespace}-{name}")
        story.wait_running("middle", "low")
        story.pod("high", templates=["gpu"], priorityClassName=f"{story.namespace}-high")
        result = story.wait_running("high", "middle")
        assert "low" not in result
        assert story.held_once() == 2


def test_the_embedded_cluster_takes_refuses_and_fills_in_as_the_server_does(cluster: Live) -> None:
    with scene(cluster) as story:
        known = [rank(story, "high", 1000), rank(story, "calm", 7, preemptionPolicy="Never")]
        for class_ in known:
            story.put("priorityclasses", class_)
        high, calm = (item["metadata"]["name"] for item in known)
        specs: list[Tree] = [
            {},
            {"priorityClassName": high},
            {"priorityClassName": calm},
            {"priorityClassName": f"{story.namespace}-nosuch"},
            {"priorityClassName": "system-cluster-critical"},
            {"priorityClassName": "system-node-critical"},
            {"priorityClassName": high, "priority": 1000},
            {"priorityClassName": high, "priority": 5},
            {"priority": 0},
            {"priority": 5},
            {"preemptionPolicy": "Never"},
            {"priorityClassName": calm, "preemptionPolicy": "Never"},
            {"priorityClassName": calm, "preemptionPolicy": "PreemptLowerPriority"},
        ]
        classes = [
            rank(story, "a", None),
            rank(story, "g", "high"),
            rank(story, "b", 1_000_000_001),
            rank(story, "c", -2_147_483_648),
            rank(story, "d", 1, preemptionPolicy="Sometimes"),
            rank(story, "e", 1) | {"metadata": {"name": "system-e"}},
            rank(story, "f", 1_000_000_000),
        ]
        ours = SimApi(is_complete=True, namespaces=[story.namespace])
        for class_ in known:
            ours.put(class_)
        for number, spec in enumerate(specs):
            tree = _plain(f"p{number}", story.namespace, spec)
            assert _standing(ours, tree) == _on_server(story, tree), spec
        for class_ in classes:
            is_taken = _stored(ours, class_) is not None
            assert is_taken == _is_taken(story, class_), class_


def _plain(name: str, namespace: str, spec: Tree) -> Tree:
    container = {"name": "main", "image": "example"}
    gated = {"containers": [container], "schedulingGates": [{"name": "example.com/never"}]}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**gated, **spec}}


def _standing(server: SimApi, tree: Tree) -> tuple[Any, ...] | None:
    """What is stored of a pod's priority; None where it is refused."""
    pod = _stored(server, tree)
    if pod is None:
        return None
    spec = pod.spec
    return spec.priority, spec.priority_class_name or "", spec.preemption_policy


def _stored(server: SimApi, tree: Tree) -> Any:
    """The object as the embedded cluster stores it; None where it is refused."""
    try:
        return server.put(tree)
    except failures.Refused:
        return None


def _on_server(story: Scene, tree: Tree) -> tuple[Any, ...] | None:
    try:
        spec = story.rest.create("pods", tree, story.namespace)["spec"]
    except rest.RefusedError:
        return None
    return spec["priority"], spec.get("priorityClassName", ""), spec["preemptionPolicy"]


def _is_taken(story: Scene, tree: Tree) -> bool:
    try:
        story.put("priorityclasses", tree)
    except rest.RefusedError:
        return False
    return True

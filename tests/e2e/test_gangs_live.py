"""Gangs and evictions on real API servers: all or none, intents, disruption budgets, and who is told what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.scene import SCENE, Scene, Tree, node_of, pod_tree, scene
from tests.support import cluster as planes
from tests.support import live, rest
from tests.support.live import Live

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def defined(cluster: Live) -> Iterator[Live]:
    """The cluster, with our own kinds; they go again."""
    found = [one for one in live.installed() if one["kind"] == "CustomResourceDefinition"]
    planes.apply(cluster.plane, found)
    names = [f"crd/{one['metadata']['name']}" for one in found]
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
    with scene(defined) as made:
        yield made


def gang(story: Scene, name: str, size: int, **more: Any) -> list[str]:
    """Pods that start together, one device each; their names."""
    labels = {"dovetail.dev/gang": name, "dovetail.dev/gang-min": str(size)}
    return [member(story, f"{name}-{number}", labels=labels, **more) for number in range(size)]


def member(story: Scene, name: str, *, labels: dict[str, str] | None = None, **spec: Any) -> str:
    tree = pod_tree(name, templates=["gpu"], annotations={"dovetail.dev/when-evicted": "end"})
    tree["metadata"]["labels"] = labels or {}
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
        allocated = [one.version for one in claims.seen if (one.object.get("status") or {}).get("allocation")]
        bound = [one.version for one in pods.seen if node_of(one.object)]
        story.wait("the intent seen", lambda: begun.seen)
        made = begun.seen[0]
        assert made.version < min(allocated)
        assert max(version for version in allocated if version < min(bound)) > made.version
        assert len([version for version in allocated if version < min(bound)]) >= 4
        assert sorted(one["pod"] for one in made.object["spec"]["members"]) == names
    assert story.live.consistent()["consistent"]


def test_people_can_read_an_intent_and_nobody_can_change_it(story: Scene) -> None:
    member_ = {"pod": "llama-0", "uid": "u", "node": "n", "claims": ["llama-0-gpu"]}
    spec = {"gang": "gang/llama", "attempt": 1, "deadline": "2026-11-16T08:20:00Z", "members": [member_]}
    name = "gang-llama-5d0f3c9a1b"
    head: Tree = {"apiVersion": "dovetail.dev/v1alpha1", "kind": "Intent", "metadata": {"name": name}}
    story.rest.create("intents", head | {"spec": spec}, story.namespace)
    shown = planes.kubectl(story.live.plane, "get", "intents", "-n", story.namespace).splitlines()
    assert shown[0].split() == ["NAME", "GANG", "ATTEMPT", "DEADLINE", "AGE"]
    assert shown[1].split()[:4] == [name, "gang/llama", "1", "2026-11-16T08:20:00Z"]
    with pytest.raises(rest.RefusedError, match="an intent is written once"):
        story.rest.patch("intents", name, {"spec": {"attempt": 2}}, story.namespace)
    head["metadata"]["name"] = "empty"
    with pytest.raises(rest.RefusedError, match="members"):
        story.rest.create("intents", head | {"spec": spec | {"members": []}}, story.namespace)


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


def test_a_pod_with_a_disruption_budget_yields_only_when_that_allows_it(story: Scene) -> None:
    """Two pods of less importance hold both devices; a more important pod needs one."""
    story.fleet(nodes=1, gpus=2)
    story.template()
    queue(story)
    for name in ("one", "two"):
        member(story, name, labels={"app": "kept"})
    story.wait_running("one", "two")
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "kept", "namespace": story.namespace},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "kept"}}},
    }
    planes.apply(story.live.plane, [budget], namespace=story.namespace)
    story.wait("the budget counted", lambda: _counted(story))
    member(story, "important", priorityClassName="system-cluster-critical")
    story.wait("a refused eviction", lambda: "not evicted" in story.live.log())
    assert not any(pod["metadata"].get("deletionTimestamp") for pod in story.pods().values())
    planes.kubectl(story.live.plane, "delete", "pdb", "kept", "-n", story.namespace)
    story.wait_running("important")
    assert len([name for name in ("one", "two") if name in story.pods()]) == 1
    print(
        [
            (one["note"], one.get("series"), one["metadata"]["creationTimestamp"])
            for one in story.events("Preempted", "important")
        ]
    )
    (told,) = story.events("Preempted", "important")
    assert "yield" in told["note"]
    gone = next(name for name in ("one", "two") if name not in story.pods())
    (said,) = story.events("Preempted", gone)
    assert "pod/important" in said["note"]


def queue(story: Scene) -> None:
    """One for this namespace alone."""
    selector = {"matchLabels": {"kubernetes.io/metadata.name": story.namespace}}
    head = {"apiVersion": "dovetail.dev/v1alpha1", "kind": "Queue", "metadata": {"name": story.namespace}}
    story.put("queues", head | {"spec": {"namespaceSelector": selector}})
    story.wait("the queue to be known", lambda: story.rest.read("queues", story.namespace).get("status"))


def _counted(story: Scene) -> bool:
    found = planes.get(story.live.plane, "pdb", "kept", "-n", story.namespace)
    return bool(found.get("status", {}).get("currentHealthy") == 2)

"""Random pods with all constraints on a real API server: where kube-scheduler puts them, where ours puts them.

Either is watched, pod by pod, by upstream's filter plugins and by our engine, given what the server holds.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.e2e.namespace_scene import SCENE, Scene, node_of, reason_of, scene
from tests.generators import constraints_nodes as places
from tests.generators import constraints_pods
from tests.schedule import upstream
from tests.support import oracle
from tests.support.live import Live

pytestmark = [pytest.mark.slow, pytest.mark.newest]

NODES: Final = 7
PODS: Final = 50
THEIRS: Final = "default-scheduler"
RUNTIME_CLASS: Final = "sandbox"
Tree = dict[str, Any]


def test_the_real_schedulers_choices_are_choices_we_would_make(cluster: Live) -> None:
    with _random_scene(cluster, seed=1) as story:
        cluster.plane.start_scheduler(THEIRS)
        try:
            placed = _walk(story, random.Random(1), scheduler=THEIRS)
        finally:
            cluster.plane.kill(f"kube-scheduler-{THEIRS}")
    assert 0 < placed < PODS, "every pod was placed, or none: nothing was put to the test"


def test_our_choices_are_choices_upstream_would_make(cluster: Live) -> None:
    with _random_scene(cluster, seed=2) as story:
        placed = _walk(story, random.Random(2), scheduler="dovetail")
        assert cluster.consistent()["consistent"]
    assert 0 < placed < PODS, "every pod was placed, or none: nothing was put to the test"


def _walk(story: Scene, rng: random.Random, *, scheduler: str) -> int:
    """One pod after the other: what the server says of it has to be what both sides say. How many got a node."""
    both = upstream.Both(oracle.session(), _held(story))
    names = [_node_name(story, number) for number in range(NODES)]
    placed = 0
    for number in range(PODS):
        pod = _created(story, constraints_pods.pod(rng, number, nodes=names), scheduler)
        judgement = both.judge(pod)
        assert list(upstream.disagreements(judgement)) == [], pod
        node = node_of(_settled(story, pod))
        if node:
            assert judgement.theirs[node] is None, (node, judgement.theirs[node], pod)
            both.run(pod, node)
            placed += 1
        else:
            assert all(judgement.theirs.values()), (
                [one for one, why in judgement.theirs.items() if why is None],
                pod,
            )
            story.rest.delete(
                "pods", pod["metadata"]["name"], pod["metadata"]["namespace"], gracePeriodSeconds=0
            )
    return placed


def _created(story: Scene, pod: Tree, scheduler: str) -> Tree:
    """The pod as the server keeps it. Priority and overhead are the server's to fill in."""
    spec = {key: value for key, value in pod["spec"].items() if key not in ("priority", "overhead")}
    spec |= {"schedulerName": scheduler, "terminationGracePeriodSeconds": 1}
    spec["nodeSelector"] = {**spec.get("nodeSelector", {}), SCENE: story.namespace}
    metadata = {key: pod["metadata"][key] for key in ("name", "namespace", "labels")}
    tree = _ours(story, {**pod, "metadata": metadata, "spec": spec})
    return story.rest.create("pods", tree, tree["metadata"]["namespace"])


def _settled(story: Scene, pod: Tree) -> Tree:
    """The pod once it has a node, or a reason why it has none."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]

    def settled_pod() -> Tree | None:
        tree = story.rest.read("pods", name, namespace)
        return tree if node_of(tree) or reason_of(tree) else None

    tree: Tree = story.live.wait_for(
        f"an answer about pod {namespace}/{name}", settled_pod, pause=0.02
    )
    return tree


def _held(story: Scene) -> list[Tree]:
    """What the server holds, as far as scheduling reads it."""
    kinds = {"namespaces": "Namespace", "nodes": "Node", "pods": "Pod"}
    result = [
        {"apiVersion": "v1", "kind": kind, **item}
        for plural, kind in kinds.items()
        for item in story.rest.list(plural)
    ]
    return [item for item in result if item["kind"] != "Pod" or node_of(item)]


@contextlib.contextmanager
def _random_scene(cluster: Live, *, seed: int) -> Iterator[Scene]:
    """A scene of random nodes and namespaces."""
    rng = random.Random(seed)
    runtime_classes = "/apis/node.k8s.io/v1/runtimeclasses"
    with scene(cluster) as story:
        spaces = [_ours(story, tree) for tree in places.namespaces(rng, unknown=0)]
        for item in spaces:
            story.put("namespaces", item)
        for item in places.nodes(rng, NODES):
            story.put("nodes", _playable(story, _ours(story, item)))
        cluster.rest.ask("POST", runtime_classes, _sandbox())
        try:
            story.wait("nodes the node controller is done with", lambda: _are_nodes_settled(story))
            yield story
        finally:
            cluster.rest.ask("DELETE", f"{runtime_classes}/{RUNTIME_CLASS}")
            for space in spaces:  # before their nodes go
                for pod in story.rest.list("pods", space["metadata"]["name"]):
                    story.rest.delete(
                        "pods",
                        pod["metadata"]["name"],
                        pod["metadata"]["namespace"],
                        gracePeriodSeconds=0,
                    )


def _ours(story: Scene, tree: Tree) -> Tree:
    """The tree with names that are unique on the cluster."""
    text = json.dumps(tree).replace('"node-', f'"{story.namespace}-node-')
    for name in places.NAMESPACES:
        text = text.replace(f'"{name}"', f'"{story.namespace}-{name}"')
    renamed: Tree = json.loads(text)
    return renamed


def _node_name(story: Scene, number: int) -> str:
    """The name under which the server knows one of the random nodes."""
    return f"{story.namespace}-node-{number:02}"


def _playable(story: Scene, node: Tree) -> Tree:
    """The node with a hollow kubelet, and without taints that would end running pods."""
    metadata = {
        "name": node["metadata"]["name"],
        "labels": {**node["metadata"]["labels"], SCENE: story.namespace},
        "annotations": {"dovetail.dev/hollow": "true"},
    }
    taints = [item for item in node["spec"].get("taints", ()) if item["effect"] != "NoExecute"]
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {**node["status"], "capacity": node["status"]["allocatable"], "conditions": [ready]}
    return {
        **node,
        "metadata": metadata,
        "spec": {**node["spec"], "taints": taints},
        "status": status,
    }


def _are_nodes_settled(story: Scene) -> bool:
    """Whether the node controller's own taints are what they will stay."""
    mine = [
        item
        for item in story.rest.list("nodes")
        if item["metadata"]["labels"].get(SCENE) == story.namespace
    ]
    for node in mine:
        keys = {taint["key"] for taint in node["spec"].get("taints", ())}
        is_marked = "node.kubernetes.io/unschedulable" in keys
        if "node.kubernetes.io/not-ready" in keys or is_marked != node["spec"].get(
            "unschedulable", False
        ):
            return False
    return len(mine) == NODES


def _sandbox() -> Tree:
    """A class whose pods cost more than their containers."""
    head = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": RUNTIME_CLASS},
    }
    return head | {
        "handler": "sandbox",
        "overhead": {"podFixed": {"cpu": "250m", "memory": "64Mi"}},
    }

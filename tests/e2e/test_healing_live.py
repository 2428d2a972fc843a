"""The healer on a real API server: gangs under a disruption budget, the breaker of a pool, and the limit of tries."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.model import node_annotations, node_pools
from dovetail.upgrade.heal import heal_record
from tests.e2e import namespace_scene
from tests.e2e.namespace_scene import Scene, Tree
from tests.support import cluster as planes
from tests.support import healer_process, live

pytestmark = [pytest.mark.slow, pytest.mark.newest]

POLICY = {
    "tries": 1,
    "breakerShare": 0.5,
    "breakerSeconds": 1,
    "faultSeconds": 1,
    "evictBarePods": True,
    "passSeconds": 1,
}
PROTECTED = {"app": "protected"}


class Ward:
    """Nodes of one pool with NVIDIA's driver name, pods on their GPUs, and the healer's words about them."""

    def __init__(self, story: Scene, *, nodes: int) -> None:
        self.story = story
        story.driver = "gpu.nvidia.com"
        story.classed()
        story.template()
        pool = {node_pools.OWN_POOL: story.namespace}
        self.nodes = [story.node(f"n{number}", labels=pool) for number in range(nodes)]
        for name in self.nodes:
            story.slice(name, devices())

    def run(self, name: str, node: str, *, gang: str = "", labels: Tree | None = None) -> None:
        """A pod with a GPU of this node; of a gang of two, if one is named."""
        tree = namespace_scene.pod_tree(name, templates=["gpu"])
        marks = {"dovetail.dev/gang": gang, "dovetail.dev/gang-min": "2"} if gang else {}
        tree["metadata"]["labels"] = marks | (labels or {})
        tree["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
        self.story.rest.create("pods", tree, self.story.namespace)

    def gpu_of(self, pod: str) -> str:
        ((_, device),) = self.story.devices_of(pod)
        return device

    def taint(self, node: str, *broken: str) -> None:
        """These GPUs of the node have an XID; the others are well."""
        change = {"spec": {"devices": devices(*broken)}}
        self.story.rest.patch("resourceslices", f"{node}-devices", change)

    def annotations(self, node: str) -> dict[str, str]:
        metadata = self.story.rest.read("nodes", node)["metadata"]
        return dict(metadata.get("annotations", {}))

    def request(self, node: str) -> Tree | None:
        text = self.annotations(node).get(heal_record.REQUEST)
        return None if text is None else dict(json.loads(text))

    def answer(self, node: str, request: Tree, result: str) -> None:
        """What the agent of the node would say."""
        said = json.dumps({"id": request["id"], "result": result, "message": "said the test"})
        change = {"metadata": {"annotations": {node_annotations.HEAL_RESPONSE: said}}}
        self.story.rest.patch("nodes", node, change)

    def events(self, node: str, reason: str) -> list[str]:
        """The notes of the healer's events about a node."""
        return [
            str(event["note"])
            for event in self.story.rest.list("events", "default")
            if event["reason"] == reason and event["regarding"]["name"] == node
        ]

    def present(self) -> set[str]:
        """The pods that are there and not ending."""
        pods = self.story.pods().items()
        return {name for name, pod in pods if "deletionTimestamp" not in pod["metadata"]}


def devices(*broken: str) -> list[Tree]:
    """Two GPUs, as the node agent publishes them."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    taint = {"key": "gpu.nvidia.com/xid", "value": "48", "effect": "NoSchedule", "timeAdded": now}
    names = ("gpu-0", "gpu-1")
    return [{"name": name, "taints": [taint] if name in broken else []} for name in names]


def budget(story: Scene, allowed: int) -> None:
    """Lets so many of the protected pods go, and waits until the disruption controller has counted."""
    tree = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "protected"},
        "spec": {"minAvailable": 1 - allowed, "selector": {"matchLabels": PROTECTED}},
    }
    planes.apply(story.live.plane, [tree], namespace=story.namespace)

    def is_counted() -> bool:
        words = ("get", "pdb", "protected", "-n", story.namespace, "-o", "json")
        status = json.loads(planes.kubectl(story.live.plane, *words)).get("status", {})
        return status.get("disruptionsAllowed") == allowed

    story.wait("the disruption controller to count", is_counted)


def test_a_gang_moves_as_a_whole_or_not_at_all_and_tries_and_breaker_limit_the_healer(
    tmp_path: Path,
) -> None:
    shared = live.cluster()
    with namespace_scene.scene(shared) as story:
        ward = Ward(story, nodes=3)
        sick, other, third = ward.nodes
        ward.run("train-0", sick, gang="train")
        ward.run("train-1", other, gang="train", labels=PROTECTED)
        ward.run("neighbour", sick)
        story.wait_running("train-0", "train-1", "neighbour")
        budget(story, 0)
        gpu = ward.gpu_of("train-0")
        ward.taint(sick, gpu)
        with healer_process.healing(shared.plane, tmp_path, POLICY) as healer:

            def wait(what: str, is_so: Any) -> Any:
                try:
                    return story.wait(what, is_so)
                except AssertionError as error:
                    raise AssertionError(f"{error}\n{healer.log()[-3000:]}") from None

            # One member is protected: neither goes, and the node says why.
            (note,) = wait("the gang to be held", lambda: ward.events(sick, "HealBlocked"))
            assert "/gang/train stays for now, 2 pods" in note
            assert "disruption budget" in note
            assert ward.present() == {"train-0", "train-1", "neighbour"}

            # A second node waits for the first: one of three at a time.
            ward.taint(third, "gpu-0")
            (note,) = wait("the breaker", lambda: ward.events(third, "HealRefuse"))
            assert "1 of 3 nodes are healed now or were begun within 1 s; 1 allowed" in note
            assert f'breaker_open{{pool="{story.namespace}"}} 1.0' in healer.metrics()
            assert heal_record.RECORD not in ward.annotations(third)

            # Allowed, both members go; the pod on the GPU beside it stays.
            budget(story, 1)
            wait("the gang to leave", lambda: ward.present() == {"neighbour"})
            request = wait("the request", lambda: ward.request(sick))
            assert (request["action"], request["gpus"]) == ("reset-gpu", [gpu])

            # One try of a remedy is allowed: the next one up follows, and takes the neighbour with it.
            ward.answer(sick, request, "failed")
            wait("the greater remedy", lambda: ward.present() == set())
            request = wait("its request", lambda: ward.request(sick))
            assert request["action"] == "drain-and-reset"
            taints = story.rest.read("nodes", sick)["spec"].get("taints", [])
            assert [taint["key"] for taint in taints] == [heal_record.FENCE]

            # What the node refuses leads no further; well again, it is released and the other node's turn comes.
            ward.answer(sick, request, "refused")
            wait("the refusal", lambda: ward.events(sick, "HealStuck"))
            ward.taint(sick)
            wait(
                "the fence to go", lambda: not story.rest.read("nodes", sick)["spec"].get("taints")
            )
            assert wait("the next node", lambda: ward.request(third))["gpus"] == ["gpu-0"]
            ward.taint(third)
            wait("its end", lambda: ward.request(third) is None)
            shown = healer.metrics()
            assert 'remedies_total{result="failed",rung="reset-gpu"} 1.0' in shown
            assert 'remedies_total{result="healed",rung="drain-and-reset"} 1.0' in shown
            assert 'evictions_total{result="done"} 3.0' in shown

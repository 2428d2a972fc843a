"""Inventory, check and plan of the GPU stack on a real API server: its nodes, labels, budgets and evictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.devcluster import kube_binaries
from tests.cli import running
from tests.e2e import namespace_scene
from tests.support import cluster as planes
from tests.support import live

pytestmark = pytest.mark.slow
GPU = "nvidia.com/gpu"
LABELS = {"app": "train"}
DISCOVERED = {  # as node and GPU feature discovery write them
    "feature.node.kubernetes.io/pci-10de.present": "true",
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.family": "hopper",
    "nvidia.com/gpu.compute.major": "9",
    "nvidia.com/gpu.compute.minor": "0",
    "nvidia.com/gpu.count": "2",
    "nvidia.com/cuda.driver-version.full": "570.124.06",
    "nvidia.com/cuda.runtime-version.full": "12.8",
}


def test_the_stack_of_a_real_cluster_is_read_checked_and_planned(tmp_path: Path) -> None:
    shared = live.cluster(kube_binaries.DEFAULT)

    def asked(*words: str) -> tuple[int, dict[str, Any]]:
        options = ("-o", "json", "--kubeconfig", str(shared.plane.kubeconfig))
        done = running.inside(tmp_path / "none", "stack", *words, *options)
        assert done.code in (0, 1), done.err
        return done.code, json.loads(done.out)

    with namespace_scene.scene(shared) as scene:
        nodes = [
            scene.node(f"n{number}", labels=DISCOVERED, offers={GPU: "2"}) for number in range(2)
        ]
        trains(scene, "train-0")
        scene.wait_running("train-0")

        _, inventory = asked()
        facts = {entry["node"]: entry for entry in inventory["nodes"] if entry["node"] in nodes}
        assert sorted(facts) == sorted(nodes)
        for entry in facts.values():
            assert entry["driverLoaded"]["value"] == "570.124.06"
            assert entry["cuda"]["value"] == "12.8"
            assert entry["architecture"]["value"] == "hopper"
            assert entry["driverDesired"]["unknown"]

        # The image needs CUDA 12.9: R570 runs it by minor compatibility, R580 natively.
        _, answer = asked("check", "--to", "driver=580.95.05")
        (image,) = [entry for entry in answer["images"] if set(entry["nodes"]) & set(nodes)]
        assert (image["now"]["verdict"], image["then"]["verdict"]) == ("minor", "native")

        # The only pod may not be evicted: the plan says so, and the server's dry run agrees.
        budget(scene)
        selected = ("--nodes", f"{namespace_scene.SCENE}={scene.namespace}", "--canary", "0")
        code, plan = asked(
            "plan", "--to", "driver=580.95.05", *selected, "--max-unavailable", "50%"
        )
        assert code == 1
        assert sorted(name for wave in plan["waves"] for name in wave["nodes"]) == sorted(nodes)
        assert {blocker["code"] for blocker in plan["blockers"]} == {
            "DisruptionBudget",
            "NoController",
        }
        held = next(name for name in nodes if _holds(scene, name))
        code, drain = asked("drain", held, "--force", "--ignore-daemonsets")
        assert (code, drain["server"]) == (1, "dry run")
        assert [blocker["code"] for blocker in drain["blockers"]] == ["DisruptionBudget"]


def trains(scene: namespace_scene.Scene, name: str) -> None:
    """A pod that holds a GPU, and states what its image requires."""
    tree = namespace_scene.pod_tree(name)
    tree["metadata"]["labels"] = LABELS
    tree["spec"]["nodeSelector"] = {namespace_scene.SCENE: scene.namespace}
    container = tree["spec"]["containers"][0]
    container["resources"] = {"limits": {GPU: "1"}}
    container["env"] = [{"name": "NVIDIA_REQUIRE_CUDA", "value": "cuda>=12.9"}]
    scene.rest.create("pods", tree, scene.namespace)


def budget(scene: namespace_scene.Scene) -> None:
    """A budget that lets no pod go, once the controller has counted."""
    tree = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "train"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": LABELS}},
    }
    planes.apply(scene.live.plane, [tree], namespace=scene.namespace)

    def is_counted() -> bool:
        text = planes.kubectl(
            scene.live.plane, "get", "pdb", "train", "-n", scene.namespace, "-o", "json"
        )
        return bool(json.loads(text).get("status", {}).get("desiredHealthy") == 1)

    scene.wait("the disruption controller to count", is_counted)


def _holds(scene: namespace_scene.Scene, node: str) -> bool:
    text = planes.kubectl(scene.live.plane, "get", "pods", "-n", scene.namespace, "-o", "json")
    return any(item["spec"].get("nodeName") == node for item in json.loads(text)["items"])

"""The predicted drain beside kubectl's own, on a real API server with its real disruption controller."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dovetail.devcluster import kube_binaries
from tests.cli import running
from tests.e2e import namespace_scene
from tests.support import cluster as planes
from tests.support import live

pytestmark = pytest.mark.slow
OPTIONS = ("--force", "--ignore-daemonsets", "--delete-emptydir-data")
LABELS = {"app": "web"}


def test_the_predicted_drain_is_the_one_that_kubectl_and_the_server_carry_out(
    tmp_path: Path,
) -> None:
    shared = live.cluster(kube_binaries.DEFAULT)
    with namespace_scene.scene(shared) as scene:
        node = scene.node("n0")
        for number in range(3):
            deployed(scene, f"web-{number}", LABELS)
        deployed(scene, "alone", {})
        scene.wait_running("web-0", "web-1", "web-2", "alone")

        def predicted(*options: str) -> tuple[int, dict[str, Any]]:
            words = ("stack", "drain", node, *options, "-o", "json")
            done = running.inside(
                tmp_path / "none", *words, "--kubeconfig", str(shared.plane.kubeconfig)
            )
            assert done.code in (0, 1), done.err
            return done.code, json.loads(done.out)

        # Bare pods: kubectl refuses to begin, and so do we.
        code, answer = predicted("--ignore-daemonsets", "--delete-emptydir-data")
        refused = planes.run_kubectl(shared.plane, "drain", node, *OPTIONS[1:], "--dry-run=server")
        assert (code, refused.returncode) == (1, 1)
        assert answer["blockers"][0]["message"] in refused.stderr

        # With a budget that lets one go: the server would let each go, one at a time they take turns.
        budget(scene, 2)
        code, answer = predicted(*OPTIONS)
        assert code == 0
        assert answer["server"] == "dry run"
        said = planes.kubectl(shared.plane, "drain", node, *OPTIONS, "--dry-run=client")
        ours = [fate["pod"] for fate in answer["pods"] if fate["action"] == "evict"]
        assert ours == re.findall(r"evicting pod (\S+) \(dry run\)", said)
        waiting = [bool(fate["waits"]) for fate in answer["pods"] if fate["budget"]]
        assert waiting == [False, True, True]

        # With a budget of none: our count and the server's own answer name the same pods.
        budget(scene, 3)
        code, answer = predicted(*OPTIONS)
        assert code == 1
        (blocker,) = answer["blockers"]
        assert blocker["code"] == "DisruptionBudget"
        assert blocker["pods"] == [f"{scene.namespace}/web-{number}" for number in range(3)]
        for name in ("web-0", "alone"):
            assert evictable(scene, name) == (name == "alone")


def deployed(scene: namespace_scene.Scene, name: str, labels: dict[str, str]) -> None:
    """A pod without a controller, and with a volume that goes with it."""
    tree = namespace_scene.pod_tree(name)
    tree["metadata"]["labels"] = labels
    tree["spec"]["nodeSelector"] = {namespace_scene.SCENE: scene.namespace}
    tree["spec"]["volumes"] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    scene.rest.create("pods", tree, scene.namespace)


def budget(scene: namespace_scene.Scene, least: int) -> None:
    """Creates or changes the budget, and waits until the controller has counted."""
    tree = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web"},
        "spec": {"minAvailable": least, "selector": {"matchLabels": LABELS}},
    }
    planes.apply(scene.live.plane, [tree], namespace=scene.namespace)

    def is_counted() -> bool:
        text = planes.kubectl(
            scene.live.plane, "get", "pdb", "web", "-n", scene.namespace, "-o", "json"
        )
        written = json.loads(text)
        status = written.get("status", {})
        is_current = status.get("observedGeneration") == written["metadata"]["generation"]
        return is_current and status.get("desiredHealthy") == least

    scene.wait("the disruption controller to count", is_counted)


def evictable(scene: namespace_scene.Scene, name: str) -> bool:
    """Whether the server would evict the pod, by a dry run that kubectl sends."""
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": scene.namespace},
    }
    done = planes.run_kubectl(
        scene.live.plane,
        "create",
        "--raw",
        f"/api/v1/namespaces/{scene.namespace}/pods/{name}/eviction?dryRun=All",
        "-f",
        "-",
        input=json.dumps(eviction),
    )
    assert done.returncode == 0 or "disruption budget" in done.stderr, done.stderr
    return done.returncode == 0

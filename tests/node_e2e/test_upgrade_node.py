"""A real node gets another driver: drained while the agent still serves, brought back by a hook, then work returns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.model import node_annotations
from dovetail.upgrade import read_facts
from dovetail.upgrade.adapters import node_agent_adapter
from tests.node_e2e.gpu_cluster import GpuCluster, Tree
from tests.support import cluster as planes
from tests.support import healer_process

pytestmark = pytest.mark.slow

NAME = "new-driver"
NEW = "590.48.01"
CHECKS = {
    "checks": ["gpu-count", "driver", "slice", {"check": "prepare", "required": True}],
}


@pytest.fixture
def hooked(cluster: GpuCluster) -> Iterator[GpuCluster]:
    """The cluster, whose node says that a hook swaps its driver; afterwards it has the old driver and no marks."""
    before = cluster.hardware.snapshot().driver_version
    annotate(cluster, {node_agent_adapter.HOOK: "story"})
    yield cluster
    cluster.node.kill_agent()  # an agent that is there may take the reload for the loss of a GPU
    cluster.hardware.reload_driver(before)
    cluster.node.start_agent()
    marks = (
        node_agent_adapter.HOOK,
        node_agent_adapter.WANTED,
        node_agent_adapter.SWAP,
        node_annotations.BASELINE,
        node_annotations.REHEARSE,
        node_annotations.REHEARSED,
    )
    annotate(cluster, dict.fromkeys(marks))
    cluster.wait_for("the old driver", lambda: published(cluster) == {before})


def annotate(cluster: GpuCluster, marks: dict[str, str | None] | dict[str, str]) -> None:
    change = {"metadata": {"annotations": marks}}
    cluster.live.rest.patch("nodes", cluster.node.name, change)


def node(cluster: GpuCluster) -> Tree:
    return cluster.live.rest.read("nodes", cluster.node.name)


def published(cluster: GpuCluster) -> set[str]:
    """The driver versions of the node's devices; a slice cannot spell a leading zero."""
    versions = {
        device["attributes"]["driverVersion"]["version"] for device in cluster.devices().values()
    }
    return {_padded(version) for version in versions}


def _padded(version: str) -> str:
    major, minor, patch = version.split(".")
    return f"{major}.{minor}.{patch:0>2}"


def begin(cluster: GpuCluster) -> None:
    """A person orders the driver; pods without a controller may go."""
    upgrade = {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "StackUpgrade",
        "metadata": {"name": NAME},
        "spec": {
            "to": {"driver": NEW},
            "waves": {"canary": 0, "maxUnavailable": "100%"},
            "drain": {"force": True, "checkpointSignal": False, "graceSeconds": 1},
        },
    }
    planes.apply(cluster.plane, [upgrade])


def state(cluster: GpuCluster) -> tuple[str, str, str]:
    """Phase of the upgrade, phase of the node, and the reason of either."""
    text = planes.kubectl(cluster.plane, "get", "stackupgrade", NAME, "-o", "json")
    status = json.loads(text).get("status", {})
    first = next(iter(status.get("nodes", [])), {})
    why = first.get("reason", "") or status.get("reason", "")
    return status.get("phase", ""), first.get("phase", ""), why


def prepared(cluster: GpuCluster) -> list[str]:
    """The claims of the agent's checkpoint."""
    plugin = cluster.node.kubelet_root / "plugins" / "gpu.nvidia.com"
    return list(json.loads((plugin / "checkpoint.json").read_bytes())["data"]["claims"])


def test_a_node_is_drained_while_the_agent_serves_gets_another_driver_and_work_returns(
    hooked: GpuCluster, tmp_path: Path
) -> None:
    cluster = hooked
    training = cluster.apply_example("whole-gpu.yaml")
    slices = cluster.apply_example("mig-slice.yaml")
    cluster.running(training)
    cluster.running(slices)
    assert len(prepared(cluster)) == 2
    checks = tmp_path / "checks.yaml"
    checks.write_text(yaml.safe_dump(CHECKS), encoding="utf-8")

    kubeconfig = cluster.plane.kubeconfig
    with healer_process.running(
        cluster.plane, kubeconfig, tmp_path, f"--checks={checks}"
    ) as process:

        def wait(what: str, is_so: Any) -> Any:
            try:
                return cluster.wait_for(what, is_so)
            except AssertionError as error:
                last = f"{state(cluster)}\n{process.log()[-3000:]}"
                raise AssertionError(f"{error}\n{last}") from None

        # The wrong order: with the agent gone first, pods end and cannot leave, and nothing is installed.
        cluster.node.kill_agent()
        begin(cluster)

        def has_ended(pod: Tree) -> bool:
            statuses = pod["status"].get("containerStatuses", [])
            return "deletionTimestamp" in pod["metadata"] and all(
                "terminated" in status["state"] for status in statuses
            )

        def stuck() -> bool:
            pods = cluster.live.pods(training) + cluster.live.pods(slices)
            return len(pods) == 2 and all(map(has_ended, pods))

        wait("pods that have ended and stay", stuck)
        wait("the drain to wait for them", lambda: "2 pods" in state(cluster)[2])
        assert state(cluster)[:2] == ("Progressing", "Draining")
        assert node_agent_adapter.WANTED not in node(cluster)["metadata"]["annotations"]
        assert len(prepared(cluster)) == 2

        # The right order: served until the last claim is undone, the agent may go, and so may the driver.
        cluster.node.start_agent()
        order = wait("the order of the driver", lambda: wanted(cluster))
        assert order == NEW
        assert cluster.live.pods(training) + cluster.live.pods(slices) == []
        assert prepared(cluster) == []
        assert list(cluster.node.cdi.glob("*claim*")) == []
        fences = node(cluster)["spec"].get("taints", [])
        assert (read_facts.FENCE, NAME) in {(taint["key"], taint.get("value")) for taint in fences}
        cluster.node.kill_agent()
        cluster.hardware.reload_driver(NEW)
        cluster.node.start_agent()
        annotate(cluster, {node_agent_adapter.SWAP: f"{NEW} done"})

        wait(
            "the end of the upgrade",
            lambda: state(cluster)[0] not in ("", "Pending", "Progressing"),
        )
        assert state(cluster)[:2] == ("Completed", "Done"), state(cluster)
        marks = node(cluster)["metadata"]["annotations"]
        rehearsal = node_annotations.rehearsal_of(marks)
        assert rehearsal is not None
        assert (rehearsal.result, rehearsal.device) == ("ok", "gpu-0")
        assert node(cluster)["spec"].get("taints", []) == []
        planes.kubectl(cluster.plane, "delete", "stackupgrade", NAME, "--timeout=60s")

    assert published(cluster) == {NEW}
    cluster.apply_example("whole-gpu.yaml")
    pod = cluster.running(training)["train"]
    assert "/dev/nvidiactl" in cluster.view(pod).device_paths
    for namespace in (training, slices):
        cluster.delete_namespace(namespace)


def wanted(cluster: GpuCluster) -> str:
    """The driver that the hook is ordered to swap in."""
    return str(node(cluster)["metadata"].get("annotations", {}).get(node_agent_adapter.WANTED, ""))

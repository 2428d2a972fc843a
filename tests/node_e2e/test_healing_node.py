"""A GPU fails on a real node and is healed: its pod moves, the agent resets it by its hook, and it serves again."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.model import node_annotations
from dovetail.upgrade.heal import heal_record
from tests.node_e2e.gpu_cluster import GpuCluster
from tests.support import cluster as planes
from tests.support import healer_process

pytestmark = pytest.mark.slow

DOUBLE_BIT_ERROR = 48  # the XID of an error that memory could not correct
POLICY = {"evictBarePods": True, "passSeconds": 1, "breakerSeconds": 1, "faultSeconds": 1}


@pytest.fixture
def resetting(cluster: GpuCluster) -> Iterator[GpuCluster]:
    """The cluster, whose agent has a command for resets; then again without."""
    cluster.node.kill_agent()
    cluster.start_agent(f"--reset-command={cluster.hardware.nvidia_smi} --gpu-reset -i {{gpus}}")
    yield cluster
    cluster.node.kill_agent()
    cluster.start_agent()


def resets(cluster: GpuCluster) -> list[int | None]:
    """The GPUs that were reset, one entry for each time."""
    return [change.gpu for change in cluster.hardware.history() if change.event == "reset"]


def containers(cluster: GpuCluster, namespace: str) -> list[str]:
    """The ids of the containers that run in a namespace."""
    statuses = [pod["status"]["containerStatuses"] for pod in cluster.live.pods(namespace)]
    return [status["containerID"] for listed in statuses for status in listed]


def annotations(cluster: GpuCluster) -> dict[str, str]:
    node = cluster.live.rest.read("nodes", cluster.node.name)
    return dict(node["metadata"].get("annotations", {}))


def test_a_faulty_gpu_is_emptied_reset_by_the_agent_and_serves_again(
    resetting: GpuCluster, tmp_path: Path
) -> None:
    cluster = resetting
    training = cluster.apply_example("whole-gpu.yaml")
    cluster.running(training)
    neighbour = cluster.apply_example("extended-resource.yaml")
    cluster.running(neighbour)
    before = containers(cluster, neighbour)
    (device,) = cluster.allocated(training)
    broken = int(device.removeprefix("gpu-"))
    earlier = resets(cluster)

    with healer_process.healing(cluster.plane, tmp_path, POLICY) as healer:

        def attempts() -> list[tuple[str, str, tuple[str, ...]]]:
            record = heal_record.record_of(annotations(cluster))
            assert isinstance(record, heal_record.Record)
            return [(each.rung, each.result, each.gpus) for each in record.attempts]

        cluster.hardware.inject_xid(broken, DOUBLE_BIT_ERROR)
        cluster.wait_for("the remedy's end", attempts, namespace=training)
        assert attempts() == [("reset-gpu", "healed", (device,))], healer.log()
        assert resets(cluster) == [*earlier, broken]
        assert cluster.live.pods(training) == []
        assert 'remedies_total{result="healed",rung="reset-gpu"} 1.0' in healer.metrics()

    assert not any(device.get("taints") for device in cluster.devices().values())
    assert node_annotations.HEAL_REQUEST not in annotations(cluster)
    assert containers(cluster, neighbour) == before, "the GPU beside it was left alone"
    reasons = {
        event["reason"]
        for event in cluster.live.rest.list("events", "default")
        if event["regarding"]["name"] == cluster.node.name
    }
    assert {"HealBegin", "HealMove", "HealRequest", "HealFinish"} <= reasons

    cluster.apply_example("whole-gpu.yaml")
    pod = cluster.running(training)["train"]
    assert cluster.allocated(training) == [device]
    assert f"/dev/nvidia{broken}" in cluster.view(pod).device_paths
    planes.kubectl(cluster.plane, "annotate", "node", cluster.node.name, f"{heal_record.RECORD}-")
    for namespace in (training, neighbour):
        cluster.delete_namespace(namespace)


def test_the_agent_may_answer_a_request_and_neither_change_it_nor_taint_its_node(
    cluster: GpuCluster,
) -> None:
    node = cluster.node

    def patched(change: dict[str, object]) -> str:
        words = ("patch", "node", node.name, "--type=merge", "-p", json.dumps(change))
        return node.as_agent(*words).stderr

    def is_refused() -> bool:  # the policy takes a moment to come into force
        forged = {node_annotations.REHEARSE: uuid.uuid4().hex}
        return "it may not change the requests" in patched({"metadata": {"annotations": forged}})

    cluster.wait_for("the API server to refuse a request by the agent", is_refused)
    tainted = {"spec": {"taints": [{"key": "example.com/a", "effect": "NoSchedule"}]}}
    assert "may not change the spec of its node" in patched(tainted)

    asked = {"metadata": {"annotations": {node_annotations.REHEARSE: "r-1"}}}
    planes.kubectl(
        cluster.plane, "patch", "node", node.name, "--type=merge", "-p", json.dumps(asked)
    )
    rehearsal = cluster.wait_for(
        "the agent's answer", lambda: node_annotations.rehearsal_of(annotations(cluster))
    )
    assert (rehearsal.id, rehearsal.result, rehearsal.device) == ("r-1", "ok", "gpu-0")
    gone = {"metadata": {"annotations": dict.fromkeys([node_annotations.REHEARSE], None)}}
    planes.kubectl(
        cluster.plane, "patch", "node", node.name, "--type=merge", "-p", json.dumps(gone)
    )

"""A GPU fails on a real node: its devices are tainted, the scheduler avoids them, its pods say so; and it recovers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from dovetail.node.health import node_report
from tests.node_e2e import gpu_cluster
from tests.node_e2e.gpu_cluster import GpuCluster, Tree
from tests.support import cluster as planes

pytestmark = pytest.mark.slow

DOUBLE_BIT_ERROR = 48  # the XID of an error that memory could not correct
RESET_GPU = 1  # NVML_GPU_RECOVERY_ACTION_GPU_RESET
KEY = "gpu.nvidia.com/xid"


@pytest.fixture
def training(cluster: GpuCluster) -> Iterator[str]:
    """A namespace with a running pod that has a whole GPU."""
    namespace = cluster.apply_example("whole-gpu.yaml")
    cluster.running(namespace)
    yield namespace
    cluster.delete_namespace(namespace)


def tainted(cluster: GpuCluster, effect: str = "NoSchedule") -> dict[str, list[Tree]]:
    """The taints of the node's devices with an effect, of those that have any."""
    taints = {
        name: [taint for taint in device.get("taints", []) if taint["effect"] == effect]
        for name, device in cluster.devices().items()
    }
    return {name: listed for name, listed in taints.items() if listed}


def gpus_of(devices: Iterable[str]) -> set[int]:
    """The GPUs that devices are, or are a part of."""
    return {int(name.split("-")[1]) for name in devices}


def condition(cluster: GpuCluster) -> tuple[str, str]:
    """Status and message of the Node's condition about its GPUs."""
    node = cluster.live.rest.read("nodes", cluster.node.name)
    for each in node["status"]["conditions"]:
        if each["type"] == node_report.CONDITION:
            return each["status"], each["message"]
    return "", ""


def reported_health(cluster: GpuCluster, namespace: str) -> list[tuple[str, str]]:
    """What the status of a namespace's pods says about the health of their devices: state and message."""
    containers = [
        status
        for pod in cluster.live.pods(namespace)
        for status in pod["status"].get("containerStatuses", [])
    ]
    resources = [
        resource
        for container in containers
        for listed in container.get("allocatedResourcesStatus", [])
        for resource in listed.get("resources", [])
    ]
    return [(resource.get("health", ""), resource.get("message", "")) for resource in resources]


def test_a_broken_gpu_is_avoided_until_it_is_reset(cluster: GpuCluster, training: str) -> None:
    (device,) = cluster.allocated(training)
    broken = int(device.split("-")[1])
    healthy = 1 - broken
    cluster.wait_for(
        "a healthy device in the pod's status",
        lambda: [state for state, _ in reported_health(cluster, training)] == ["Healthy"],
        namespace=training,
    )

    cluster.hardware.set_recovery_action(
        broken, RESET_GPU
    )  # first, so that the taint comes with it
    cluster.hardware.inject_xid(broken, DOUBLE_BIT_ERROR)

    taints = cluster.wait_for("taints", lambda: tainted(cluster))
    assert gpus_of(taints) == {broken}
    assert len(taints) == len(cluster.devices()) // gpu_cluster.GPUS  # the GPU and all its parts
    by_key = {taint["key"]: taint for taint in taints[device]}
    assert by_key[KEY]["value"] == str(DOUBLE_BIT_ERROR)

    def unhealthy() -> list[tuple[str, str]]:
        listed = reported_health(cluster, training)
        return [each for each in listed if each[0] == "Unhealthy"]

    ((_, message),) = cluster.wait_for("the pod's status", unhealthy, namespace=training)
    assert "xid 48: drain the GPU and reset it" in message
    cluster.wait_for("the Node's condition", lambda: condition(cluster)[0] == "False")
    assert f"gpu-{broken}: xid 48" in condition(cluster)[1]
    cluster.running(training)  # the agent evicts no pod

    # New work goes to the other GPU only, and waits when that is taken.
    partition = cluster.apply_example("mig-slice.yaml")
    cluster.running(partition)
    assert gpus_of(cluster.allocated(partition)) == {healthy}
    waiting = cluster.apply_example("extended-resource.yaml")
    cluster.wait_for("a reason to wait", lambda: cluster.is_unschedulable(waiting, "classic"))

    # Drained and reset, the GPU takes the waiting pod; the driver is trusted after ten quiet seconds.
    planes.kubectl(cluster.plane, "delete", "pod", "train", "-n", training, "--timeout=120s")
    cluster.hardware.reset(broken)
    cluster.wait_for("the end of the taints", lambda: cluster.devices() and not tainted(cluster))
    cluster.running(waiting)
    assert cluster.allocated(waiting) == [f"gpu-{broken}"]
    cluster.wait_for("the Node's condition", lambda: condition(cluster)[0] == "True")

    cluster.delete_namespace(partition)
    cluster.delete_namespace(waiting)


def test_an_error_of_an_application_is_shown_and_keeps_no_work_away(cluster: GpuCluster) -> None:
    cluster.hardware.inject_xid(0, 13)
    taints = cluster.wait_for("taints", lambda: tainted(cluster, "None"))
    assert gpus_of(taints) == {0}
    assert condition(cluster)[0] == "True"
    namespaces = [
        cluster.apply_example(name) for name in ("whole-gpu.yaml", "extended-resource.yaml")
    ]
    held = []
    for namespace in namespaces:
        cluster.running(namespace)
        held += cluster.allocated(namespace)
    assert sorted(held) == ["gpu-0", "gpu-1"]
    for namespace in namespaces:
        cluster.delete_namespace(namespace)

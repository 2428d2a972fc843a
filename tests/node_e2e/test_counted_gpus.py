"""GPUs as counted resources on a real kubelet, beside a node of the same cluster that serves claims."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.node_e2e.gpu_cluster import GpuCluster, Tree, pod_of
from tests.support import cluster as planes
from tests.support import gpu_node

pytestmark = pytest.mark.slow

RESOURCE = "nvidia.com/gpu"


@pytest.fixture
def counted(cluster: GpuCluster) -> Iterator[gpu_node.GpuNode]:
    """A second node, with one GPU that the agent serves as a device plugin."""
    with gpu_node.private_node(cluster.plane) as node:
        node.add_gpus("dgx-h100", gpus=1)
        node.start_agent("--mode=device-plugin")
        cluster.wait_for("a counted GPU", lambda: allocatable(node) == "1")
        yield node


def allocatable(node: gpu_node.GpuNode) -> str:
    """How many GPUs the kubelet counts, as the Node says it."""
    status = planes.api(node.plane).read("nodes", node.name)["status"]
    return str(status["allocatable"].get(RESOURCE, "0"))


def counted_pod(node: gpu_node.GpuNode, namespace: str, name: str) -> Tree:
    """The pod of the example, for this node."""
    pod = pod_of("extended-resource.yaml")
    pod["metadata"] = {"namespace": namespace, "name": name}
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node.name}
    return pod


def test_the_same_pod_gets_a_gpu_from_the_device_plugin_without_a_claim(
    cluster: GpuCluster, counted: gpu_node.GpuNode
) -> None:
    namespace = planes.fresh_namespace(cluster.plane)
    planes.apply(cluster.plane, [counted_pod(counted, namespace, "first")], namespace=namespace)
    pod = cluster.running(namespace)["first"]
    assert pod["spec"]["nodeName"] == counted.name
    view = counted.container_view(pod)
    assert "/dev/nvidia0" in view.device_paths
    assert cluster.claims(namespace) == []

    # The GPU is taken: the next pod waits, and gets it when the first one ends.
    planes.apply(cluster.plane, [counted_pod(counted, namespace, "second")], namespace=namespace)
    cluster.wait_for("a reason to wait", lambda: cluster.is_unschedulable(namespace, "second"))
    counted.delete_pod(namespace, "first")
    cluster.running(namespace)
    planes.kubectl(cluster.plane, "delete", "namespace", namespace, "--timeout=120s")


def test_a_counted_gpu_with_an_error_is_not_counted(
    cluster: GpuCluster, counted: gpu_node.GpuNode
) -> None:
    assert counted.hardware is not None
    counted.hardware.inject_xid(0, 48)
    cluster.wait_for("no counted GPU", lambda: allocatable(counted) == "0")

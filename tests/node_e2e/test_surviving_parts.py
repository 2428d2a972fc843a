"""Each part of a GPU node may end at any time: what runs goes on, what waits starts later, nothing is left behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dovetail.devcluster import kube_binaries
from dovetail.devcluster.real_node import node_layout
from tests.node_e2e.gpu_cluster import GpuCluster, Tree, pod_of
from tests.support import cluster as planes
from tests.support.waiting import GIVE_UP_SECONDS, wait_until

pytestmark = pytest.mark.slow

NEW_AGENT = "node-agent-new"


@pytest.fixture
def notebook(cluster: GpuCluster) -> Iterator[Tree]:
    """A running pod with a MIG device that was made for it."""
    namespace = cluster.apply_example("mig-slice.yaml")
    yield cluster.running(namespace)["notebook"]
    cluster.delete_namespace(namespace)


def namespace_of(pod: Tree) -> str:
    return str(pod["metadata"]["namespace"])


def containers_of(pod: Tree) -> list[tuple[str, int]]:
    """The container ids of a pod and how often each was started again."""
    statuses = pod["status"]["containerStatuses"]
    return [(status["containerID"], status["restartCount"]) for status in statuses]


def mig_devices(cluster: GpuCluster) -> list[str]:
    """The UUIDs of the MIG devices that exist."""
    instances = [
        instance for gpu in cluster.hardware.snapshot().gpus for instance in gpu.gpu_instances
    ]
    return [compute.uuid for instance in instances for compute in instance.compute_instances]


def check_that_it_runs_on(cluster: GpuCluster, pod: Tree, devices: list[str]) -> None:
    """The same container, on the same MIG device."""
    (now,) = cluster.running(namespace_of(pod)).values()
    assert containers_of(now) == containers_of(pod)
    assert mig_devices(cluster) == devices


def check_that_new_work_starts(cluster: GpuCluster) -> None:
    namespace = cluster.apply_example("whole-gpu.yaml")
    pod = cluster.running(namespace)["train"]
    (device,) = cluster.allocated(namespace)
    assert f"/dev/nvidia{device.removeprefix('gpu-')}" in cluster.view(pod).device_paths
    cluster.delete_namespace(namespace)


def test_a_restarted_kubelet_finds_the_agent_and_the_claims(
    cluster: GpuCluster, notebook: Tree
) -> None:
    devices = mig_devices(cluster)
    cluster.node.restart_kubelet()
    check_that_new_work_starts(cluster)
    check_that_it_runs_on(cluster, notebook, devices)


def test_a_restarted_containerd_gives_devices_to_new_containers(
    cluster: GpuCluster, notebook: Tree
) -> None:
    devices = mig_devices(cluster)
    cluster.node.restart_containerd()
    check_that_new_work_starts(cluster)
    check_that_it_runs_on(cluster, notebook, devices)


def test_a_pod_that_ends_while_the_agent_is_away_is_cleared_up_when_it_returns(
    cluster: GpuCluster,
) -> None:
    namespace = cluster.apply_example("mig-slice.yaml")
    pod = cluster.running(namespace)["notebook"]
    devices = mig_devices(cluster)
    cluster.node.kill_agent()
    check_that_it_runs_on(cluster, pod, devices)

    planes.kubectl(cluster.plane, "delete", "pod", "notebook", "-n", namespace, "--wait=false")
    kubelet_log = cluster.node.node.layout.log_of(node_layout.KUBELET)
    cluster.wait_for(
        "the kubelet to miss the agent",
        lambda: "unprepare dynamic resources" in kubelet_log.read_text(encoding="utf-8"),
        namespace=namespace,
    )
    assert mig_devices(cluster) == devices

    cluster.start_agent()
    cluster.wait_for("the end of the partition", lambda: not mig_devices(cluster))
    cluster.delete_namespace(namespace)


def test_a_node_that_reboots_makes_partitions_again_for_its_pods(
    cluster: GpuCluster, notebook: Tree
) -> None:
    devices = mig_devices(cluster)
    cluster.node.reboot()  # what the GPUs had in volatile memory is gone, too
    assert mig_devices(cluster) == []
    cluster.start_agent()

    def restarted() -> Tree | None:
        (pod,) = cluster.live.pods(namespace_of(notebook))
        statuses = pod["status"].get("containerStatuses", [])
        is_new = any("running" in status["state"] for status in statuses)
        return pod if is_new and containers_of(pod) != containers_of(notebook) else None

    pod = cluster.wait_for("the pod's new container", restarted, namespace=namespace_of(notebook))
    assert len(mig_devices(cluster)) == 1
    assert mig_devices(cluster) != devices
    view = cluster.view(pod)
    assert len([path for path in view.device_paths if "nvidia-caps" in path]) == 2


def test_without_the_api_server_an_agent_starts_and_containers_get_their_devices_again(
    cluster: GpuCluster, notebook: Tree
) -> None:
    devices = mig_devices(cluster)
    log_before = len(cluster.agent_log())
    cluster.plane.kill(kube_binaries.APISERVER)
    try:
        cluster.node.kill_agent()
        cluster.node.node.start_agent_again()
        cluster.node.kill_container(notebook)
        wait_until(
            lambda: cluster.node.runs_of(notebook) == 2,
            "the container's second run",
            so_far=lambda: cluster.agent_log()[log_before:],
        )
        assert mig_devices(cluster) == devices
    finally:
        cluster.plane.start(kube_binaries.APISERVER)
    view = cluster.view(notebook)
    assert len([path for path in view.device_paths if "nvidia-caps" in path]) == 2
    check_that_new_work_starts(cluster)


def test_an_upgrade_of_the_agent_under_load_loses_no_pod_and_makes_no_device_twice(
    cluster: GpuCluster,
) -> None:
    before = len(cluster.hardware.history())
    namespace = cluster.apply_example("mig-slice.yaml")
    node = cluster.node.node
    add_notebooks(cluster, namespace, 1, 4)
    node.start_agent_again("--pod-uid=new", process=NEW_AGENT)
    wait_for_registration(cluster, "gpu.nvidia.com-new-reg.sock")
    add_notebooks(cluster, namespace, 4, 7)
    node.kill(node_layout.AGENT, grace_seconds=GIVE_UP_SECONDS)
    add_notebooks(cluster, namespace, 7, 10)
    cluster.running(namespace, 10)
    assert len(mig_devices(cluster)) == 10

    # And back, while all of them end.
    planes.kubectl(cluster.plane, "delete", "pods", "--all", "-n", namespace, "--wait=false")
    node.start_agent_again()
    wait_for_registration(cluster, "gpu.nvidia.com-reg.sock")
    node.kill(NEW_AGENT, grace_seconds=GIVE_UP_SECONDS)
    cluster.delete_namespace(namespace)
    cluster.wait_for("the end of the partitions", lambda: not mig_devices(cluster))
    events = [change.event for change in cluster.hardware.history()[before:]]
    assert events.count("gpu-instance-created") == 10
    assert events.count("gpu-instance-destroyed") == 10


def wait_for_registration(cluster: GpuCluster, socket: str) -> None:
    """Waits until an instance of the agent invites the kubelet, as readiness does in a rolling update."""
    path = cluster.node.kubelet_root / "plugins_registry" / socket
    cluster.wait_for(f"{socket}", path.exists)


def add_notebooks(cluster: GpuCluster, namespace: str, first: int, end: int) -> None:
    """More pods like the one of the example."""
    pod = pod_of("mig-slice.yaml")
    pods = [
        pod | {"metadata": {"namespace": namespace, "name": f"notebook-{index}"}}
        for index in range(first, end)
    ]
    planes.apply(cluster.plane, pods, namespace=namespace)

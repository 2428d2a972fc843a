"""Every example under examples/node runs on a real kubelet: containers see their devices, and GPUs are put back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.node_e2e import gpu_cluster
from tests.node_e2e.gpu_cluster import GpuCluster, Tree
from tests.support import gpu_node

pytestmark = pytest.mark.slow

TOGETHER_BYTES = "10240M"  # 10Gi, as MPS counts


def gpu_nodes(view: gpu_node.View) -> list[str]:
    """The GPUs among the device nodes of a container."""
    return [path for path in view.device_paths if path.removeprefix("/dev/nvidia").isdecimal()]


def capability_nodes(view: gpu_node.View) -> list[str]:
    """The MIG capabilities among the device nodes of a container."""
    return [path for path in view.device_paths if path.startswith("/dev/nvidia-caps/")]


def node_of(device: str) -> str:
    """The device node of the GPU that a device is, or is a part of."""
    return f"/dev/nvidia{device.split('-')[1]}"


def check_a_whole_gpu(cluster: GpuCluster, namespace: str) -> None:
    pod = cluster.running(namespace)["train"]
    (device,) = cluster.allocated(namespace)
    view = cluster.view(pod)
    assert gpu_nodes(view) == [node_of(device)]
    assert capability_nodes(view) == []
    assert {"/dev/nvidiactl", "/dev/nvidia-uvm"} <= set(view.device_paths)
    # Spelled out for programs of the container toolkit: they must not add GPUs of their own.
    assert view.environment["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert any("libcuda.so" in mount for mount in view.mounts)


def check_a_partition(cluster: GpuCluster, namespace: str) -> None:
    pod = cluster.running(namespace)["notebook"]
    (device,) = cluster.allocated(namespace)
    view = cluster.view(pod)
    assert gpu_nodes(view) == [node_of(device)]
    assert len(capability_nodes(view)) == 2  # GPU instance and compute instance

    minor = int(device.split("-")[1])
    (instance,) = cluster.hardware.snapshot().gpus[minor].gpu_instances
    assert instance.profile == "1g.10gb"
    (compute,) = instance.compute_instances
    (reported,) = cluster.wait_for("the claim's status", lambda: reports(cluster, namespace))
    assert reported["data"]["uuid"] == compute.uuid


def check_two_containers(cluster: GpuCluster, namespace: str) -> None:
    pod = cluster.running(namespace)["pipeline"]
    (device,) = cluster.allocated(namespace)
    assert gpu_nodes(cluster.view(pod, "decode")) == [node_of(device)]
    assert gpu_nodes(cluster.view(pod, "infer")) == [node_of(device)]
    assert gpu_nodes(cluster.view(pod, "log")) == []


def check_turns(cluster: GpuCluster, namespace: str) -> None:
    pods = cluster.running(namespace, 2)
    (device,) = cluster.allocated(namespace)
    assert gpu_nodes(cluster.view(pods["first"])) == [node_of(device)]
    assert gpu_nodes(cluster.view(pods["second"])) == [node_of(device)]
    gpu = cluster.hardware.snapshot().gpus[int(device.split("-")[1])]
    assert gpu.time_slice == 3  # nvidia-smi's number for a long time slice


def check_mps(cluster: GpuCluster, namespace: str) -> None:
    pods = cluster.running(namespace, 2)
    (device,) = cluster.allocated(namespace)
    (daemon,) = cluster.hardware.snapshot().mps_daemons
    gpu = cluster.hardware.snapshot().gpus[int(device.split("-")[1])]
    assert daemon.active_thread_percentage == 50
    assert TOGETHER_BYTES in daemon.pinned_memory_limit
    assert daemon.visible_devices == gpu.uuid
    assert gpu.compute_mode == 3  # exclusive process: the daemon's
    for name in ("first", "second"):
        view = cluster.view(pods[name])
        assert gpu_nodes(view) == [node_of(device)]
        assert view.environment["CUDA_MPS_PIPE_DIRECTORY"] in view.mounts
        assert "/dev/shm" in view.mounts


def check_first_available(cluster: GpuCluster, namespace: str) -> None:
    pod = cluster.running(namespace)["evaluate"]
    (claim,) = cluster.claims(namespace)
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert result["request"] == "gpu/half"  # these GPUs are no Blackwells
    assert len(capability_nodes(cluster.view(pod))) == 2


def check_admin_access(cluster: GpuCluster, namespace: str) -> None:
    pod = cluster.running(namespace)["monitor"]
    view = cluster.view(pod)
    assert gpu_nodes(view) == [f"/dev/nvidia{minor}" for minor in range(gpu_cluster.GPUS)]


def check_a_counted_gpu(cluster: GpuCluster, namespace: str) -> None:
    pod = cluster.running(namespace)["classic"]
    (device,) = cluster.allocated(namespace)
    assert gpu_nodes(cluster.view(pod)) == [node_of(device)]


CHECKS: dict[str, Callable[[GpuCluster, str], None]] = {
    "whole-gpu.yaml": check_a_whole_gpu,
    "mig-slice.yaml": check_a_partition,
    "two-containers.yaml": check_two_containers,
    "time-slicing.yaml": check_turns,
    "mps.yaml": check_mps,
    "first-available.yaml": check_first_available,
    "admin-access.yaml": check_admin_access,
    "extended-resource.yaml": check_a_counted_gpu,
}


def reports(cluster: GpuCluster, namespace: str) -> list[Tree]:
    """What the agent wrote about the devices of a namespace's one claim."""
    (claim,) = cluster.claims(namespace)
    return list(claim["status"].get("devices") or [])


def test_every_example_is_run() -> None:
    assert {path.name for path in gpu_cluster.EXAMPLES.glob("*")} == set(CHECKS)


@pytest.mark.parametrize("name", CHECKS)
def test_an_example_gets_its_devices_and_gives_them_back(cluster: GpuCluster, name: str) -> None:
    namespace = cluster.apply_example(name)
    try:
        CHECKS[name](cluster, namespace)
    finally:
        cluster.delete_namespace(namespace)


def test_a_monitor_sees_the_gpus_that_others_use(cluster: GpuCluster) -> None:
    training = cluster.apply_example("whole-gpu.yaml")
    cluster.running(training)
    monitoring = cluster.apply_example("admin-access.yaml")
    try:
        check_admin_access(cluster, monitoring)
    finally:
        cluster.delete_namespace(training)
        cluster.delete_namespace(monitoring)

"""Plain pods on a real node run, keep running while parts of the node restart, and start again after a reboot."""

from __future__ import annotations

import ipaddress
import subprocess
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from dovetail.devcluster.real_node import cgroups, container_image, node_layout
from tests.support import cluster, gpu_node
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

KUBELET_SETTINGS = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops")


@pytest.fixture
def node() -> gpu_node.GpuNode:
    return gpu_node.gpu_node()


@pytest.fixture
def namespace(node: gpu_node.GpuNode) -> str:
    return cluster.fresh_namespace(node.plane)


def container_of(node: gpu_node.GpuNode, pod: Mapping[str, Any]) -> tuple[str, int]:
    """The id and the number of restarts of a pod's container, as the kubelet reports them."""
    metadata = pod["metadata"]
    now = cluster.api(node.plane).read("pods", metadata["name"], metadata["namespace"])
    (status,) = now["status"]["containerStatuses"]
    return status["containerID"], status["restartCount"]


def test_a_pod_runs_and_prints_its_environment(node: gpu_node.GpuNode, namespace: str) -> None:
    pod = node.run_pod(namespace, environment={"GREETING": "hello"})
    assert pod["spec"]["nodeName"] == node.name
    assert ipaddress.ip_address(pod["status"]["podIP"]) in node.node.pod_network
    view = node.container_view(pod)
    assert view.arguments == ["view"]
    assert view.environment["GREETING"] == "hello"
    assert "/dev/null" in view.device_paths
    node.delete_pod(namespace, pod["metadata"]["name"])


def test_a_pod_that_exits_succeeds_and_one_that_fails_fails(
    node: gpu_node.GpuNode, namespace: str
) -> None:
    ends = {"restartPolicy": "Never"}
    node.run_pod(namespace, arguments=("exit", "0"), spec=ends, phase="Succeeded")
    failed = node.run_pod(namespace, arguments=("exit", "3"), spec=ends, phase="Failed")
    (status,) = failed["status"]["containerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == 3


def test_a_pod_with_limits_is_in_a_cgroup_of_the_node(
    node: gpu_node.GpuNode, namespace: str
) -> None:
    limits = {"resources": {"limits": {"cpu": "500m", "memory": "64Mi"}}}
    pod = node.run_pod(namespace, container=limits)
    assert pod["status"]["qosClass"] == "Guaranteed"
    uid = pod["metadata"]["uid"]
    places = [place / "kubepods" / f"pod{uid}" for place in cgroups.existing(node.cgroup)]
    assert any(place.is_dir() for place in places), places


def test_a_container_has_the_volumes_of_its_pod(node: gpu_node.GpuNode, namespace: str) -> None:
    cluster.kubectl(
        node.plane, "create", "configmap", "words", "--from-literal=a=b", "-n", namespace
    )
    volumes = [
        {"name": "words", "configMap": {"name": "words"}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
        {"name": "host", "hostPath": {"path": str(node.cdi)}},
    ]
    mounts = [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in volumes]
    pod = node.run_pod(namespace, container={"volumeMounts": mounts}, spec={"volumes": volumes})
    assert {"/words", "/memory", "/host"} <= set(node.container_view(pod).mounts)


def test_the_kubelets_sockets_are_where_plugins_look_for_them(node: gpu_node.GpuNode) -> None:
    sockets = ("device-plugins/kubelet.sock", "pod-resources/kubelet.sock")
    absent = [name for name in sockets if not (node.kubelet_root / name).is_socket()]
    assert absent == []
    assert (node.kubelet_root / "plugins_registry").is_dir()


def test_the_api_server_fetches_logs_from_the_kubelet(
    node: gpu_node.GpuNode, namespace: str
) -> None:
    pod = node.run_pod(namespace)
    text = cluster.kubectl(node.plane, "logs", pod["metadata"]["name"], "-n", namespace)
    assert msgspec.json.decode(text, type=gpu_node.View) == node.container_view(pod)


def test_a_command_runs_in_a_container_that_runs(node: gpu_node.GpuNode, namespace: str) -> None:
    pod = node.run_pod(namespace, environment={"GREETING": "hello"})
    command = ["--", container_image.ENTRY_POINT, "exit", "0"]
    text = cluster.kubectl(node.plane, "exec", pod["metadata"]["name"], "-n", namespace, *command)
    view = msgspec.json.decode(text, type=gpu_node.View)
    assert (view.arguments, view.environment["GREETING"]) == (["exit", "0"], "hello")


def test_a_pod_outlives_a_restart_of_the_kubelet_and_of_containerd(
    node: gpu_node.GpuNode, namespace: str
) -> None:
    pod = node.run_pod(namespace)
    before = container_of(node, pod)

    old_kubelet = node.node.pid_of(node_layout.KUBELET)
    node.restart_kubelet()
    assert node.node.pid_of(node_layout.KUBELET) != old_kubelet
    old_containerd = node.node.pid_of(node_layout.CONTAINERD)
    node.restart_containerd()
    assert node.node.pid_of(node_layout.CONTAINERD) != old_containerd

    # The kubelet has synced again when it has started another pod.
    node.run_pod(namespace)
    assert container_of(node, pod) == before


def test_a_reboot_changes_the_boot_id_and_starts_the_containers_again() -> None:
    with gpu_node.private_node() as node:
        namespace = cluster.fresh_namespace(node.plane)
        pod = node.run_pod(namespace)
        old_container, old_restarts = container_of(node, pod)
        old_boot = node.boot_id_file.read_text()

        node.reboot()
        assert node.boot_id_file.read_text() != old_boot
        wait_until(
            lambda: container_of(node, pod)[1] > old_restarts, "the restart of the container"
        )
        assert container_of(node, pod)[0] != old_container
        status = cluster.get(node.plane, "node", node.name)["status"]
        assert status["nodeInfo"]["bootID"] == node.boot_id_file.read_text().strip()


def test_the_kubelet_may_change_no_node_but_its_own(node: gpu_node.GpuNode) -> None:
    other = cluster.get(node.plane, "nodes")["items"]
    assert node.name in [tree["metadata"]["name"] for tree in other]
    cluster.apply(
        node.plane,
        [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"{node.name}-not-mine"}}],
    )
    for name, is_allowed in ((node.name, True), (f"{node.name}-not-mine", False)):
        label = cluster.run_kubectl(
            node.plane, "label", "node", name, "dovetail.dev/test=1", kubeconfig=node.kubeconfig
        )
        assert (label.returncode == 0) is is_allowed, label.stderr
    cluster.kubectl(node.plane, "delete", "node", f"{node.name}-not-mine")


def test_the_kernel_of_this_machine_keeps_its_settings(node: gpu_node.GpuNode) -> None:
    inside = node.node.command_inside(["cat", *(f"/proc/sys/{path}" for path in KUBELET_SETTINGS)])
    seen = subprocess.run(inside, capture_output=True, text=True, check=True).stdout.split()
    assert seen == ["1", "10", "1"]
    mounted = subprocess.run(["mount"], capture_output=True, text=True, check=True).stdout
    assert str(node.node.layout.home) not in mounted

"""A real node for tests: kubelet, containerd and runc on the control plane that the tests of this process share.

`gpu_node` gives the shared one, `private_node` one that a test may break; `stop_all` ends the shared one at the end of
the session. Pods run the one image there is, whose program prints what a container sees (`container_view`). Where the
machine cannot run a node, tests skip, or fail under REQUIRE_REAL=1.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from dovetail.devcluster import control_plane as controlplane
from dovetail.devcluster import go_build, kube_binaries
from dovetail.devcluster.fake_gpus import hardware
from dovetail.devcluster.real_node import (
    container_image,
    node_agent_command,
    node_layout,
    node_object,
    node_programs,
    real_node,
)
from tests.support import cluster, real
from tests.support.waiting import wait_until

PART: Final = "node"  # as tools/realparts.py names it
CONTAINER: Final = "main"
IMAGE: Final = container_image.NAME

_shared: list[GpuNode] = []


class Device(msgspec.Struct, frozen=True):
    """A device node inside a container. `open` is "ok" or the kernel's reason for refusing."""

    path: str
    kind: str
    major: int
    minor: int
    open: str


class View(msgspec.Struct, frozen=True):
    """What a container sees."""

    arguments: list[str]
    environment: dict[str, str]
    devices: list[Device]
    mounts: list[str]

    @property
    def device_paths(self) -> list[str]:
        """The paths of the device nodes."""
        return sorted(device.path for device in self.devices)


class GpuNode:
    """A running node and the verbs that tests use on it."""

    def __init__(
        self,
        plane: controlplane.ControlPlane,
        node: real_node.RealNode,
        scratch: tempfile.TemporaryDirectory[str],
    ) -> None:
        self.plane = plane
        self.node = node
        self.hardware: hardware.Hardware | None = None
        self._scratch = scratch

    @property
    def name(self) -> str:
        """The name of the Node."""
        return self.node.name

    @property
    def kubelet_root(self) -> Path:
        """The kubelet's root directory: plugins, plugins_registry, pod-resources and pods are below."""
        return self.node.layout.kubelet_root

    @property
    def cdi(self) -> Path:
        """Where containerd looks for CDI specs."""
        return self.node.layout.cdi

    @property
    def cgroup(self) -> str:
        """The cgroup of the node, below which those of its pods are."""
        return self.node.layout.cgroup

    @property
    def boot_id_file(self) -> Path:
        """The file with the boot id of the node; `reboot` changes it."""
        return self.node.layout.boot_id

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the kubelet's user."""
        return self.node.layout.kubeconfig

    def run_pod(
        self,
        namespace: str,
        name: str | None = None,
        *,
        arguments: Sequence[str] = ("view",),
        environment: Mapping[str, str] | None = None,
        container: Mapping[str, Any] | None = None,
        spec: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        phase: str | None = "Running",
    ) -> dict[str, Any]:
        """Creates a pod that is bound to this node and waits for its phase, if one is given.

        `container` and `spec` are further fields of its one container and of its spec; a `nodeName` of None in `spec`
        leaves the binding to a scheduler.
        """
        tree = self.pod(
            name or f"pod-{uuid.uuid4().hex[:8]}",
            arguments=arguments,
            environment=environment,
            container=container,
            spec=spec,
            metadata=metadata,
        )
        cluster.kubectl(
            self.plane,
            *("create", "-n", namespace, "-f", "-"),
            input=msgspec.json.encode(tree).decode(),
        )
        if phase is None:
            return self._pod(namespace, tree["metadata"]["name"])
        return self.wait_for_phase(namespace, tree["metadata"]["name"], phase)

    def pod(
        self,
        name: str,
        *,
        arguments: Sequence[str] = ("view",),
        environment: Mapping[str, str] | None = None,
        container: Mapping[str, Any] | None = None,
        spec: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """A pod of one container for this node, as a tree."""
        variables = [{"name": key, "value": value} for key, value in (environment or {}).items()]
        main = {
            "name": CONTAINER,
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "args": list(arguments),
            "env": variables,
        }
        whole = {
            "nodeName": self.name,
            "containers": [main | dict(container or {})],
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
        } | dict(spec or {})
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name} | dict(metadata or {}),
            "spec": {key: value for key, value in whole.items() if value is not None},
        }

    def wait_for_phase(self, namespace: str, name: str, phase: str) -> dict[str, Any]:
        """The pod, as soon as it is in this phase."""

        def reached() -> dict[str, Any] | None:
            pod = self._pod(namespace, name)
            return pod if pod["status"].get("phase") == phase else None

        pod: dict[str, Any] = wait_until(
            reached,
            f"{namespace}/{name} to be {phase}",
            so_far=lambda: self._story(namespace, name),
        )
        return pod

    def bind(self, namespace: str, name: str) -> None:
        """Binds a pod to this node, as a scheduler does."""
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.name},
        }
        cluster.kubectl(
            self.plane,
            *("create", "--raw", f"/api/v1/namespaces/{namespace}/pods/{name}/binding"),
            *("-f", "-"),
            input=msgspec.json.encode(binding).decode(),
        )

    def delete_pod(self, namespace: str, name: str) -> None:
        """Deletes a pod and waits until it is gone."""
        cluster.kubectl(self.plane, "delete", "pod", name, "-n", namespace, "--timeout=120s")

    def container_view(self, pod: Mapping[str, Any], container: str = CONTAINER) -> View:
        """What the newest run of a container printed, read from the kubelet's log file."""
        line: str = wait_until(
            lambda: next(iter(self.log_lines(pod, container)), None),
            f"the first line of {pod['metadata']['name']}/{container}",
        )
        return msgspec.json.decode(line, type=View)

    def log_lines(self, pod: Mapping[str, Any], container: str = CONTAINER) -> list[str]:
        """What the newest run of a container wrote to stdout."""
        files = self._runs(pod, container)
        if not files:
            return []
        return _stdout_of(files[-1].read_text(encoding="utf-8"))

    def restart_kubelet(self) -> None:
        """Kills the kubelet and starts it again; returns when the node is ready."""
        self.node.restart_kubelet()

    def restart_containerd(self) -> None:
        """Kills containerd and starts it again."""
        self.node.restart_containerd()

    def reboot(self) -> None:
        """Ends everything on the node, wipes what lives in memory, and boots it with another boot id.

        The driver of its GPUs is loaded again; the node agent is not started.
        """
        self.node.power_off()
        if self.hardware is not None:
            self.hardware.reload_driver()
        self.node.boot()

    def add_gpus(self, machine: str = "dgx-h100", **options: Any) -> hardware.Hardware:
        """Puts fake GPUs into the node. `options` are those of `Hardware.create`."""
        if shutil.which("gcc") is None:
            real.missing("gcc, to build the fake libnvidia-ml with")
        self.hardware = hardware.Hardware.create(
            self.node.layout.home / "gpus", machine=machine, **options
        )
        return self.hardware

    def start_agent(self, *options: str) -> None:
        """Starts `dovetail node-agent` for the GPUs of the node; `options` are further ones of it."""
        assert self.hardware is not None, "add_gpus comes first"
        roots = (
            self.hardware.driver_root,
            self.hardware.sysfs_root,
            self.hardware.proc_root,
        )
        self.node.start_agent(node_agent_command.DriverFiles(*roots), options=options)

    def as_agent(self, *arguments: str, tree: Any = None) -> subprocess.CompletedProcess[str]:
        """kubectl with the rights of the node agent, however it ends."""
        text = None if tree is None else msgspec.json.encode(tree).decode()
        kubeconfig = self.node.layout.agent_kubeconfig
        return cluster.run_kubectl(self.plane, *arguments, input=text, kubeconfig=kubeconfig)

    def kill_agent(self) -> None:
        """Kills the node agent, as a crash would."""
        self.node.kill(node_layout.AGENT)

    def kill_container(self, pod: Mapping[str, Any]) -> None:
        """Kills the first process of a pod's first container; the kubelet starts it again."""
        identifier = pod["status"]["containerStatuses"][0]["containerID"].removeprefix(
            "containerd://"
        )
        self.node.ctr("tasks", "kill", "--signal=SIGKILL", identifier)

    def runs_of(self, pod: Mapping[str, Any], container: str = CONTAINER) -> int:
        """How often a container was started, by the log files of its runs."""
        files = self._runs(pod, container)
        return int(files[-1].stem) + 1 if files else 0

    def stop(self) -> None:
        """Ends the node and deletes its Node."""
        self.node.stop()
        node_object.delete(self.plane, self.node.layout)
        self._scratch.cleanup()

    def _runs(self, pod: Mapping[str, Any], container: str) -> list[Path]:
        """The log files of a container, the newest last."""
        metadata = pod["metadata"]
        directory = "_".join([metadata["namespace"], metadata["name"], metadata["uid"]])
        runs = self.node.layout.pod_logs / directory / container
        return sorted(runs.glob("*.log"), key=lambda file: int(file.stem))

    def _pod(self, namespace: str, name: str) -> dict[str, Any]:
        return cluster.api(self.plane).read("pods", name, namespace)

    def _story(self, namespace: str, name: str) -> str:
        """What the kubelet said about a pod."""
        return cluster.run_kubectl(self.plane, "describe", "pod", name, "-n", namespace).stdout


def gpu_node() -> GpuNode:
    """The node that all tests of this process share, on the control plane they share."""
    if not _shared:
        _shared.append(_started(cluster.control_plane()))
    return _shared[0]


@contextlib.contextmanager
def private_node(plane: controlplane.ControlPlane | None = None) -> Iterator[GpuNode]:
    """A node that only this test uses, and may break."""
    node = _started(plane or cluster.control_plane())
    try:
        yield node
    finally:
        node.stop()


def stop_all() -> None:
    """Ends the shared node. Meant for the teardown of a session fixture, before the control planes end."""
    while _shared:
        _shared.pop().stop()


def need_node() -> None:
    """Skips, or fails under REQUIRE_REAL=1, where no real node can run."""
    real.refuse_unbuilt(PART)
    if refusal := node_programs.refusal():
        real.missing(refusal)
    try:
        node_programs.programs()
    except kube_binaries.PartsMissing as missing:
        real.missing(str(missing))
    except go_build.BuildFailed as failed:
        pytest.fail(str(failed), pytrace=False)


def _started(plane: controlplane.ControlPlane) -> GpuNode:
    need_node()
    scratch = tempfile.TemporaryDirectory(prefix="dovetail-node-", ignore_cleanup_errors=True)
    name = f"gpu-{uuid.uuid4().hex[:6]}"
    try:
        node = real_node.start(plane, name, directory=Path(scratch.name))
    except BaseException:
        scratch.cleanup()
        raise
    return GpuNode(plane, node, scratch)


def _stdout_of(log: str) -> list[str]:
    """The lines of stdout in a log as CRI lays it out: time, stream, tag, text. Long lines come in parts, tagged P."""
    lines: list[str] = []
    pending = ""
    for record in log.splitlines():
        _, stream, tag, text = record.split(" ", 3)
        if stream != "stdout":
            continue
        pending += text
        if tag == "F":
            lines.append(pending)
            pending = ""
    return lines

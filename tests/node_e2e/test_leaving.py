"""A node leaves nothing behind: no process, no mount, no cgroup, no network interface, no file."""

from __future__ import annotations

import ipaddress
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from dovetail.devcluster import control_plane, processes
from dovetail.devcluster.real_node import cgroups, machine, node_layout, node_record
from tests.cli import running
from tests.support import cluster, gpu_node
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


class Traces:
    """What a node makes on this machine, noted while it runs."""

    def __init__(self, layout: node_layout.NodeLayout, machine_pid: int) -> None:
        self.layout = layout
        (first,) = machine.children_of(machine_pid)
        self.namespace = os.readlink(f"/proc/{first}/ns/pid_for_children")
        self.pids = _processes_in(self.namespace)
        network = msgspec.json.decode((layout.configuration / "cni/pods.conflist").read_bytes())
        (ranges,) = network["plugins"][0]["ipam"]["ranges"]
        self.network = ipaddress.IPv4Network(ranges[0]["subnet"])
        self.interfaces = _interfaces_to(self.network)

    def left(self) -> list[str]:
        """What of it is still there, in words."""
        remaining = [f"process {pid}" for pid in _processes_in(self.namespace)]
        remaining += [f"cgroup {place}" for place in cgroups.existing(self.layout.cgroup)]
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
        if str(self.layout.home) in mounts:
            remaining.append("a mount")
        if self.layout.home.exists():
            remaining.append(f"the directory {self.layout.home}")
        remaining += [f"interface {name}" for name in sorted(_interfaces_to(self.network))]
        return remaining


def _processes_in(namespace: str) -> set[int]:
    """The processes of this machine that are in a namespace of processes."""
    inside: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if os.readlink(entry / "ns" / "pid") == namespace:
                    inside.add(int(entry.name))
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
    return inside


def _interfaces_to(network: ipaddress.IPv4Network) -> set[str]:
    """The interfaces of this machine behind which addresses of a network are."""
    lines = Path("/proc/net/route").read_text(encoding="ascii").splitlines()[1:]
    routes = [line.split() for line in lines]
    return {name for name, address, *_ in routes if _address(address) in network}


def _address(field: str) -> ipaddress.IPv4Address:
    """An address as the kernel writes it, with its bytes in the order of this machine."""
    return ipaddress.IPv4Address(int(field, 16).to_bytes(4, sys.byteorder))


def dev(place: Path, *arguments: str) -> running.Run:
    kept = {name: os.environ[name] for name in ("XDG_CACHE_HOME", "HOME") if name in os.environ}
    return running.outside(place.parent / "state", "dev", *arguments, "--dir", str(place), **kept)


def test_a_stopped_node_leaves_nothing_behind() -> None:
    with gpu_node.private_node() as node:
        node.run_pod(cluster.fresh_namespace(node.plane))
        machine_name = node.node.layout.process_name(node_layout.MACHINE)
        traces = Traces(node.node.layout, node.node.roster.all()[machine_name].pid)
        assert len(traces.pids) >= 5  # first process, containerd, kubelet, shim, pause, container
        assert len(traces.interfaces) == 1
    # The kernel takes a network namespace apart after its last process has ended.
    wait_until(lambda: not traces.left(), "the end of the node", so_far=lambda: str(traces.left()))


def test_a_killed_machine_takes_every_process_and_mount_of_the_node_with_it() -> None:
    with gpu_node.private_node() as node:
        node.run_pod(cluster.fresh_namespace(node.plane))
        machine_name = node.node.layout.process_name(node_layout.MACHINE)
        pid = node.node.roster.all()[machine_name].pid
        traces = Traces(node.node.layout, pid)
        os.kill(pid, signal.SIGKILL)
        wait_until(
            lambda: not _processes_in(traces.namespace), "the end of all processes of the node"
        )
    wait_until(lambda: not traces.left(), "the end of the node", so_far=lambda: str(traces.left()))


def test_a_killed_test_process_takes_its_node_with_it(tmp_path: Path) -> None:
    gpu_node.need_node()
    script = """if True:
        import sys
        from dovetail.devcluster.real_node import node_layout
        from tests.support import gpu_node
        node = gpu_node.gpu_node().node
        pid = node.roster.all()[node.layout.process_name(node_layout.MACHINE)].pid
        print(node.layout.home, pid, flush=True)
        sys.stdin.read()
    """
    environment = os.environ | {"TMPDIR": str(tmp_path)}  # where its control plane is
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env=environment,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        home, pid = owner.stdout.readline().split()
        traces = Traces(node_layout.NodeLayout(name="", home=Path(home)), int(pid))
        owner.kill()
    wait_until(lambda: not _processes_in(traces.namespace), "the end of all processes of the node")
    # The next node to start clears up; another test process may have done so by now.
    node_record.remove_orphans()
    wait_until(lambda: not traces.left(), "the end of the node", so_far=lambda: str(traces.left()))


def test_dev_up_with_a_kubelet_runs_pods_and_dev_down_leaves_nothing(tmp_path: Path) -> None:
    gpu_node.need_node()
    cluster.parts()
    place = tmp_path / "cluster"
    try:
        up = dev(place, "up", "--nodes", "1", "--kubelet")
        assert up.code == 0, up.err
        assert "node real-0 ready after " in up.err

        status = msgspec.json.decode(dev(place, "status", "-o", "json").out)
        assert (status["isUp"], status["nodes"], status["nodesReady"]) == (True, 2, 2)
        health = {part["name"]: part["health"] for part in status["parts"]}
        assert {"machine@real-0", "containerd@real-0"} <= health.keys()
        assert health["kubelet@real-0"] == "ok"
        check_that_a_pod_runs(status)

        roster = processes.ProcessRecords(place / control_plane.ROSTER).all()
        layout = node_record.layouts(place)["real-0"]
        traces = Traces(layout, roster["machine@real-0"].pid)
        assert traces.left() != []
        # As if the machine had run out of memory: the kubelet and containerd are gone when `down` comes.
        for name in ("kubelet@real-0", "containerd@real-0"):
            os.kill(roster[name].pid, signal.SIGKILL)
    finally:
        down = dev(place, "down")
    assert down.code == 0, down.err
    wait_until(lambda: not traces.left(), "the end of the node", so_far=lambda: str(traces.left()))
    assert not place.exists()


def check_that_a_pod_runs(status: dict[str, str]) -> None:
    kubectl = [status["kubectl"], f"--kubeconfig={status['kubeconfig']}", "-n", "default"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "plain"},
        "spec": {
            "nodeSelector": {"dovetail.dev/real-kubelet": "true"},
            "containers": [
                {
                    "name": "main",
                    "image": gpu_node.IMAGE,
                    "imagePullPolicy": "Never",
                    "args": ["view"],
                }
            ],
        },
    }
    subprocess.run([*kubectl, "create", "-f", "-"], input=msgspec.json.encode(pod), check=True)
    wait = ["wait", "pod/plain", "--for=condition=Ready", "--timeout=120s"]
    subprocess.run([*kubectl, *wait], check=True)
    logs = subprocess.run([*kubectl, "logs", "plain"], check=True, capture_output=True).stdout
    assert msgspec.json.decode(logs, type=gpu_node.View).arguments == ["view"]

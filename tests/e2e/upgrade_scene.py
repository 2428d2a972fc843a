"""What runs on nodes while `dovetail lifecycle` upgrades them on a real API server, and the process itself.

Kubelets report, evicted pods end, and a driver hook swaps drivers when its annotation says so. The process runs as the
chart's service account, with the chart's rights or those a test leaves it.
"""

from __future__ import annotations

import datetime
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from dovetail.devcluster import control_plane, free_ports
from dovetail.install import chart
from dovetail.upgrade.adapters import node_agent_adapter
from tests.support import cluster as planes
from tests.support import live, rest, waiting

Tree = dict[str, Any]
ACCOUNT: Final = "dovetail-lifecycle"
NAMESPACE: Final = live.RELEASE.namespace
DRIVER: Final = "nvidia.com/cuda.driver-version.full"
OLD, NEW = "570.10.0", "580.20.0"
GPUS: Final = 2
HEARTBEAT_SECONDS: Final = 10.0  # of a kubelet; the node lifecycle controller gives up after 40
PROGRAM: Final = Path(sys.executable).with_name("dovetail")


def installed() -> list[Tree]:
    """What the chart has for the process, and the definition of upgrades."""
    values = chart.values_of(settings=["image.repository=example", "lifecycle.enabled=true"])
    return [
        item
        for item in chart.objects(values, live.RELEASE)
        if item["metadata"]["name"].startswith((ACCOUNT, "stackupgrades"))
    ]


class UpgradeScene:
    """A control plane with GPU nodes of which the test plays everything."""

    def __init__(self, plane: control_plane.ControlPlane) -> None:
        self.plane = plane
        self.api = rest.Rest(plane)
        self.ports: dict[str, int] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._reported: dict[str, float] = {}
        self._directory = plane.directory
        objects = installed()
        planes.apply(plane, [item for item in objects if item["kind"].startswith("CustomRes")])
        wanted = (*live.RIGHTS, "Lease")
        for namespace in (NAMESPACE, "default"):
            of_namespace = [
                item
                for item in objects
                if item["kind"] in wanted
                and item["metadata"].get("namespace", NAMESPACE) == namespace
            ]
            planes.apply(plane, of_namespace, namespace=namespace)
        planes.kubectl(
            plane, "wait", "--for=condition=Established", "crd/stackupgrades.dovetail.dev"
        )
        self._token = planes.kubectl(plane, "create", "token", ACCOUNT, "-n", NAMESPACE).strip()

    def close(self) -> None:
        """Ends what is left."""
        for process in self._processes.values():
            process.kill()
            process.wait()
        self.api.close()

    # What there is

    def node(self, name: str) -> None:
        """A node with GPUs and a driver hook, and the slice that its driver publishes."""
        offered = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        metadata = {
            "name": name,
            "labels": {DRIVER: OLD},
            "annotations": {node_agent_adapter.HOOK: "swapper"},
        }
        status = {"capacity": offered, "allocatable": offered}
        tree = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}
        self.api.create("nodes", tree)
        self.api.create("resourceslices", _slice(name))

    def pod(self, name: str, node: str, *, gang: int = 0, **annotations: str) -> None:
        """A pod that holds a GPU of the node; one of several of the same gang where `gang` says so."""
        group = name.rpartition("-")[0]
        labels = {"dovetail.dev/gang": group, "dovetail.dev/gang-min": str(gang)} if gang else {}
        metadata = {"name": name, "labels": labels, "annotations": annotations}
        limits = {"nvidia.com/gpu": "1"}
        container = {"name": "main", "image": "example", "resources": {"limits": limits}}
        spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 1}
        tree = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        self.api.create("pods", tree, "default")

    def upgrade(self, name: str, *nodes: str, **spec: Any) -> None:
        """An upgrade of these nodes, one wave each; lone pods of the story have no controller."""
        waves = {"maxUnavailable": "100%", "planned": [{"nodes": [node]} for node in nodes]}
        body = {"to": {"driver": NEW}, "waves": waves, "drain": {"force": True}} | spec
        metadata = {"name": name}
        kind = {"apiVersion": "dovetail.dev/v1alpha1", "kind": "StackUpgrade"}
        self.api.create("stackupgrades", {**kind, "metadata": metadata, "spec": body})

    # What happens

    def act(self) -> None:
        """One turn of everything that is played."""
        for node in self.api.list("nodes"):
            self._heartbeat(node["metadata"]["name"])
            self._swap(node)
        for pod in self.api.list("pods", "default"):
            if pod["metadata"].get("deletionTimestamp"):
                self.api.delete("pods", pod["metadata"]["name"], "default", gracePeriodSeconds=0)

    def _heartbeat(self, name: str) -> None:
        if time.monotonic() - self._reported.get(name, -HEARTBEAT_SECONDS) < HEARTBEAT_SECONDS:
            return
        self._reported[name] = time.monotonic()
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"conditions": [{**ready, "lastHeartbeatTime": now}]}
        self.api.patch("nodes", name, {"status": status}, subresource="status")

    def _swap(self, node: Tree) -> None:
        metadata = node["metadata"]
        wanted = metadata["annotations"].get(node_agent_adapter.WANTED, "")
        if not wanted or metadata["labels"][DRIVER] == wanted:
            return
        name = metadata["name"]
        busy = [pod for pod in self.api.list("pods", "default") if pod["spec"]["nodeName"] == name]
        assert not busy, "the driver is swapped under running work"
        report = {node_agent_adapter.SWAP: f"{wanted} done"}
        patch = {"metadata": {"labels": {DRIVER: wanted}, "annotations": report}}
        devices = _slice(name, wanted)["spec"]["devices"]
        self.api.patch("resourceslices", f"{name}-gpus", {"spec": {"devices": devices}})
        self.api.patch("nodes", name, patch)

    # The process

    def start(self, name: str = "first", *, address: str = "127.0.0.1") -> None:
        """Starts a replica of the process."""
        port = self.ports[name] = free_ports.reserve()
        kubeconfig = self.plane.write_kubeconfig(ACCOUNT, token=self._token)
        checks = self._directory / "checks.yaml"
        checks.write_text("checks: [gpu-count, driver, slice]\n", encoding="utf-8")
        command = [*live.TETHER, str(PROGRAM), "lifecycle", "--kubeconfig", str(kubeconfig)]
        command += ["--leader-elect", f"{NAMESPACE}/{ACCOUNT}", "--log-format=json"]
        command += ["--checks", str(checks), "--listen", f"{address}:{port}"]
        with self._log_file(name).open("ab") as log:
            self._processes[name] = subprocess.Popen(command, stderr=log, cwd=live.ROOT)

    def stop(self, name: str = "first") -> int:
        """Asks a replica to end; its exit code."""
        process = self._processes.pop(name)
        process.terminate()
        return process.wait(timeout=60)

    def log(self, name: str = "first") -> str:
        """What a replica said."""
        file = self._log_file(name)
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""

    def _log_file(self, name: str) -> Path:
        return self._directory / f"lifecycle-{name}.log"

    # What became of it

    def phases(self, upgrade: str) -> dict[str, str]:
        """The phases of an upgrade's nodes."""
        status = self.api.read("stackupgrades", upgrade).get("status", {})
        return {node["name"]: node.get("phase", "Waiting") for node in status.get("nodes", ())}

    def fences(self) -> set[str]:
        """Nodes with our taint."""
        return {
            node["metadata"]["name"]
            for node in self.api.list("nodes")
            for taint in node["spec"].get("taints", ())
            if taint["key"] == "dovetail.dev/stack-upgrade"
        }

    def wait(self, what: str, is_so: Any) -> None:
        """Plays until a condition holds."""

        def turned() -> Any:
            self.act()
            return is_so()

        def last_words() -> str:
            status = [item.get("status", {}) for item in self.api.list("stackupgrades")]
            logs = "\n".join(f"{name}: {self.log(name)[-2500:]}" for name in self.ports)
            return f"{status}\n{logs}"

        waiting.wait_until(turned, what, pause=0.1, so_far=last_words)


def _slice(node: str, driver: str = OLD) -> Tree:
    attributes = {
        "type": {"string": "gpu"},
        "productName": {"string": "NVIDIA H100 80GB HBM3"},
        "driverVersion": {"version": driver},
    }
    devices = [{"name": f"gpu-{number}", "attributes": attributes} for number in range(GPUS)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.nvidia.com", "nodeName": node, "pool": pool, "devices": devices}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
    return {**kind, "metadata": {"name": f"{node}-gpus"}, "spec": spec}

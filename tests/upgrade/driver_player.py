"""Plays what runs on GPU nodes, on a real API server: kubelets, drivers, validators, and the operator's rendering.

Given a scene's namespace and node names. DaemonSets, their pods and revisions are those of the real controller; only
the node's part of it is played: a pod is bound, becomes ready or not as the story says, and ends when it is deleted.
Decides nothing about upgrades.
"""

from __future__ import annotations

import datetime
import time
from typing import Any, Final

from tests.support import rest

Tree = dict[str, Any]
DRIVER: Final = "nvidia-driver-daemonset"
VALIDATOR: Final = "nvidia-operator-validator"
SCENE: Final = "example.com/scene"
STARTING_TURNS: Final = 3  # for which a node that rebooted is up, and its containers are not ready
HEARTBEAT_SECONDS: Final = 10.0  # of a kubelet; the node lifecycle controller gives up after 40


class Player:
    """The nodes of one scene."""

    def __init__(self, api: rest.Rest, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self.broken: dict[
            str, int
        ] = {}  # node -> restarts of its new driver's container, which is never ready
        self.working = ""  # a driver that is ready even on a broken node
        self.down: set[str] = set()  # nodes whose kubelet does not report
        self.unvalidated: set[str] = set()  # nodes without a validator
        self.rebooting: dict[str, int] = {}  # node -> turns until it is back
        self._reported: dict[
            str, tuple[bool, float]
        ] = {}  # node -> what its kubelet said last, and when
        self._reboots: dict[str, int] = {}

    def act(self) -> None:
        """One turn of everything that is played."""
        self._render()
        for node in self.api.list("nodes", labelSelector=f"{SCENE}={self.namespace}"):
            self._heartbeat(node)
        for pod in self.api.list("pods", self.namespace):
            self._run(pod)
        self.rebooting = {node: left - 1 for node, left in self.rebooting.items() if left > 1}

    def reboot(self, node: str, *, turns: int) -> None:
        """The node goes down now, and its containers begin again when it is back."""
        self._reboots[node] = self._reboots.get(node, 0) + 1
        self.rebooting = self.rebooting | {node: turns}

    def boot_id(self, node: str) -> str:
        """As the kernel of the node has it."""
        return f"{node}-{self._reboots.get(node, 0)}"

    def _render(self) -> None:
        """The operator writes the version of its policy into the template of the DaemonSet."""
        policy = self.api.read("clusterpolicies", self.namespace)
        image = driver_image(policy["spec"]["driver"]["version"])
        daemon_set = self.api.read("daemonsets", DRIVER, self.namespace)
        if daemon_set["spec"]["template"]["spec"]["containers"][0]["image"] != image:
            containers = [{"name": "driver", "image": image}]
            template = {"spec": {"containers": containers}}
            self.api.patch("daemonsets", DRIVER, {"spec": {"template": template}}, self.namespace)

    def _heartbeat(self, node: Tree) -> None:
        name = node["metadata"]["name"]
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        is_up = self._is_up(name)
        was_up, at = self._reported.get(name, (None, 0.0))
        if was_up == is_up and time.monotonic() - at < HEARTBEAT_SECONDS:
            return
        self._reported[name] = (is_up, time.monotonic())
        condition = {
            "type": "Ready",
            "status": "True" if is_up else "False",
            "reason": "KubeletReady" if is_up else "KubeletStopped",
            "lastHeartbeatTime": now,
        }
        status: Tree = {"conditions": [condition]}
        if is_up:
            status["nodeInfo"] = {"bootID": self.boot_id(name)}
        self.api.patch("nodes", name, {"status": status}, subresource="status")

    def _run(self, pod: Tree) -> None:
        name, metadata = pod["metadata"]["name"], pod["metadata"]
        node = pod["spec"].get("nodeName", "")
        if metadata.get("deletionTimestamp"):
            self.api.delete("pods", name, self.namespace, gracePeriodSeconds=0)
        elif not node:
            self._bind(pod)
        elif metadata["labels"].get("app") == VALIDATOR and node in self.unvalidated:
            self.api.delete("pods", name, self.namespace, gracePeriodSeconds=0)
        elif self._is_up(node):
            self._report(pod, node)

    def _is_up(self, node: str) -> bool:
        return node not in self.down and self.rebooting.get(node, 0) <= STARTING_TURNS

    def _bind(self, pod: Tree) -> None:
        affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
        for term in required.get("nodeSelectorTerms", ()):
            for field in term.get("matchFields", ()):
                target = {"apiVersion": "v1", "kind": "Node", "name": field["values"][0]}
                binding = {"metadata": {"name": pod["metadata"]["name"]}, "target": target}
                path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}/binding"
                self.api.ask("POST", path, binding)

    def _report(self, pod: Tree, node: str) -> None:
        container = pod["spec"]["containers"][0]
        is_driver = pod["metadata"]["labels"].get("app") == DRIVER
        works = container["image"] == driver_image(self.working)
        restarts = 0 if works or not is_driver else self.broken.get(node, 0)
        restarts += self._reboots.get(node, 0)
        is_ready = not is_driver or works or node not in self.broken
        is_ready = is_ready and node not in self.rebooting
        state: Tree = {"running": {}}
        if not is_ready:
            state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
        status = {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": is_ready,
            "restartCount": restarts,
            "state": state,
        }
        if not is_ready:
            status["lastState"] = {
                "terminated": {"exitCode": 1, "reason": "Error", "message": "driver is in use"}
            }
        held = pod.get("status", {}).get("containerStatuses") or [{}]
        if (held[0].get("ready"), held[0].get("restartCount")) == (is_ready, restarts):
            return
        ready = {"type": "Ready", "status": str(is_ready)}
        body = {
            "status": {"phase": "Running", "conditions": [ready], "containerStatuses": [status]}
        }
        self.api.patch("pods", pod["metadata"]["name"], body, self.namespace, "status")


def driver_image(version: str) -> str:
    """The image of a driver."""
    return f"test/driver:{version}-ubuntu24.04"

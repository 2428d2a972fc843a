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
        self._reported: dict[
            str, tuple[bool, float]
        ] = {}  # node -> what its kubelet said last, and when

    def act(self) -> None:
        """One turn of everything that is played."""
        self._render()
        for node in self.api.list("nodes", labelSelector=f"{SCENE}={self.namespace}"):
            self._heartbeat(node)
        for pod in self.api.list("pods", self.namespace):
            self._run(pod)

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
        is_up = name not in self.down
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
        self.api.patch("nodes", name, {"status": {"conditions": [condition]}}, subresource="status")

    def _run(self, pod: Tree) -> None:
        name, metadata = pod["metadata"]["name"], pod["metadata"]
        node = pod["spec"].get("nodeName", "")
        if metadata.get("deletionTimestamp"):
            self.api.delete("pods", name, self.namespace, gracePeriodSeconds=0)
        elif not node:
            self._bind(pod)
        elif metadata["labels"].get("app") == VALIDATOR and node in self.unvalidated:
            self.api.delete("pods", name, self.namespace, gracePeriodSeconds=0)
        elif node not in self.down:
            self._report(pod, node)

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
        is_ready = not is_driver or works or node not in self.broken
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
        body = {"status": {"phase": "Running", "containerStatuses": [status]}}
        self.api.patch("pods", pod["metadata"]["name"], body, self.namespace, "status")


def driver_image(version: str) -> str:
    """The image of a driver."""
    return f"test/driver:{version}-ubuntu24.04"

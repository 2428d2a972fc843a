"""Plays the rest of a fleet on a real API server: feature discovery, a DRA driver, and a scheduler for its work.

Given a story's player. What a driver's pod installed appears as the label and the slice of its node; pods of work are
bound where the story wants them, and those that come back onto any open node. Gangs that were evicted stay pending.
"""

from __future__ import annotations

import datetime
import http.client
import threading
from typing import Any, Final

from tests.support import rest
from tests.upgrade.driver_player import DRIVER, SCENE, Player
from tests.upgrade.fleet.upgrade_history import WORK

Tree = dict[str, Any]
GPUS: Final = 8  # of a node
LOADED: Final = "nvidia.com/cuda.driver-version.full"
GPU_DRIVER: Final = "gpu.nvidia.com"
XID: Final = "gpu.nvidia.com/xid"
ACT_SECONDS: Final = 0.03


class FleetPlayer:
    """Acts beside the player of the nodes."""

    def __init__(self, api: rest.Rest, player: Player, *, has_slices: bool) -> None:
        self.api = api
        self.has_slices = has_slices  # else a device plugin alone serves the nodes
        self.player = player
        self.namespace = player.namespace
        self.places: dict[str, list[str]] = {}  # work -> nodes of its pods at the beginning
        self.returning: set[str] = set()  # work whose pods come back
        self.faulty: dict[str, str] = {}  # node -> a driver under which its GPUs report XID 79
        self.bugs: list[str] = []
        self._shown: dict[str, str] = {}  # node -> the driver that it shows
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> FleetPlayer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def act(self) -> None:
        """One turn of everything that is played."""
        self.player.act()
        nodes = self.api.list("nodes", labelSelector=f"{SCENE}={self.namespace}")
        pods = self.api.list("pods", self.namespace)
        for pod in pods:
            self._show(pod)
        for pod in pods:
            if WORK in pod["metadata"].get("labels", {}) and not pod["spec"].get("nodeName"):
                self._place(pod, pods, nodes)

    def _run(self) -> None:
        while not self._is_over.wait(ACT_SECONDS):
            try:
                self.act()
            except rest.RefusedError as refused:
                if refused.status not in (404, 409, 500, 503):  # another writer was faster
                    self.bugs.append(str(refused))
            except (OSError, http.client.HTTPException, ValueError):
                continue  # the API server is being restarted, and answers in plain text

    # What a driver shows

    def _show(self, pod: Tree) -> None:
        if pod["metadata"].get("labels", {}).get("app") != DRIVER:
            return
        node = pod["spec"].get("nodeName", "")
        states = pod["status"].get("containerStatuses", ())
        is_ready = bool(states) and all(each["ready"] for each in states)
        version = pod["spec"]["containers"][0]["image"].partition(":")[2].partition("-")[0]
        if not node or not is_ready or self._shown.get(node) == version:
            return
        if self.has_slices:
            self._publish(node, version)
        self.api.patch("nodes", node, {"metadata": {"labels": {LOADED: version}}})
        self._shown[node] = version

    def _publish(self, node: str, version: str) -> None:
        numbers = ".".join(str(int(part)) for part in version.split("."))
        attributes = {
            "type": {"string": "gpu"},
            "productName": {"string": "NVIDIA H100 80GB HBM3"},
            "driverVersion": {"version": numbers},
        }
        taints = []
        if self.faulty.get(node) == version:
            now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=1)
            at = now.strftime("%Y-%m-%dT%H:%M:%SZ")
            taints = [{"key": XID, "value": "79", "effect": "NoSchedule", "timeAdded": at}]
        devices = [
            {"name": f"gpu-{number}", "attributes": attributes, "taints": taints}
            for number in range(GPUS)
        ]
        pool = {"name": node, "generation": len(self._shown) + 1, "resourceSliceCount": 1}
        spec = {"driver": GPU_DRIVER, "nodeName": node, "pool": pool, "devices": devices}
        if node in self._shown:
            self.api.patch("resourceslices", node, {"spec": {"devices": devices}})
            return
        tree = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": node},
            "spec": spec,
        }
        self.api.create("resourceslices", tree)

    # Where work runs

    def _place(self, pod: Tree, pods: list[Tree], nodes: list[Tree]) -> None:
        work = pod["metadata"]["labels"][WORK]
        taken = [
            each["spec"].get("nodeName")
            for each in pods
            if each["metadata"].get("labels", {}).get(WORK) == work
        ]
        wanted = self.places.get(work, [])
        if wanted:
            node = next((each for each in wanted if each not in taken), "")
            if node:
                wanted.remove(node)
        elif work in self.returning:
            free = [each["metadata"]["name"] for each in nodes if _is_open(each)]
            node = next((each for each in free if each not in taken), "")
        else:
            node = ""
        if node:
            target = {"apiVersion": "v1", "kind": "Node", "name": node}
            binding = {"metadata": {"name": pod["metadata"]["name"]}, "target": target}
            name = pod["metadata"]["name"]
            path = f"/api/v1/namespaces/{self.namespace}/pods/{name}/binding"
            self.api.ask("POST", path, binding)
            pod["spec"]["nodeName"] = node


def _is_open(node: Tree) -> bool:
    taints = node["spec"].get("taints", ())
    return not node["spec"].get("unschedulable") and not taints

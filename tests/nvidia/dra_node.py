"""A DRA driver process on fake hardware and a real API server, called as the kubelet calls it.

Given the command that starts a driver for NVIDIA GPUs, NVIDIA's own or the node agent, with the places it writes to.
Returns what it published, what it answers to prepare and unprepare, and the files it wrote. Never judges an answer.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from dovetail.devcluster import control_plane
from tests.nvidia import kubelet_messages, programs
from tests.support import rest

DRIVER: Final = "gpu.nvidia.com"
VENDOR: Final = "k8s.gpu.nvidia.com"

Tree = dict[str, Any]


class PreparedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One device of a prepared claim, as the kubelet gets it."""

    request_names: tuple[str, ...]
    pool: str
    device: str
    cdi_ids: tuple[str, ...]
    share_id: str = ""


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """The answer about one claim. `error` is empty where it was prepared."""

    devices: tuple[PreparedDevice, ...] = ()
    error: str = ""


class Home(msgspec.Struct, frozen=True):
    """Where a driver writes. Its path is short: a socket's may have 108 bytes."""

    directory: Path

    @property
    def cdi(self) -> Path:
        """CDI files."""
        return self.directory / "cdi"

    @property
    def registry(self) -> Path:
        """The socket on which the kubelet discovers the driver."""
        return self.directory / "registry"

    @property
    def plugins(self) -> Path:
        """A folder per driver, with its socket and its checkpoint."""
        return self.directory / "plugins"


class DraNode:
    """One running driver. `stop` ends it and removes its slices and its node."""

    def __init__(
        self,
        cluster: control_plane.ControlPlane,
        node: str,
        command: Callable[[Home], Sequence[str]],
    ) -> None:
        self.node = node
        self.rest = rest.Rest(cluster)
        self._home = Home(Path(tempfile.mkdtemp(prefix="dra-")))
        for directory in (self._home.cdi, self._home.registry, self._home.plugins):
            directory.mkdir()
        self._command = command(self._home)
        self._create_node()
        self.start()

    def start(self) -> None:
        """Starts the driver, again if it was stopped or killed: what it wrote is still there."""
        self._running = programs.Running(self._command, log=self._home.directory / "driver.log")
        try:
            self._running.wait_until(self._is_published, f"the slices of {self.node}")
        except BaseException:
            self._running.kill()
            raise
        self._socket = kubelet_messages.Socket(
            self.plugin_directory / "dra.sock", kubelet_messages.DRA, "DRAPlugin"
        )

    @property
    def pid(self) -> int:
        """The driver's process."""
        return self._running.pid

    @property
    def plugin_directory(self) -> Path:
        """Where the driver keeps its socket, its locks and its checkpoint."""
        return self._home.plugins / DRIVER

    def slices(self) -> list[Tree]:
        """The slices of this driver and node by name, as the API server keeps them."""
        own = [
            tree
            for tree in self.rest.list("resourceslices")
            if tree["spec"]["driver"] == DRIVER and tree["spec"].get("nodeName") == self.node
        ]
        return sorted(own, key=lambda tree: str(tree["metadata"]["name"]))

    def devices(self) -> list[Tree]:
        """All devices in the order in which they are published."""
        lists = [tree["spec"].get("devices", []) for tree in self.slices()]
        return [device for devices in lists for device in devices]

    def prepare(self, claim: Tree) -> Prepared:
        """Prepares a claim that has an allocation."""
        answers = self._called("Prepare", claim)
        answer = answers.claims[claim["metadata"]["uid"]]
        devices = tuple(_prepared_device(device) for device in answer.devices)
        return Prepared(devices=devices, error=answer.error)

    def unprepare(self, claim: Tree) -> str:
        """Undoes it. Empty, or what the driver complains about."""
        answers = self._called("Unprepare", claim)
        return str(answers.claims[claim["metadata"]["uid"]].error)

    def cdi_spec(self, uid: str) -> Tree | None:
        """The CDI file of a claim; None where there is none."""
        path = self._home.cdi / f"{VENDOR}-claim_{uid}.yaml"
        if not path.exists():
            return None
        tree: Tree = yaml.safe_load(path.read_text(encoding="utf-8"))
        return tree

    def checkpoint(self) -> Tree:
        """What the driver remembers of prepared claims, newest layout."""
        text = (self.plugin_directory / "checkpoint.json").read_text(encoding="utf-8")
        tree: Tree = json.loads(text)
        return tree

    def log(self) -> str:
        """All the driver wrote since its first start."""
        return self._running.full_log()

    def kill(self) -> None:
        """Ends the driver as a crash does; `start` starts it again."""
        self._socket.close()
        self._running.kill()

    def stop(self) -> None:
        """Ends the driver and removes its slices and its node."""
        self._socket.close()
        self._running.stop()
        for tree in self.slices():
            self.rest.delete("resourceslices", tree["metadata"]["name"])
        self.rest.delete("nodes", self.node)
        self.rest.close()
        shutil.rmtree(self._home.directory, ignore_errors=True)

    def _create_node(self) -> None:
        tree = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node}}
        self.rest.create("nodes", tree)

    def _is_published(self) -> bool:
        """Whether a pool is complete: as many slices of its newest generation as they say there are."""
        pools = [tree["spec"]["pool"] for tree in self.slices()]
        if not pools:
            return False
        newest = max(pool["generation"] for pool in pools)
        current = [pool for pool in pools if pool["generation"] == newest]
        return len(current) == len(pools) == int(current[0]["resourceSliceCount"])

    def _called(self, verb: str, claim: Tree) -> Any:
        metadata = claim["metadata"]
        reference = _message("Claim")(
            namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"]
        )
        request = _message(f"Node{verb}ResourcesRequest")(claims=[reference])
        return self._socket.call(f"Node{verb}Resources", request, f"Node{verb}ResourcesResponse")


def _message(name: str) -> type[Any]:
    return kubelet_messages.message_class(kubelet_messages.DRA, name)


def _prepared_device(device: Any) -> PreparedDevice:
    return PreparedDevice(
        request_names=tuple(device.request_names),
        pool=device.pool_name,
        device=device.device_name,
        cdi_ids=tuple(device.cdi_device_ids),
        share_id=device.share_id,
    )

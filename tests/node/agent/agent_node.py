"""A node for stories of the whole agent: its process, fake GPUs, an API server over HTTP, and the kubelet's side."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from dovetail.boot import clocks
from dovetail.devcluster.fake_gpus.hardware import Hardware
from dovetail.kube import client
from dovetail.kube.auth import client_config
from dovetail.kube.http import transport
from dovetail.kubetypes import registry
from dovetail.ports.api import Target
from dovetail.sim.server.api_server import SimApi
from tests.node.kubelet import kubelet_side
from tests.support import rest_place, waiting

NODE = "node-a"
PROGRAM = "import sys; from dovetail.cli.main import main; sys.exit(main())"
Tree = dict[str, Any]


class Agent:
    """One process of `dovetail node-agent`."""

    def __init__(self, node: AgentNode, *options: str, pod_uid: str = "") -> None:
        self.node = node
        self.pod_uid = pod_uid
        self.log = node.folder / f"log-{pod_uid or 'agent'}"
        command = [sys.executable, "-c", PROGRAM, "node-agent", *node.arguments(), *options]
        environment = {**os.environ, "POD_UID": pod_uid}
        with self.log.open("a") as log:
            self.process = subprocess.Popen(command, stderr=log, env=environment)

    async def registered(self) -> Path:
        """Where it serves, once the kubelet has registered it."""
        ending = f"{self.pod_uid}-reg.sock"

        def registration() -> Path | None:
            paths = kubelet_side.registrations(self.node.kubelet_root / "plugins_registry")
            return next((path for path in paths if path.name.endswith(ending)), None)

        socket = await self.until(registration, "the registration")
        return await kubelet_side.service_of(socket)

    async def until(self, condition: Callable[[], Any], what: str) -> Any:
        """What the condition returns once it is true, while the process lives."""

        async def alive_and() -> Any:
            assert self.process.poll() is None, self.log.read_text()
            value = condition()
            return await value if inspect.isawaitable(value) else value

        return await waiting.until(alive_and, what, so_far=self.log.read_text)

    async def logged(self, words: str) -> str:
        """The first line of the log with these words."""

        def line() -> str | None:
            lines = self.log.read_text().splitlines()
            return next((line for line in lines if words in line), None)

        first: str = await self.until(line, f"{words} in the log")
        return first

    async def stop(self, number: int = signal.SIGTERM) -> int:
        """Ends it; returns how it ended."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return await asyncio.to_thread(self.process.wait, waiting.GIVE_UP_SECONDS)


class AgentNode:
    """The machine, the kubelet's directories and the API server."""

    def __init__(
        self, folder: Path, hardware: Hardware, over: transport.Transport, kubeconfig: Path
    ) -> None:
        self.folder = folder
        self.hardware = hardware
        self.over = over
        self.api = client.KubeApi(over)
        self.kubelet_root = folder / "kubelet"
        self.cdi = folder / "cdi"
        self.kubeconfig = kubeconfig
        self._agents: list[Agent] = []

    def arguments(self) -> list[str]:
        """What every agent of this node is started with."""
        boot_id = self.folder / "boot_id"
        boot_id.write_text("boot-1\n")
        places = {
            "--node-name": NODE,
            "--kubeconfig": self.kubeconfig,
            "--kubelet-root": self.kubelet_root,
            "--cdi-dir": self.cdi,
            "--driver-root": self.hardware.driver_root,
            "--sysfs-root": self.hardware.sysfs_root,
            "--proc-root": self.hardware.proc_root,
            "--boot-id-file": boot_id,
        }
        return [f"{option}={place}" for option, place in places.items()]

    def start(self, *options: str, pod_uid: str = "") -> Agent:
        """A new process."""
        agent = Agent(self, *options, pod_uid=pod_uid)
        self._agents.append(agent)
        return agent

    async def slices(self) -> list[Tree]:
        """All ResourceSlices."""
        documents, _ = await client.list_documents(self.over, registry.SLICE)
        return [msgspec.json.decode(document) for document in documents]

    async def devices(self) -> dict[str, Tree]:
        """What the node publishes, by device name."""
        return {
            device["name"]: device
            for tree in await self.slices()
            for device in tree["spec"].get("devices") or []
        }

    async def claim(self, name: str, *devices: str) -> tuple[str, str, str]:
        """An allocated claim in the API server; returns namespace, name and uid."""
        requests = [
            {"name": f"r{index}", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
            for index in range(len(devices))
        ]
        results = [
            {"request": f"r{index}", "driver": "gpu.nvidia.com", "pool": NODE, "device": device}
            for index, device in enumerate(devices)
        ]
        tree = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"devices": {"requests": requests}},
        }
        stored = await self.api.create(
            Target(registry.CLAIM, namespace="default"), msgspec.json.encode(tree)
        )
        uid = msgspec.json.decode(stored)["metadata"]["uid"]
        status = {"status": {"allocation": {"devices": {"results": results}}}}
        target = Target(registry.CLAIM, namespace="default", name=name, subresource="status")
        await self.api.patch(target, msgspec.json.encode(status))
        return ("default", name, uid)

    def kill_all(self) -> None:
        """No process outlives its story."""
        for agent in self._agents:
            if agent.process.poll() is None:
                agent.process.kill()
            agent.process.wait()


@contextlib.asynccontextmanager
async def opened(machine: str, gpus: int) -> AsyncIterator[AgentNode]:
    """A node with an API server that knows it; no agent runs yet."""
    with tempfile.TemporaryDirectory(prefix="na-") as directory:
        folder = Path(directory)
        hardware = Hardware.create(folder / "hw", machine=machine, gpus=gpus)
        api = SimApi(clocks.SystemClock(), namespaces=["default"], is_complete=True)
        async with (
            rest_place.served(api, folder) as kubeconfig,
            transport.Transport(client_config.load(str(kubeconfig))) as over,
        ):
            node = AgentNode(folder, hardware, over, kubeconfig)
            tree = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
            await node.api.create(Target(registry.NODE), msgspec.json.encode(tree))
            try:
                yield node
            finally:
                node.kill_all()


def run(
    story: Callable[[AgentNode], Awaitable[None]], *, machine: str = "dgx-h100", gpus: int = 2
) -> None:
    """Tells a story on a node of its own."""

    async def main() -> None:
        async with opened(machine, gpus) as node:
            await story(node)

    asyncio.run(main())

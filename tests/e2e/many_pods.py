"""Many short pods through a cluster: made in waves, watched to their end, then deleted; and what was seen meanwhile.

Speaks to the server through the project's own client, because nothing else here is fast enough. Every version of every
claim is looked at in the order the server wrote them, so that a device held twice is seen however short it was.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dovetail.boot import clocks
from dovetail.kube import client
from dovetail.kube.auth import client_config
from dovetail.kube.http import paths, transport
from dovetail.kube.watching import watch
from dovetail.kubetypes import registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.ports.api import Target
from tests.e2e.namespace_scene import exactly, pod_tree

NAMESPACE = "crowd"
MAKERS = 24
Device = tuple[str, str, str]


class Seen(NamedTuple):
    """What became of the crowd."""

    succeeded: int
    failed: list[str]
    doubles: list[str]
    most_held: int  # devices at one time


class Crowd:
    """Pods from their making to their end."""

    def __init__(
        self, api: client.KubeApi, over: transport.Transport, *, count: int, at_once: int
    ) -> None:
        self._api = api
        self._over = over
        self._count = count
        self._room = asyncio.Semaphore(at_once)
        self._ended: set[str] = set()
        self._failed: list[str] = []
        self._to_delete: asyncio.Queue[str] = asyncio.Queue()
        self._held: dict[str, list[Device]] = {}
        self._holder: dict[Device, str] = {}
        self._doubles: list[str] = []
        self._most_held = 0
        self.is_over = asyncio.Event()

    @property
    def ended(self) -> int:
        """Pods that have come to their end."""
        return len(self._ended)

    async def run(self) -> Seen:
        """Makes all pods, waits for all ends, cleans up."""
        await self._create(
            registry.NAMESPACE,
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            "",
        )
        numbers = iter(range(self._count))
        makers = [self._make(numbers) for _ in range(MAKERS)]
        sweepers = [asyncio.create_task(self._sweep()) for _ in range(MAKERS)]
        try:
            await asyncio.gather(*makers)
            await self.is_over.wait()
            await self._to_delete.join()
        finally:
            for task in sweepers:
                task.cancel()
            await asyncio.gather(*sweepers, return_exceptions=True)
        return Seen(self.ended - len(self._failed), self._failed, self._doubles, self._most_held)

    async def _make(self, numbers: Any) -> None:
        """A claim and its pod. Not from a template: that would cost the server half as much again."""
        head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
        spec = {"devices": {"requests": [exactly("gpu", "gpu.nvidia.com")]}}
        for number in numbers:
            await self._room.acquire()
            name = f"p{number}"
            await self._create(
                registry.CLAIM, {**head, "metadata": {"name": name}, "spec": spec}, NAMESPACE
            )
            tree = pod_tree(name, claims=[name], annotations={"dovetail.dev/run-seconds": "1"})
            await self._create(registry.POD, tree, NAMESPACE)

    async def _create(self, kind: registry.Kind, tree: dict[str, Any], namespace: str) -> None:
        await self._api.create(Target(kind, namespace), msgspec.json.encode(tree), brief=True)

    async def _sweep(self) -> None:
        """Deletes what has ended, as a Job's owner would: the cluster stays as large as what runs on it."""
        options = msgspec.json.encode(
            {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        )
        while True:
            name = await self._to_delete.get()
            for kind in (registry.POD, registry.CLAIM):
                await self._over.request(
                    "DELETE", paths.of(Target(kind, NAMESPACE, name)), body=options
                )
            self._to_delete.task_done()

    # What is seen

    def changed(self, result: Any) -> None:
        """A pod or a claim, newer than before."""
        if isinstance(result, claims.ResourceClaim):
            allocation = result.status.allocation
            results = allocation.devices.results if allocation is not None else ()
            self._holds(
                result.metadata.uid, [(item.driver, item.pool, item.device) for item in results]
            )
        elif isinstance(result, pods.Pod) and result.status.phase in ("Succeeded", "Failed"):
            self._end(result)

    def deleted(self, result: Any) -> None:
        """A pod or a claim that is gone."""
        if isinstance(result, claims.ResourceClaim):
            self._holds(result.metadata.uid, [])

    def _holds(self, uid: str, devices: list[Device]) -> None:
        for device in self._held.pop(uid, ()):
            if self._holder.get(device) == uid:
                del self._holder[device]
        for device in devices:
            if device in self._holder:
                self._doubles.append("/".join(device))
            self._holder[device] = uid
        if devices:
            self._held[uid] = devices
        self._most_held = max(self._most_held, len(self._holder))

    def _end(self, pod: pods.Pod) -> None:
        if pod.metadata.uid in self._ended:
            return
        self._ended.add(pod.metadata.uid)
        if pod.status.phase == "Failed":
            self._failed.append(pod.metadata.name)
        self._to_delete.put_nowait(pod.metadata.name)
        self._room.release()
        if self.ended == self._count:
            self.is_over.set()


class Ear:
    """What a watch tells, passed on; objects that cannot be read are a fault of the test's own."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self.synced = asyncio.Event()

    def replaced(self, result: list[Any], resource_version: str, /) -> None:
        """Everything there is."""
        for item in result:
            self._crowd.changed(item)
        self.synced.set()

    def changed(self, result: Any, /) -> None:
        """One object."""
        self._crowd.changed(result)

    def deleted(self, result: Any, /) -> None:
        """One object."""
        self._crowd.deleted(result)

    def broken(self, reason: str, /) -> None:
        """Goes on by itself."""

    def unreadable(self, name: str, problem: str, /) -> None:
        """Cannot be."""
        raise AssertionError(f"{name}: {problem}")


@contextlib.asynccontextmanager
async def _listening(crowd: Crowd, over: transport.Transport) -> AsyncIterator[None]:
    ears = {kind: Ear(crowd) for kind in (registry.POD, registry.CLAIM)}
    clock = clocks.SystemClock()
    tasks = [
        asyncio.create_task(watch.follow(over, kind, ear, clock=clock))
        for kind, ear in ears.items()
    ]
    try:
        for ear in ears.values():
            await ear.synced.wait()
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def passed(
    kubeconfig: Path,
    *,
    count: int,
    at_once: int,
    meanwhile: Callable[[Crowd], Coroutine[Any, Any, None]],
) -> Seen:
    """Sends so many pods through the cluster."""
    async with transport.Transport(
        client_config.load(str(kubeconfig)), concurrency=2 * MAKERS + 8
    ) as over:
        crowd = Crowd(client.KubeApi(over), over, count=count, at_once=at_once)
        async with _listening(crowd, over):
            watcher = asyncio.create_task(meanwhile(crowd))
            try:
                return await crowd.run()
            finally:
                watcher.cancel()
                await asyncio.gather(watcher, return_exceptions=True)

"""Sets kept by watches: equal to a fresh list, joined by later kinds, withheld while a kind is unknown."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from dovetail.boot import clocks
from dovetail.kube import read_objects
from dovetail.kube.auth import client_config
from dovetail.kube.http import transport
from dovetail.kube.watching import watched_objects
from dovetail.kubetypes import object_set, registry
from dovetail.ports.api import Target
from dovetail.sim.server.api_server import SimApi
from tests.kube import serving
from tests.support import rest_place

Tree = dict[str, Any]
KINDS = (registry.NODE, registry.POD)


def node(name: str) -> Tree:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def pod(name: str, at: str = "") -> Tree:
    spec = {"nodeName": at, "containers": [{"name": "a", "image": "a"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def documents(objects: object_set.ObjectSet) -> dict[object_set.Key, Tree]:
    return {object_set.key_of(stored.struct): stored.tree for stored in objects.all()}


def test_what_watches_keep_is_what_a_list_would_say(tmp_path: Path) -> None:
    api = SimApi(clocks.SystemClock())
    for name in ("b", "a"):
        api.put(node(name))
        api.put(pod(name, name))

    async def main() -> None:
        async with (
            rest_place.served(api, tmp_path) as kubeconfig,
            transport.Transport(client_config.load(str(kubeconfig))) as over,
            watched_objects.WatchedObjects(over, KINDS, clocks.SystemClock()) as watched,
        ):
            first = await watched.now()
            assert [key.name for key in first.objects.by_kind["Pod"]] == ["a", "b"]
            api.put(pod("c"))
            api.write(target_of("a"), {**api.tree(registry.POD, "a", namespace="default")})
            api.shelf.delete(registry.POD, ("default", "b"), grace_seconds=0)

            async def listed() -> dict[object_set.Key, Tree]:
                reads = [object_set.Read(kind) for kind in KINDS]
                return documents((await read_objects.read_over(over, reads, cluster="")).objects)

            wanted = await listed()
            assert {key.name for key in wanted if key.kind == "Pod"} == {"a", "c"}
            while documents((await watched.now()).objects) != wanted:
                await asyncio.sleep(0)
            assert documents(first.objects) != wanted, "a set that was given out does not change"

    asyncio.run(asyncio.wait_for(main(), 60))


def target_of(name: str) -> Target:
    return Target(registry.POD, "default", name)


def test_a_kind_that_is_installed_later_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_objects, "DISCOVERY_SECONDS", 0.001)
    installed: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.path == "/apis/dovetail.dev/v1alpha1":
            return serving.answer({"resources": [{"name": name} for name in installed]})
        if request.query.get("watch"):
            await asyncio.Event().wait()
        queue = {"metadata": {"name": "vision", "uid": "u", "resourceVersion": "5"}}
        return serving.answer({"metadata": {"resourceVersion": "7"}, "items": [queue]})

    async def main() -> None:
        async with (
            serving.serving(handler) as url,
            transport.Transport(serving.connection(url)) as over,
            watched_objects.WatchedObjects(over, [registry.QUEUE], clocks.SystemClock()) as watched,
        ):
            assert (await watched.now()).served == {}
            installed.append("queues")
            while registry.QUEUE not in (await watched.now()).served:
                await asyncio.sleep(0)
            (kept,) = (await watched.now()).objects.listed("Queue")
            assert kept.tree["kind"] == "Queue"
            installed.clear()
            while (await watched.now()).served:
                await asyncio.sleep(0)
            assert (await watched.now()).objects.count("Queue") == 0

    asyncio.run(asyncio.wait_for(main(), 60))


def test_nothing_is_given_out_while_a_kind_cannot_be_listed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusals = [serving.refusal(403, "Forbidden", "cannot list pods") for _ in range(2)]
    asked: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.path == "/api/v1":
            return serving.answer({"resources": [{"name": "nodes"}, {"name": "pods"}]})
        if request.query.get("watch"):
            await asyncio.Event().wait()
        asked.append(request.path)
        if request.path.endswith("/pods") and refusals:
            return refusals.pop()
        return serving.answer({"metadata": {"resourceVersion": "7"}, "items": []})

    async def main() -> None:
        kinds = [registry.NODE, registry.POD]
        async with (
            serving.serving(handler) as url,
            transport.Transport(serving.connection(url)) as over,
            watched_objects.WatchedObjects(over, kinds, clocks.SystemClock()) as watched,
        ):
            await watched.now()
            assert asked.count("/api/v1/pods") == 3

    asyncio.run(asyncio.wait_for(main(), 60))
    (line,) = [record for record in caplog.records if record.message == "watches.interrupted"]
    assert "cannot list pods" in str(getattr(line, "why", ""))


def test_a_watch_that_ends_by_a_defect_is_reported_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(watched_objects.watch, "follow", broken)

    async def handler(request: web.Request) -> web.StreamResponse:
        return serving.answer({"resources": [{"name": "nodes"}]})

    async def main() -> None:
        async with (
            serving.serving(handler) as url,
            transport.Transport(serving.connection(url)) as over,
            watched_objects.WatchedObjects(over, [registry.NODE], clocks.SystemClock()) as watched,
        ):
            with pytest.raises(RuntimeError, match="a defect"):
                await watched.now()

    asyncio.run(asyncio.wait_for(main(), 60))

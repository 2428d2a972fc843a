"""The publisher against API servers: it writes what differs, nothing else, and lives through their absence."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec
import pytest

from dovetail.boot import clocks
from dovetail.boot.node import node_slices
from dovetail.kube import client
from dovetail.kube.auth import client_config
from dovetail.kube.http import transport
from dovetail.kubetypes import node_selectors, registry
from dovetail.node.slices import layout, options, publisher
from dovetail.ports import failures
from dovetail.ports.api import Target
from tests.node import build
from tests.node.slices import servers
from tests.support import waiting

T = TypeVar("T")

DYNAMIC = options.SliceOptions(is_mig_dynamic=True)
STATIC = options.SliceOptions()
SHARED = options.SliceOptions(shares=options.shares_from("memory"))
XID = node_selectors.DeviceTaint(key="gpu.nvidia.com/xid", value="79", effect="NoSchedule")


def publisher_on(node: servers.Node) -> publisher.PoolPublisher:
    """A publisher that has not run yet."""
    return node_slices.publisher_for(node.over, node.name, clocks.SystemClock())


@contextlib.asynccontextmanager
async def running(pool: publisher.PoolPublisher) -> AsyncIterator[None]:
    """Publishes while the block lasts."""
    task = asyncio.create_task(pool.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def devices_of(trees: Sequence[servers.Tree]) -> list[list[str]]:
    """Device names, slice by slice."""
    return [[device["name"] for device in tree["spec"].get("devices") or ()] for tree in trees]


def generations_of(trees: Sequence[servers.Tree]) -> set[int]:
    """Of all slices."""
    return {tree["spec"]["pool"]["generation"] for tree in trees}


def test_dynamic_mig_is_stored_as_sent(place: servers.Place) -> None:
    async def story(node: servers.Node) -> None:
        pool = publisher_on(node)
        wanted = layout.contents(build.machine(gpus=2), DYNAMIC)
        pool.publish(wanted)
        await pool.sync()
        trees = await node.slices()
        assert devices_of(trees) == [[device.name for device in each.devices] for each in wanted]
        assert [tree["metadata"]["name"][:6] for tree in trees] == ["00000-", "00001-", "00002-"]
        assert generations_of(trees) == {1}
        assert {tree["spec"]["pool"]["resourceSliceCount"] for tree in trees} == {3}
        (owner,) = trees[0]["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("Node", node.name)
        assert owner["uid"] == (await node.read())["metadata"]["uid"]
        assert owner["controller"] is True
        assert pool.problem == ""

    servers.run(place, story)


def test_publishing_what_is_published_writes_nothing(place: servers.Place) -> None:
    async def story(node: servers.Node) -> None:
        taints = {"gpu-1": (XID,)}
        for chosen in (STATIC, DYNAMIC, SHARED):
            wanted = layout.contents(build.machine(gpus=2), chosen, taints=taints)
            first = publisher_on(node)
            first.publish(wanted)
            await first.sync()
            before = await node.slices()
            for again in (first, publisher_on(node)):
                count = again.write_count
                again.publish(wanted)
                await again.sync()
                assert again.write_count == count
            assert await node.slices() == before

    servers.run(place, story)


def test_a_taint_keeps_the_time_since_which_it_holds(place: servers.Place) -> None:
    async def story(node: servers.Node) -> None:
        pool = publisher_on(node)
        pool.publish(layout.contents(build.machine(gpus=2), STATIC, taints={"gpu-1": (XID,)}))
        await pool.sync()
        (before,) = await node.slices()
        added = before["spec"]["devices"][1]["taints"][0]["timeAdded"]
        pool.publish(
            layout.contents(
                build.machine(gpus=2), STATIC, taints={"gpu-0": (XID,), "gpu-1": (XID,)}
            )
        )
        await pool.sync()
        (after,) = await node.slices()
        assert after["spec"]["devices"][1]["taints"][0]["timeAdded"] == added
        assert after["metadata"]["name"] == before["metadata"]["name"]
        assert generations_of([after]) == {1}

    servers.run(place, story)


def test_a_pool_shrinks_grows_and_changes_its_kind(place: servers.Place) -> None:
    async def story(node: servers.Node) -> None:
        pool = publisher_on(node)
        for gpus, chosen in ((2, DYNAMIC), (2, STATIC), (0, STATIC), (3, DYNAMIC), (1, DYNAMIC)):
            wanted = layout.contents(build.machine(gpus=gpus), chosen)
            pool.publish(wanted)
            await pool.sync()
            trees = await node.slices()
            names = [[device.name for device in each.devices] for each in wanted]
            assert devices_of(trees) == names
            assert len(generations_of(trees)) == 1

    servers.run(place, story)


def test_slices_of_another_driver_on_the_node_stay(place: servers.Place) -> None:
    async def story(node: servers.Node) -> None:
        tree = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"generateName": "other-"},
            "spec": {
                "driver": "other.example.com",
                "nodeName": node.name,
                "pool": {"name": node.name, "generation": 7, "resourceSliceCount": 1},
                "devices": [{"name": "other"}],
            },
        }
        await node.api.create(Target(registry.SLICE), msgspec.json.encode(tree))
        pool = publisher_on(node)
        pool.publish(layout.contents(build.machine(), STATIC))
        await pool.sync()
        trees = await node.slices()
        assert devices_of(trees) == [["gpu-0"], ["other"]]
        assert generations_of(trees) == {1, 7}

    servers.run(place, story)


def test_a_slice_that_was_deleted_comes_back(place: servers.Place) -> None:
    async def story(node: servers.Node) -> None:
        pool = publisher_on(node)
        follower = asyncio.create_task(
            node_slices.follow(node.over, pool, node.name, clocks.SystemClock())
        )
        async with running(pool):
            pool.publish(layout.contents(build.machine(gpus=2), DYNAMIC))
            await pool.written()
            trees = await node.slices()
            name = trees[1]["metadata"]["name"]
            await node.api.delete(Target(registry.SLICE, name=name))

            async def is_whole() -> bool:
                return [len(each) for each in devices_of(await node.slices())] == [0, 26, 26]

            await waiting.until(is_whole, "the slice to come back")
        follower.cancel()

    servers.run(place, story)


class Crashing:
    """An API that breaks once, at one of its writes: before the server has it, or before the answer is read."""

    def __init__(self, server: client.KubeApi, *, at: int, is_performed: bool) -> None:
        self._server = server
        self._writes_left = at
        self._is_performed = is_performed

    async def get(self, target: Target) -> bytes:
        return await self._server.get(target)

    async def create(self, target: Target, document: bytes, *, brief: bool = False) -> bytes:
        return await self._broken(self._server.create(target, document, brief=brief))

    async def patch(
        self, target: Target, patch: bytes, *, brief: bool = False, adds: bool = False
    ) -> bytes:
        return await self._broken(self._server.patch(target, patch, brief=brief, adds=adds))

    async def delete(self, target: Target, *, uid: str = "", resource_version: str = "") -> None:
        await self._broken(self._server.delete(target, uid=uid, resource_version=resource_version))

    async def _broken(self, write: Coroutine[Any, Any, T]) -> T:
        self._writes_left -= 1
        if self._writes_left >= 0:
            return await write
        if self._is_performed:
            await write
        else:
            write.close()
        raise failures.Unavailable("the connection broke")


@pytest.mark.parametrize("is_performed", [False, True], ids=["unsent", "unanswered"])
def test_a_crash_at_any_write_is_repaired_by_the_next_run(is_performed: bool) -> None:
    async def story(node: servers.Node) -> None:
        before = layout.contents(build.machine(gpus=3), DYNAMIC)
        after = layout.contents(build.machine("H200-SXM-141GB", gpus=2), DYNAMIC)
        for at in range(8):
            healthy = publisher_on(node)
            healthy.publish(before)
            await healthy.sync()
            api: Any = Crashing(node.api, at=at, is_performed=is_performed)
            crashing = publisher.PoolPublisher(
                api,
                functools.partial(listed, node),
                driver=options.DRIVER,
                node_name=node.name,
                clock=clocks.SystemClock(),
            )
            crashing.publish(after)
            with contextlib.suppress(failures.Unavailable):
                await crashing.sync()
            seen = complete_pool(await node.slices())
            assert seen in (None, names_of(before), names_of(after))
            restarted = publisher_on(node)
            restarted.publish(after)
            await restarted.sync()
            assert complete_pool(await node.slices()) == names_of(after)
            assert len(generations_of(await node.slices())) == 1

    servers.run(servers.Embedded(), story)


def complete_pool(trees: Sequence[servers.Tree]) -> list[list[str]] | None:
    """The devices a scheduler would use; None while the newest generation is incomplete."""
    newest = max(generations_of(trees))
    current = [tree for tree in trees if tree["spec"]["pool"]["generation"] == newest]
    count = current[0]["spec"]["pool"]["resourceSliceCount"]
    return devices_of(current) if len(current) == count else None


def names_of(contents: Sequence[layout.SliceContent]) -> list[list[str]]:
    """Device names, slice by slice."""
    return [[device.name for device in content.devices] for content in contents]


async def listed(node: servers.Node) -> Sequence[bytes]:
    """The node's slices."""
    documents, _ = await client.list_documents(
        node.over, registry.SLICE, params={"fieldSelector": f"spec.nodeName={node.name}"}
    )
    return documents


def test_a_node_that_is_not_there_yet_is_waited_for() -> None:
    async def story(node: servers.Node) -> None:
        late = f"{node.name}-late"
        pool = node_slices.publisher_for(node.over, late, clocks.SystemClock())
        async with running(pool):
            pool.publish(layout.contents(build.machine(), STATIC))
            await waiting.until(lambda: pool.problem, "the publisher to miss the node")
            assert late in pool.problem
            tree = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": late}}
            await node.api.create(Target(registry.NODE), msgspec.json.encode(tree))
            await asyncio.wait_for(pool.written(), waiting.GIVE_UP_SECONDS)
        assert pool.problem == ""

    servers.run(servers.Embedded(), story)


def test_while_the_server_is_away_the_newest_inventory_wins() -> None:
    async def story(node: servers.Node) -> None:
        calls: list[int] = []

        async def unreliable() -> Sequence[bytes]:
            calls.append(1)
            if len(calls) <= 2:
                # A port on which nothing listens: a real refused connection.
                away = client_config.Connection(server="https://127.0.0.1:9")
                async with transport.Transport(away) as nowhere:
                    documents, _ = await client.list_documents(nowhere, registry.SLICE)
                return documents
            return await listed(node)

        pool = publisher.PoolPublisher(
            node.api,
            unreliable,
            driver=options.DRIVER,
            node_name=node.name,
            clock=clocks.SystemClock(),
        )
        async with running(pool):
            pool.publish(layout.contents(build.machine(gpus=1), STATIC))
            await waiting.until(lambda: pool.problem, "the first failure")
            pool.publish(layout.contents(build.machine(gpus=3), STATIC))
            await asyncio.wait_for(pool.written(), waiting.GIVE_UP_SECONDS)
        assert devices_of(await node.slices()) == [["gpu-0", "gpu-1", "gpu-2"]]
        assert pool.write_count == 1
        assert pool.problem == ""

    servers.run(servers.Embedded(), story)

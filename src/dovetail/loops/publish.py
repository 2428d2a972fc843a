"""Publishes a fleet of hollow nodes: device classes, then each node and the slices that go when it goes.

Given an API and plain trees as `sim.inventory` makes them; creates what is missing and brings what is there to what was
given, so that publishing twice is publishing once. A node's status is written beside it. Never deletes.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from dovetail.loops import hollow, play
from dovetail.model import kinds, nodes, objects
from dovetail.ports import api as apis
from dovetail.ports import clock as clocks
from dovetail.ports import failures

PATIENCE_SECONDS: Final = 60.0  # how long an API server may be busy or away before publishing gives up
FIRST_DELAY: Final = 0.2
KUBELET_VERSION: Final = "v0.0.0-hollow"

Tree = dict[str, Any]


class Progress(NamedTuple):
    """How far publishing is."""

    nodes: int
    nodes_wanted: int
    slices: int


class _Head(msgspec.Struct):
    metadata: Tree = {}


class Publisher:
    """Publishes; may be asked again after something was lost."""

    def __init__(self, api: apis.Api, clock: clocks.Clock, *, concurrency: int = 32) -> None:
        self._api = api
        self._clock = clock
        self._concurrency = concurrency

    async def publish(self, trees: Iterable[Tree], *, say: Callable[[Progress], None] = lambda _: None) -> Progress:
        """Everything given, classes first. Namespaces are taken to exist. Raises the first failure that stays."""
        classes, machines = _sorted(trees)
        for tree in classes:
            await self._put(apis.Target(kinds.DEVICE_CLASS), tree)
        done = Progress(0, len(machines), 0)

        waiting = iter(machines)

        async def worker() -> None:
            nonlocal done
            for node, own in waiting:  # one iterator for all workers: each takes the next
                await self._put_node(node, own)
                done = done._replace(nodes=done.nodes + 1, slices=done.slices + len(own))
                say(done)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._concurrency, len(machines))):
                group.create_task(worker())
        return done

    async def _put_node(self, tree: Tree, slices: list[Tree]) -> None:
        node = await self._put(apis.Target(kinds.NODE), _dressed(tree, self._clock.now()))
        metadata = {"name": tree["metadata"]["name"], "uid": node["uid"]}
        owner = hollow.owner(objects.decode_struct(nodes.Node, objects.encode_tree({"metadata": metadata})))
        for one in slices:
            owned = one | {"metadata": one["metadata"] | {"ownerReferences": [owner]}}
            await self._put(apis.Target(kinds.SLICE), owned)

    async def _put(self, collection: apis.Target, tree: Tree) -> Tree:
        """Creates an object, or brings the one of that name to what is given; its metadata."""
        body = objects.encode_tree(tree)
        try:
            return _metadata(await self._persistently(lambda: self._api.create(collection, body, brief=True)))
        except failures.AlreadyThere:
            return await self._bring(collection._replace(name=tree["metadata"]["name"]), tree)

    async def _bring(self, target: apis.Target, tree: Tree) -> Tree:
        old = msgspec.json.decode(await self._persistently(lambda: self._api.get(target)), type=Tree)
        patch: Tree = {"metadata": {**tree["metadata"], "uid": old["metadata"]["uid"]}}
        if "spec" in tree:
            patch["spec"] = _replacing(old.get("spec") or {}, tree["spec"])
        body = objects.encode_tree(patch)
        answer = await self._persistently(lambda: self._api.patch(target, body, brief=True))
        if "status" in tree:
            beside = target._replace(subresource="status")
            status = objects.encode_tree({"status": tree["status"]})
            answer = await self._persistently(lambda: self._api.patch(beside, status, brief=True))
        return _metadata(answer)

    async def _persistently(self, ask: Callable[[], Awaitable[bytes]]) -> bytes:
        """Asks again while the server is busy or away. Everything asked here may be asked twice."""
        until, delay = self._clock.monotonic() + PATIENCE_SECONDS, FIRST_DELAY
        while True:
            try:
                return await ask()
            except (failures.Unavailable, failures.Throttled) as failure:
                wait = max(delay, failure.retry_after or 0.0)
                if self._clock.monotonic() + wait > until:
                    raise
            await self._clock.sleep(wait)
            delay = min(2 * delay, 5.0)


def _sorted(trees: Iterable[Tree]) -> tuple[list[Tree], list[tuple[Tree, list[Tree]]]]:
    """Device classes, and each node with its slices."""
    classes: list[Tree] = []
    machines: dict[str, tuple[Tree, list[Tree]]] = {}
    for tree in trees:
        match tree["kind"]:
            case "DeviceClass":
                classes.append(tree)
            case "Node":
                machines[tree["metadata"]["name"]] = (tree, [])
            case "ResourceSlice":
                machines[tree["spec"]["nodeName"]][1].append(tree)
    return classes, list(machines.values())


def _dressed(tree: Tree, now: datetime.datetime) -> Tree:
    """A node as a kubelet would register it."""
    metadata = tree["metadata"]
    name = metadata["name"]
    annotations = (metadata.get("annotations") or {}) | {play.HOLLOW: "true"}
    labels: dict[str, str] = metadata.get("labels") or {}
    status: Tree = dict(tree.get("status") or {})
    status["conditions"] = hollow.node_conditions(now=now)
    status["addresses"] = [
        {"type": "InternalIP", "address": hollow.address_of(name)},
        {"type": "Hostname", "address": name},
    ]
    status["nodeInfo"] = {
        **dict.fromkeys(("machineID", "systemUUID", "bootID", "kernelVersion", "osImage"), "hollow"),
        "containerRuntimeVersion": "hollow://0",
        "kubeletVersion": KUBELET_VERSION,
        "kubeProxyVersion": "",
        "operatingSystem": labels.get("kubernetes.io/os", "linux"),
        "architecture": labels.get("kubernetes.io/arch", "amd64"),
    }
    return tree | {"metadata": metadata | {"annotations": annotations}, "status": status}


def _replacing(old: Tree, new: Tree) -> Tree:
    """A merge patch after which a spec has the new fields only."""
    return dict.fromkeys(old.keys() - new.keys()) | new


def _metadata(answer: bytes) -> Tree:
    return msgspec.json.decode(answer, type=_Head).metadata

"""Publishes a fleet of hollow nodes: device classes, then each node with the slices it owns.

Given an API and plain trees from `sim.fleet.fleet_objects`; creates missing objects and updates existing ones to what
is given, so that publishing twice equals publishing once. Never deletes.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from dovetail.hollow import hollow_status, node_marks
from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import nodes
from dovetail.ports import api as apis
from dovetail.ports import clock as clocks
from dovetail.ports import failures

PATIENCE_SECONDS: Final = 60.0  # with a server that is busy or away, before publishing fails
FIRST_DELAY: Final = 0.2
KUBELET_VERSION: Final = "v0.0.0-hollow"

Tree = dict[str, Any]


class Progress(NamedTuple):
    """How many nodes and slices are published."""

    nodes: int
    nodes_wanted: int
    slices: int


class _Head(msgspec.Struct):
    metadata: Tree = {}


class Publisher:
    """Publishes fleets; may publish again after something was lost."""

    def __init__(self, api: apis.Api, clock: clocks.Clock, *, concurrency: int = 32) -> None:
        self._api = api
        self._clock = clock
        self._concurrency = concurrency

    async def publish(
        self, trees: Iterable[Tree], *, say: Callable[[Progress], None] = lambda _: None
    ) -> Progress:
        """Publishes everything, classes first. Namespaces must exist. Raises the first failure that persists."""
        classes, machines = _sorted(trees)
        for tree in classes:
            await self._put(apis.Target(registry.DEVICE_CLASS), tree)
        done = Progress(0, len(machines), 0)

        waiting = iter(machines)

        async def worker() -> None:
            nonlocal done
            for node, slices in waiting:  # one iterator for all workers: each takes the next
                await self._put_node(node, slices)
                done = done._replace(nodes=done.nodes + 1, slices=done.slices + len(slices))
                say(done)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._concurrency, len(machines))):
                    group.create_task(worker())
        except ExceptionGroup as refusals:
            # Workers that were already waiting may fail, too; the first failure names the cause.
            raise refusals.exceptions[0] from None
        return done

    async def _put_node(self, tree: Tree, slices: list[Tree]) -> None:
        registered = _registered(tree, self._clock.now())
        stored = await self._put(apis.Target(registry.NODE), registered)
        metadata = {"name": tree["metadata"]["name"], "uid": stored["uid"]}
        node = codec.decode_struct(nodes.Node, codec.encode_tree({"metadata": metadata}))
        owner = hollow_status.owner_reference(node)
        for slice_ in slices:
            owned = slice_ | {"metadata": slice_["metadata"] | {"ownerReferences": [owner]}}
            await self._put(apis.Target(registry.SLICE), owned)

    async def _put(self, collection: apis.Target, tree: Tree) -> Tree:
        """Creates an object, or updates the one of that name; returns its metadata."""
        body = codec.encode_tree(tree)
        try:
            answer = await self._with_retry(lambda: self._api.create(collection, body, brief=True))
        except failures.AlreadyThere:
            return await self._update(collection._replace(name=tree["metadata"]["name"]), tree)
        return _metadata(answer)

    async def _update(self, target: apis.Target, tree: Tree) -> Tree:
        document = await self._with_retry(lambda: self._api.get(target))
        old = msgspec.json.decode(document, type=Tree)
        patch: Tree = {"metadata": {**tree["metadata"], "uid": old["metadata"]["uid"]}}
        if "spec" in tree:
            patch["spec"] = _replacing(old.get("spec") or {}, tree["spec"])
        body = codec.encode_tree(patch)
        answer = await self._with_retry(lambda: self._api.patch(target, body, brief=True))

        if "status" in tree:
            subresource = target._replace(subresource="status")
            status = codec.encode_tree({"status": tree["status"]})
            answer = await self._with_retry(
                lambda: self._api.patch(subresource, status, brief=True)
            )
        return _metadata(answer)

    async def _with_retry(self, request: Callable[[], Awaitable[bytes]]) -> bytes:
        """Repeats the request while the server is busy or away. Every request here may be sent twice."""
        until, delay = self._clock.monotonic() + PATIENCE_SECONDS, FIRST_DELAY
        while True:
            try:
                return await request()
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


def _registered(tree: Tree, now: datetime.datetime) -> Tree:
    """A node as a kubelet would register it."""
    metadata = tree["metadata"]
    name = metadata["name"]
    annotations = (metadata.get("annotations") or {}) | {node_marks.HOLLOW: "true"}
    labels: dict[str, str] = metadata.get("labels") or {}
    status: Tree = dict(tree.get("status") or {})
    status["conditions"] = hollow_status.node_conditions(now=now)
    status["addresses"] = [
        {"type": "InternalIP", "address": hollow_status.address_of(name)},
        {"type": "Hostname", "address": name},
    ]
    status["nodeInfo"] = {
        **dict.fromkeys(
            ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage"), "hollow"
        ),
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

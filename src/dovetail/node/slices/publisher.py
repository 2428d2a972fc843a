"""Keeps a node's pool of ResourceSlices in the API server as the newest inventory wants it.

Given an API and a list of the pool's slices. `publish` never blocks: the newest contents win, and `run` writes them as
soon as the server answers. A failure is repeated with growing pauses and stops nothing else. Slices that another
writer changes are put back when `notice` is called. A server that drops counters gets no devices that need them: it
would hand out the same silicon twice. Leaves its slices behind when it ends: the next agent takes them over, and the
kubelet removes them if there is none.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.resource import slices
from dovetail.node.slices import dropped_fields, reconcile, sync_loop
from dovetail.node.slices.layout import SliceContent
from dovetail.ports import api, failures
from dovetail.ports import clock as clocks

LOG = logging.getLogger("dovetail.node.slices")

# All ResourceSlices of this driver on this node, as documents.
ListSlices = Callable[[], Awaitable[Sequence[bytes]]]


class CountersDropped(Exception):
    """The server does not store what keeps partitions of one GPU apart."""


class PoolPublisher:
    """The pool of one driver on one node."""

    def __init__(
        self,
        server: api.Api,
        list_slices: ListSlices,
        *,
        driver: str,
        node_name: str,
        clock: clocks.Clock,
        randomness: random.Random | None = None,
    ) -> None:
        self._server = server
        self._list_slices = list_slices
        self._driver = driver
        self._node_name = node_name
        self._loop = sync_loop.SyncLoop(
            self.sync, what=f"slices of {node_name}", clock=clock, randomness=randomness
        )
        self._wanted: tuple[SliceContent, ...] | None = None
        # What the server stored for contents of which it dropped fields: the same contents need no second write.
        self._stored_for: dict[bytes, SliceContent] = {}
        self.write_count = 0
        self._refusal = ""
        self.has_dropped_counters = False  # publish without dynamic MIG instead

    def publish(self, contents: Sequence[SliceContent]) -> None:
        """These are the contents of the pool from now on."""
        self._wanted = tuple(contents)
        self.notice()

    def notice(self) -> None:
        """Slices may have changed in the server: compares them again."""
        self._loop.notice()

    async def written(self) -> None:
        """Returns once the newest contents are in the server."""
        await self._loop.done()

    async def run(self) -> None:
        """Writes whenever there is something to write, until cancelled."""
        await self._loop.run()

    @property
    def problem(self) -> str:
        """Why the pool is not as wanted; empty if it is."""
        return self._loop.failure or self._refusal

    async def sync(self) -> None:
        """Compares once and writes what differs. Raises ApiFailure; repeating it is always right."""
        wanted = self._wanted
        if wanted is None:
            return
        needs_counters = any(content.shared_counters for content in wanted)
        if self.has_dropped_counters and needs_counters:
            await self._withdraw()
            return
        try:
            await self._sync(wanted)
        except CountersDropped:
            self.has_dropped_counters = True
            await self._withdraw()
        else:
            self._refusal = ""

    async def _withdraw(self) -> None:
        self._refusal = "the API server drops counters: its gate DRAPartitionableDevices is off"
        LOG.error("slices.withdrawn node=%s reason=%s", self._node_name, self._refusal)
        await self._sync(())

    async def _sync(self, wanted: Sequence[SliceContent]) -> None:
        expected = [self._stored_for.get(_key(content), content) for content in wanted]
        documents = await self._list_slices()
        stored = [slice_ for slice_ in map(_decoded, documents) if self._is_ours(slice_)]
        steps = reconcile.writes(stored, expected, pool_name=self._node_name)
        if not steps:
            return
        owner_uid = await self._node_uid()
        for step in steps:
            await self._write(step, wanted, owner_uid=owner_uid)
        LOG.info(
            "slices.published node=%s slices=%d devices=%d writes=%d",
            self._node_name,
            len(wanted),
            sum(len(content.devices) for content in wanted),
            len(steps),
        )

    def _is_ours(self, slice_: slices.ResourceSlice) -> bool:
        spec = slice_.spec
        return spec.driver == self._driver and spec.pool.name == self._node_name

    async def _write(
        self, step: reconcile.Write, wanted: Sequence[SliceContent], *, owner_uid: str
    ) -> None:
        self.write_count += 1
        match step:
            case reconcile.Create():
                document = self._document(step, wanted[step.index], owner_uid=owner_uid)
                target = api.Target(registry.SLICE)
                answer = await self._server.create(target, codec.encode_tree(document))
                self._compare(wanted[step.index], answer)
            case reconcile.Update():
                target = api.Target(registry.SLICE, name=step.stored.metadata.name)
                patch = _patch(step, wanted[step.index])
                answer = await self._server.patch(target, codec.encode_tree(patch))
                self._compare(wanted[step.index], answer)
            case reconcile.Delete():
                await self._delete(step.stored)

    async def _delete(self, stored: slices.ResourceSlice) -> None:
        target = api.Target(registry.SLICE, name=stored.metadata.name)
        identity = stored.metadata
        try:
            await self._server.delete(
                target, uid=identity.uid, resource_version=identity.resource_version
            )
        except failures.Missing:
            return

    def _document(
        self, step: reconcile.Create, content: SliceContent, *, owner_uid: str
    ) -> dict[str, Any]:
        prefix = reconcile.name_prefix(step.index, driver=self._driver, node=self._node_name)
        owner = {
            "apiVersion": registry.NODE.api_version,
            "kind": registry.NODE.name,
            "name": self._node_name,
            "uid": owner_uid,
            "controller": True,
        }
        spec = {"driver": self._driver, "nodeName": self._node_name}
        return {
            "apiVersion": registry.SLICE.api_version,
            "kind": registry.SLICE.name,
            "metadata": {"generateName": prefix, "ownerReferences": [owner]},
            "spec": spec | _body(step.pool, content.devices, content),
        }

    def _compare(self, content: SliceContent, answer: bytes) -> None:
        """An older server drops fields it does not know. What it stored is then what the pool is compared with."""
        spec = _decoded(answer).spec
        if reconcile.is_same(spec, content):
            return
        dropped = dropped_fields.between(content, spec)
        if dropped_fields.COUNTERS in dropped:
            raise CountersDropped
        LOG.error("slices.dropped node=%s fields=%s", self._node_name, ",".join(dropped))
        held = SliceContent(tuple(spec.devices), tuple(spec.shared_counters))
        self._stored_for[_key(content)] = held

    async def _node_uid(self) -> str:
        document = await self._server.get(api.Target(registry.NODE, name=self._node_name))
        return codec.decode_struct(nodes.Node, document).metadata.uid


def _decoded(document: bytes) -> slices.ResourceSlice:
    return codec.decode_struct(slices.ResourceSlice, document)


def _key(content: SliceContent) -> bytes:
    return codec.encode_struct(content)


def _patch(step: reconcile.Update, content: SliceContent) -> dict[str, Any]:
    """A merge patch replaces lists as a whole; what a slice no longer has is set to null."""
    held = step.stored
    devices = reconcile.with_stored_times(content, held.spec.devices)
    empty = {"devices": None, "sharedCounters": None}
    return {
        "metadata": {"uid": held.metadata.uid, "resourceVersion": held.metadata.resource_version},
        "spec": empty | _body(step.pool, devices, content),
    }


def _body(
    pool: slices.ResourcePool, devices: Sequence[slices.Device], content: SliceContent
) -> dict[str, Any]:
    body: dict[str, Any] = {"pool": _tree(pool)}
    if devices:
        body["devices"] = [_tree(device) for device in devices]
    if content.shared_counters:
        body["sharedCounters"] = [_tree(counters) for counters in content.shared_counters]
    return body


def _tree(struct: msgspec.Struct) -> dict[str, Any]:
    return codec.tree_of(struct)

"""Keeps labels on a Node, and leaves alone what another writer has put there.

Given an API. A label is ours if the node had none of that name when we wrote it; an annotation remembers the names and
values. One that another writer has changed since is theirs from then on. Never removes a label that is not ours.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import nodes
from dovetail.node.slices import sync_loop
from dovetail.ports import api
from dovetail.ports import clock as clocks

ANNOTATION: Final = "dovetail.dev/feature-labels"


class LabelWriter:
    """The labels of one node."""

    def __init__(
        self,
        server: api.Api,
        *,
        node_name: str,
        clock: clocks.Clock,
        randomness: random.Random | None = None,
    ) -> None:
        self._server = server
        self._target = api.Target(registry.NODE, name=node_name)
        self._loop = sync_loop.SyncLoop(
            self.sync, what=f"labels of {node_name}", clock=clock, randomness=randomness
        )
        self._wanted: Mapping[str, str] | None = None

    def publish(self, labels: Mapping[str, str]) -> None:
        """These labels should be on the node from now on."""
        self._wanted = dict(labels)
        self._loop.notice()

    async def written(self) -> None:
        """Returns once the newest labels are on the node."""
        await self._loop.done()

    async def run(self) -> None:
        """Writes whenever there is something to write, until cancelled."""
        await self._loop.run()

    async def sync(self) -> None:
        """Compares once and writes what differs. Raises ApiFailure; repeating it is always right."""
        if self._wanted is None:
            return
        document = await self._server.get(self._target)
        node = codec.decode_struct(nodes.Node, document)
        change = change_of(node.metadata.labels, node.metadata.annotations, self._wanted)
        if change is None:
            return
        metadata = {"resourceVersion": node.metadata.resource_version, **change}
        await self._server.patch(self._target, codec.encode_tree({"metadata": metadata}))


def change_of(
    labels: Mapping[str, str], annotations: Mapping[str, str], wanted: Mapping[str, str]
) -> dict[str, Any] | None:
    """The metadata to patch, or None if the node is as it should be."""
    remembered = _remembered(annotations)
    ours = {name for name, value in remembered.items() if labels.get(name) == value}
    set_by_us = {
        name: value for name, value in wanted.items() if name in ours or name not in labels
    }
    changed: dict[str, str | None] = {
        name: value for name, value in set_by_us.items() if labels.get(name) != value
    }
    for name in ours - wanted.keys():
        changed[name] = None
    if not changed and remembered == set_by_us:
        return None
    memory = msgspec.json.encode(set_by_us, order="sorted").decode() if set_by_us else None
    return {"labels": changed, "annotations": {ANNOTATION: memory}}


def _remembered(annotations: Mapping[str, str]) -> dict[str, str]:
    """What we wrote; nothing if the annotation is absent or was made unreadable."""
    try:
        return msgspec.json.decode(annotations.get(ANNOTATION, "{}"), type=dict[str, str])
    except msgspec.DecodeError:
        return {}

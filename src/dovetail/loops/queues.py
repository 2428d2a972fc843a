"""Writes what is known about queues into their status: whether each is in order, and the numbers decided with.

Given the picture and, from whoever decides, the numbers of the last decision. Only what differs is written, each queue
at most every few seconds, and what only time changes at most every minute. A conflict waits for the queue's newer
version; a tenure that ends writes nothing more. Never decides, never computes a share.
"""

from __future__ import annotations

import asyncio
import datetime
import math
from collections.abc import Mapping
from typing import Any, Final

from dovetail.loops import duties, picture
from dovetail.model import kinds, objects, queues, queuestatus, queuetree
from dovetail.ports import api as apis
from dovetail.ports import clock as clocks
from dovetail.ports import meter
from dovetail.world import events

EVERY_SECONDS: Final = 3.0
PASSING_SECONDS: Final = 60.0
SETTLE_SECONDS: Final = 0.2  # many queues are often applied together
AT_ONCE: Final = 4
PORTION: Final = 50  # queues looked at without letting others go on
LOOK: Final = ""  # the duty that is about all queues

Tree = dict[str, Any]


class Statuses:
    """What was told about queues, and what is to be told."""

    def __init__(
        self, picture_: picture.Picture, api: apis.Api, *, clock: clocks.Clock, meter_: meter.Meter | None = None
    ) -> None:
        self._picture = picture_
        self._known = picture_.world.queues
        self._api = api
        self._clock = clock
        self._meter = meter_ or meter.NoMeter()
        self._numbers: Mapping[str, queues.QueueStatus] = {}
        self._problems: dict[str, queuetree.Problem] | None = None
        self._written: dict[str, float] = {}
        self._looked = -math.inf
        self._duties: duties.Duties[str] = duties.Duties(clock, self._do, concurrency=AT_ONCE, name="queue status")

    def publish(self, numbers: Mapping[str, queues.QueueStatus]) -> None:
        """The numbers of a decision just made, for all queues it used. Costs nothing; call it after every decision."""
        self._numbers = numbers
        self._duties.put(LOOK, self._looked + EVERY_SECONDS - self._clock.monotonic())

    async def run(self) -> None:
        """Writes until cancelled."""
        self._picture.listen(self._observe)
        try:
            self._duties.put(LOOK)
            await self._duties.run()
        finally:
            self._picture.unlisten(self._observe)

    def _observe(self, kind: kinds.Kind, event: events.Event, before: Any) -> None:
        found = event.object
        if not isinstance(found, queues.Queue):
            return
        name = found.metadata.name
        if isinstance(event, events.Deleted):
            self._duties.drop(name)
            self._written.pop(name, None)
        if isinstance(event, events.Deleted) or before is None or before.spec != found.spec:
            self._problems = None  # of others too: parents and aliases are between queues
            self._duties.put(LOOK, SETTLE_SECONDS)
        elif before.status != found.status:
            self._consider(found)

    async def _do(self, key: str) -> None:
        if key == LOOK:
            await self._look()
        else:
            await self._write(key)

    async def _look(self) -> None:
        """Plans writes for all queues that want one, a portion at a time: there may be thousands."""
        self._looked = self._clock.monotonic()
        for number, queue in enumerate([*self._known.values()]):
            self._consider(queue)
            if number % PORTION == PORTION - 1:
                await asyncio.sleep(0)

    def _consider(self, queue: queues.Queue) -> None:
        """Plans a write where one is due, no earlier than the last one allows."""
        wanted = self._wanted(queue)
        if wanted == queue.status:
            return
        before = self._written.get(queue.metadata.name, -math.inf)
        least = EVERY_SECONDS if queuestatus.is_news(queue.status, wanted) else PASSING_SECONDS
        self._duties.put(queue.metadata.name, before + least - self._clock.monotonic())

    async def _write(self, name: str) -> None:
        queue = self._known.get(name)
        wanted = self._wanted(queue) if queue is not None else None
        if queue is None or wanted is None or wanted == queue.status:
            return
        metadata = {"uid": queue.metadata.uid, "resourceVersion": queue.metadata.resource_version}
        change = merge_patch(objects.tree_of(queue.status), objects.tree_of(wanted))
        document = objects.encode_tree({"metadata": metadata, "status": change})
        answer = await self._api.patch(apis.Target(kinds.QUEUE, name=name, subresource="status"), document)
        self._written[name] = self._clock.monotonic()
        self._meter.count("dovetail_queue_status_writes_total")
        self._picture.saw(kinds.QUEUE, objects.decode_struct(queues.Queue, answer))

    def _wanted(self, queue: queues.Queue) -> queues.QueueStatus:
        if self._problems is None:
            self._problems = queuetree.problems(self._known)
        name = queue.metadata.name
        now = self._clock.now().astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return queuestatus.told(queue, self._problems.get(name), self._numbers.get(name), now=now)


def merge_patch(before: Tree, after: Tree) -> Tree:
    """The JSON merge patch that makes one tree of the other: what is gone is null, lists are whole."""
    patch: Tree = {name: None for name in before if name not in after}
    for name, value in after.items():
        if isinstance(value, dict) and isinstance(before.get(name), dict):
            if below := merge_patch(before[name], value):
                patch[name] = below
        elif name not in before or before[name] != value:
            patch[name] = value
    return patch

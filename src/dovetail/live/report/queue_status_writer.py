"""Writes Queue statuses: whether each queue is valid, and the numbers of the last decision.

Given the informer and, after each decision, its numbers. Writes differences only, each queue at most every few seconds,
and values that merely change with time at most every minute. After a conflict it waits for the queue's new version;
after the tenure it writes nothing. Never decides, never computes a share.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any, Final

from dovetail import timestamps
from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.custom import queues
from dovetail.live import workqueue
from dovetail.live.informer import informer
from dovetail.model.queue import queue_status, queue_tree
from dovetail.ports import api as apis
from dovetail.ports import clock as clocks
from dovetail.ports import meter
from dovetail.world import events

EVERY_SECONDS: Final = 3.0
PASSING_SECONDS: Final = 60.0
SETTLE_SECONDS: Final = 0.2  # many queues are often applied together
AT_ONCE: Final = 4
PORTION: Final = 50  # queues processed before other tasks get a turn
ALL_QUEUES: Final = ""  # the work-queue key for a pass over all queues

Tree = dict[str, Any]


class QueueStatusWriter:
    """The queue statuses that are due, and when each was last written."""

    def __init__(
        self,
        picture_: informer.Informer,
        api: apis.Api,
        *,
        clock: clocks.Clock,
        meter_: meter.Meter | None = None,
        every_seconds: float = EVERY_SECONDS,
    ) -> None:
        self._picture = picture_
        self._every_seconds = every_seconds
        self._queues = picture_.world.queues
        self._api = api
        self._clock = clock
        self._meter = meter_ or meter.NoMeter()
        self._numbers: Mapping[str, queues.QueueStatus] = {}
        self._problems: dict[str, queue_tree.Problem] | None = None
        self._written: dict[str, float] = {}
        self._looked = -math.inf
        self._workqueue: workqueue.WorkQueue[str] = workqueue.WorkQueue(
            clock, self._do, concurrency=AT_ONCE, name="queue status"
        )

    def publish(self, numbers: Mapping[str, queues.QueueStatus]) -> None:
        """Takes the numbers of a decision, for all its queues. Cheap; call it after every decision."""
        self._numbers = numbers
        self._workqueue.put(
            ALL_QUEUES, self._looked + self._every_seconds - self._clock.monotonic()
        )

    async def run(self) -> None:
        """Writes until cancelled."""
        self._picture.listen(self._observe)
        try:
            self._workqueue.put(ALL_QUEUES)
            await self._workqueue.run()
        finally:
            self._picture.unlisten(self._observe)

    def _observe(self, kind: registry.Kind, event: events.Event, before: Any) -> None:
        queue = event.object
        if not isinstance(queue, queues.Queue):
            return

        name = queue.metadata.name
        is_deleted = isinstance(event, events.Deleted)
        if is_deleted:
            self._workqueue.drop(name)
            self._written.pop(name, None)

        if is_deleted or before is None or before.spec != queue.spec:
            self._problems = None  # of other queues, too: parents and aliases relate queues
            self._workqueue.put(ALL_QUEUES, SETTLE_SECONDS)
        elif before.status != queue.status:
            self._consider(queue)

    async def _do(self, key: str) -> None:
        if key == ALL_QUEUES:
            await self._look()
        else:
            await self._write(key)

    async def _look(self) -> None:
        """Plans writes for every queue that needs one, a portion at a time: there may be thousands."""
        self._looked = self._clock.monotonic()
        for number, queue in enumerate([*self._queues.values()]):
            self._consider(queue)
            if number % PORTION == PORTION - 1:
                await asyncio.sleep(0)

    def _consider(self, queue: queues.Queue) -> None:
        """Plans a write where the status differs, no earlier than the last write allows."""
        status = self._status_of(queue)
        if status == queue.status:
            return
        written_at = self._written.get(queue.metadata.name, -math.inf)
        has_news = queue_status.has_news(queue.status, status)
        interval = self._every_seconds if has_news else PASSING_SECONDS
        self._workqueue.put(queue.metadata.name, written_at + interval - self._clock.monotonic())

    async def _write(self, name: str) -> None:
        queue = self._queues.get(name)
        if queue is None:
            return
        status = self._status_of(queue)
        if status == queue.status:
            return

        metadata = {"uid": queue.metadata.uid, "resourceVersion": queue.metadata.resource_version}
        change = merge_patch(codec.tree_of(queue.status), codec.tree_of(status))
        document = codec.encode_tree({"metadata": metadata, "status": change})
        target = apis.Target(registry.QUEUE, name=name, subresource="status")
        answer = await self._api.patch(target, document)

        self._written[name] = self._clock.monotonic()
        self._meter.count("dovetail_queue_status_writes_total")
        self._picture.observe(registry.QUEUE, codec.decode_struct(queues.Queue, answer))

    def _status_of(self, queue: queues.Queue) -> queues.QueueStatus:
        if self._problems is None:
            self._problems = queue_tree.problems(self._queues)
        name = queue.metadata.name
        now = timestamps.to_text(self._clock.now())
        return queue_status.status_for(
            queue, self._problems.get(name), self._numbers.get(name), now=now
        )


def merge_patch(before: Tree, after: Tree) -> Tree:
    """The JSON merge patch from one tree to the other: removed fields are null, lists are replaced whole."""
    patch: Tree = {name: None for name in before if name not in after}
    for name, value in after.items():
        if isinstance(value, dict) and isinstance(before.get(name), dict):
            if nested := merge_patch(before[name], value):
                patch[name] = nested
        elif name not in before or before[name] != value:
            patch[name] = value
    return patch

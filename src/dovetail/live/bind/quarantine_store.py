"""Holds quarantined devices in the World, charged to the queue of their pod, and stores them as intents.

Given what `quarantine_rules` decides. An intent is written afterwards, in the background, so that a new
leader continues the quarantine. If the process dies before that, the quarantine is lost: nothing on the
server mentions such a pod any more. Never decides how long a quarantine lasts.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
from collections.abc import Coroutine, Iterator
from typing import Any

from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import intents
from dovetail.kubetypes.resource import claims
from dovetail.live.bind import quarantine_rules
from dovetail.live.evict import nominator, slot_codec
from dovetail.live.intents import intent_store
from dovetail.model import gangs
from dovetail.model.queue import queue_access
from dovetail.ports import clock as clocks
from dovetail.ports import failures
from dovetail.schedule import pod_order
from dovetail.world import events
from dovetail.world.devices.device_usage import UncertainHold
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.schedule")


class QuarantineStore:
    """Devices that a removed pod may still be using."""

    def __init__(
        self,
        world: World,
        clock: clocks.Clock,
        rules: quarantine_rules.QuarantineRules,
        *,
        is_on: bool = True,
    ) -> None:
        self._world = world
        self._clock = clock
        self._rules = rules
        self._is_on = is_on
        self._holds = 0
        self._intents: dict[str, list[intents.Intent]] = {}  # by pod uid
        self.fresh: list[intents.Intent] = []  # to be written
        self.over: list[intents.Intent] = []  # to be removed

    def __len__(self) -> int:
        return len(self._rules.held)

    def quarantine(self, pod: pods.Pod, used: list[claims.AllocationResult]) -> None:
        """Quarantines devices that a removed pod may still be using."""
        quarantined = self._rules.pod_lost(pod, used, self._clock.monotonic())
        if quarantined is None:
            return
        LOG.warning("quarantine.began", extra=_fields(quarantined))
        queue = queue_of(self._world, pod)
        self._hold(events.pod_id(pod), quarantined, queue)
        intent = _intent(pod, quarantined, queue, self._clock.now())
        self._intents.setdefault(events.pod_id(pod), []).append(intent)
        self.fresh.append(intent)

    def ended(self, uid: str) -> None:
        """The pod ended properly after all."""
        if self._rules.ended(uid):
            self._release(uid)

    def end_due(self) -> bool:
        """Ends quarantines that are over. Returns whether there were any."""
        free = self._rules.end_due(self._world.nodes, self._clock.monotonic())
        for uid in free:
            self._release(uid)
        return bool(free)

    def restore(self, note: intents.Intent) -> None:
        """Continues a quarantine of the previous leader, for no longer than is usual here."""
        stored = note.spec.quarantine
        assert stored is not None
        seconds = self._seconds_left(note, stored)
        if seconds <= 0 or stored.uid in self._world.pods:
            self.over.append(note)
            return
        name = f"{note.metadata.namespace}/{stored.pod}"
        until = self._clock.monotonic() + seconds
        allocations = (slot_codec.allocation_of(stored.devices),)
        quarantined = quarantine_rules.Quarantined(stored.node, name, until, seconds, allocations)
        LOG.info("quarantine.continued", extra=_fields(quarantined))
        self._rules.resume(stored.uid, quarantined)
        self._hold(stored.uid, quarantined, stored.queue)
        self._intents.setdefault(stored.uid, []).append(note)

    def writes(self, keeper: intent_store.IntentStore) -> Iterator[Coroutine[Any, Any, None]]:
        """Writes of new intents and removals of old ones, each to be started in the background."""
        while self.fresh:
            yield self._write(self.fresh.pop(), keeper)
        while self.over:
            yield keeper.remove(self.over.pop())

    async def _write(self, intent: intents.Intent, keeper: intent_store.IntentStore) -> None:
        """Stores an intent. If the server does not take it, only a new leader's quarantine is lost."""
        with contextlib.suppress(failures.Unavailable):
            await keeper.try_persist(intent, patience_seconds=nominator.PATIENCE_SECONDS)

    def _seconds_left(self, intent: intents.Intent, stored: intents.Quarantine) -> float:
        """How long a stored quarantine still lasts; 0 if it is over or cannot be continued."""
        until = pod_order.instant(intent.spec.deadline or None)
        node = self._world.nodes.get(stored.node)
        is_dated = until is not pod_order.NEVER and until.tzinfo is not None
        if not self._is_on or not is_dated or not stored.uid or node is None:
            return 0.0
        seconds = (until - self._clock.now()).total_seconds()
        if not quarantine_rules.is_ready(node):
            seconds = float(max(stored.seconds, 1))  # it starts again once the node is ready
        return min(seconds, self._rules.most_seconds)

    def _hold(self, uid: str, quarantined: quarantine_rules.Quarantined, queue: str) -> None:
        until = self._clock.now() + datetime.timedelta(seconds=quarantined.grace)
        doubt = UncertainHold(quarantined.pod, queue, until)
        for allocation in quarantined.allocations:
            self._holds += 1
            self._world.hold(f"quarantine/{uid}/{self._holds}", allocation, doubt)

    def _release(self, uid: str) -> None:
        for name in [name for name in self._world.held if name.startswith(f"quarantine/{uid}/")]:
            self._world.release(name)
        for intent in self._intents.pop(uid, ()):
            if intent in self.fresh:
                self.fresh.remove(intent)
            else:
                self.over.append(intent)


def queue_of(world: World, pod: pods.Pod) -> str:
    """The queue that a removed pod was charged to; empty if it had none."""
    if not world.queues:
        return ""
    gang = gangs.gang_of_pod(pod)
    seat = gangs.candidate_of(pod)
    if seat.membership is not None:
        owner_gang = world.gangs.declared(seat.membership.gang)
        if owner_gang is not None:
            gang = gangs.completed(owner_gang, gang, seat.membership.gang)
    doors = queue_access.QueueAccess(world.queues, world.namespaces)
    resolution = doors.resolve(gang.labels, gang.metadata.namespace, named=gang.queue)
    if resolution.queue:
        return resolution.queue
    return resolution.requested_queue if resolution.requested_queue in world.queues else ""


def _fields(quarantined: quarantine_rules.Quarantined) -> dict[str, object]:
    """For the log."""
    return {
        "pod": quarantined.pod,
        "node": quarantined.node,
        "seconds": quarantined.grace,
    }


def _intent(
    pod: pods.Pod, quarantined: quarantine_rules.Quarantined, queue: str, now: datetime.datetime
) -> intents.Intent:
    results = [
        result
        for allocation in quarantined.allocations
        for result in allocation.devices.results
        if not result.admin_access
    ]
    quarantine = intents.Quarantine(
        pod=pod.metadata.name,
        uid=events.pod_id(pod),
        node=quarantined.node,
        queue=queue,
        seconds=int(quarantined.grace),
        devices=tuple(map(slot_codec.device_of, results)),
    )
    spec = intents.IntentSpec(
        gang=f"pod/{pod.metadata.name}",
        deadline=intent_store.deadline_text(now, quarantined.grace),
        quarantine=quarantine,
    )
    return intent_store.intent_of(pod.metadata.namespace, spec)

"""Keeps devices of pods that were removed by force out of use in the World, at the expense of their queue.

Given what the quarantine decides. Each case is put down as an intent, after the fact and without anybody waiting for
it, so that a new leader goes on with it; one that begins and is not written before the process dies is lost with it,
for nothing on the server tells of such a pod any more. Never decides how long.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
from collections.abc import Coroutine, Iterator
from typing import Any

from dovetail.loops import intents as keeping
from dovetail.loops import nominating, places, quarantine
from dovetail.model import claims, gangs, intents, nodes, pods, queueuse
from dovetail.ports import clock as clocks
from dovetail.ports import failures
from dovetail.schedule import order
from dovetail.world import events
from dovetail.world.holds import Doubt
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.schedule")


class Ward:
    """Devices that somebody may still be using."""

    def __init__(self, world: World, clock: clocks.Clock, rules: quarantine.Quarantine, *, is_on: bool = True) -> None:
        self._world = world
        self._clock = clock
        self._rules = rules
        self._is_on = is_on
        self._holds = 0
        self._notes: dict[str, list[intents.Intent]] = {}  # by the uid of the pod
        self.fresh: list[intents.Intent] = []  # to be written
        self.over: list[intents.Intent] = []  # written, and to go

    def isolate(self, pod: pods.Pod, used: list[claims.AllocationResult]) -> None:
        """Keeps devices out of use that a removed pod may still be using."""
        held = self._rules.lost(pod, used, self._clock.monotonic())
        if held is None:
            return
        LOG.warning("devices quarantined", extra={"pod": held.pod, "node": held.node, "seconds": held.grace})
        queue = queue_of(self._world, pod)
        self._hold(events.pod_id(pod), held, queue)
        note = _note(pod, held, queue, self._clock.now())
        self._notes.setdefault(events.pod_id(pod), []).append(note)
        self.fresh.append(note)

    def ended(self, uid: str) -> None:
        """The pod ended properly after all."""
        if self._rules.ended(uid):
            self._release(uid)

    def let_go(self) -> bool:
        """Devices whose node let go of them can be given out again; whether there were any."""
        free = self._rules.let_go(self._world.nodes, self._clock.monotonic())
        for uid in free:
            self._release(uid)
        return bool(free)

    def take_over(self, note: intents.Intent) -> None:
        """Goes on with what a predecessor held, for no longer than is usual here."""
        kept = note.spec.quarantine
        assert kept is not None
        until = order.instant(note.spec.deadline or None)
        node = self._world.nodes.get(kept.node)
        is_dated = until is not order.NEVER and until.tzinfo is not None
        if not self._is_on or not is_dated or not kept.uid or node is None:
            self.over.append(note)
            return
        left = self._seconds_left(node, (until - self._clock.now()).total_seconds(), kept.seconds)
        if left <= 0 or kept.uid in self._world.pods:
            self.over.append(note)
            return
        allocations = (places.allocation_of(kept.devices),)
        name = f"{note.metadata.namespace}/{kept.pod}"
        held = quarantine.Held(kept.node, name, self._clock.monotonic() + left, left, allocations)
        LOG.info("quarantine goes on", extra={"pod": held.pod, "node": held.node, "seconds": left})
        self._rules.resume(kept.uid, held)
        self._hold(kept.uid, held, kept.queue)
        self._notes.setdefault(kept.uid, []).append(note)

    def writes(self, keeper: keeping.Keeper) -> Iterator[Coroutine[Any, Any, None]]:
        """Puts down what is held since, and removes what is over; each to be begun in the background."""
        while self.fresh:
            yield self._written(self.fresh.pop(), keeper)
        while self.over:
            yield keeper.remove(self.over.pop())

    async def _written(self, note: intents.Intent, keeper: keeping.Keeper) -> None:
        """A note that is not taken costs a new leader the quarantine, and nobody else anything."""
        with contextlib.suppress(failures.Unavailable):
            await keeper.tried(note, patience_seconds=nominating.PATIENCE_SECONDS)

    def _seconds_left(self, node: nodes.Node, left: float, whole: int) -> float:
        """Until the deadline; from now on anew where the node does not report in."""
        return min(left if quarantine.is_ready(node) else float(max(whole, 1)), self._rules.most_seconds)

    def _hold(self, uid: str, held: quarantine.Held, queue: str) -> None:
        until = self._clock.now() + datetime.timedelta(seconds=held.grace)
        for allocation in held.allocations:
            self._holds += 1
            self._world.hold(f"quarantine/{uid}/{self._holds}", allocation, Doubt(held.pod, queue, until))

    def _release(self, uid: str) -> None:
        for name in [name for name in self._world.held if name.startswith(f"quarantine/{uid}/")]:
            self._world.release(name)
        for note in self._notes.pop(uid, ()):
            if note in self.fresh:
                self.fresh.remove(note)
            else:
                self.over.append(note)


def queue_of(world: World, pod: pods.Pod) -> str:
    """The queue a pod that is gone was charged to; nothing where it had none."""
    if not world.queues:
        return ""
    said = gangs.implied(pod)
    seat = gangs.seat_of(pod)
    told = world.gangs.told(seat.tied.gang) if seat.tied is not None else None
    gang = said if told is None or seat.tied is None else gangs.completed(told, said, seat.tied.gang)
    doors = queueuse.Doors(world.queues, world.namespaces)
    found = doors.resolve(gang.labels, gang.metadata.namespace, named=gang.queue)
    return found.queue or (found.named if found.named in world.queues else "")


def _note(pod: pods.Pod, held: quarantine.Held, queue: str, now: datetime.datetime) -> intents.Intent:
    results = [one for allocation in held.allocations for one in allocation.devices.results if not one.admin_access]
    kept = intents.Quarantine(
        pod=pod.metadata.name,
        uid=events.pod_id(pod),
        node=held.node,
        queue=queue,
        seconds=int(held.grace),
        devices=tuple(map(places.device_of, results)),
    )
    deadline = keeping.stamp(now, held.grace)
    spec = intents.IntentSpec(gang=f"pod/{pod.metadata.name}", deadline=deadline, quarantine=kept)
    return keeping.intent_of(pod.metadata.namespace, spec)

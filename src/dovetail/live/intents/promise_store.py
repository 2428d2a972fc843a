"""Stores each gang's promised start on the API server: one Intent per gang, replaced when the promise changes.

Given the promises of every decision, and the Intents a predecessor left. The new Intent is written before the old one
is deleted, so at least one exists at any time. One that cannot be read is logged, deleted and replaced by the next
promise. Never makes a promise itself.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterable
from typing import Final

from dovetail import timestamps
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import intents
from dovetail.live.intents import intent_store, recovery
from dovetail.model import plan
from dovetail.schedule import pod_order
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.schedule")
MAX_CAUSE_LETTERS: Final = 4096  # of a cause, as the CRD limits it
FIRST_YEAR: Final = 1970
LAST_YEAR: Final = 9000  # leaves room for durations of centuries before year 9999


class PromiseStore:
    """The promises in force, and the Intents that store them."""

    def __init__(self, keeper: intent_store.IntentStore, world: World) -> None:
        self._intents = keeper
        self._world = world
        self._wanted: dict[plan.GangRef, intents.Promise] = {}
        self._written: dict[plan.GangRef, intents.Intent] = {}
        self._over: list[intents.Intent] = []
        # Could not be stored: refused, or the server has no Intent CRD.
        self._unstored: dict[plan.GangRef, intents.Promise] = {}
        self.is_busy = False

    def restore(self, note: intents.Intent) -> plan.Promise | None:
        """The predecessor's promise to a gang that still waits. The last call for a gang wins."""
        gang, promise = recovery.gang_of(note), promise_of(note)
        if promise is None:
            LOG.error(
                "promise.unreadable: the intent is deleted",
                extra={"intent": note.metadata.name, "gang": str(gang)},
            )
        if promise is None or not self._waits(gang):
            self._over.append(note)
            return None

        if (older := self._written.get(gang)) is not None:
            self._over.append(older)
        self._written[gang] = note
        self._wanted[gang] = stored_promise(promise)
        return promise

    def by_start(self, promises: Iterable[plan.Promise]) -> tuple[plan.Promise, ...]:
        """By promised start, the earliest first."""
        return tuple(sorted(promises, key=_start))

    def replace(self, promises: Iterable[plan.Promise]) -> bool:
        """Replaces the promises in force. Whether `carry` has to run for that, and does not yet."""
        self._wanted = {
            promise.gang: stored_promise(promise)
            for promise in promises
            if promise.start or promise.moved_from
        }
        return self.needs_write

    def starting(self) -> list[plan.Promise]:
        """The promises to gangs that are being bound: the binding may still fail."""
        return [promise for gang, promise in self._world.promises.items() if self._starts(gang)]

    def drop_finished(self) -> bool:
        """Drops the promises to gangs that run or are gone. Whether `carry` has to run for that."""
        for gang in [gang for gang in self._wanted if not self._waits(gang)]:
            del self._wanted[gang]
        return self.needs_write

    @property
    def needs_write(self) -> bool:
        """Whether there is something to write, and no task writes it."""
        return not self.is_busy and (bool(self._over) or self._next() is not None)

    async def write(self) -> None:
        """Writes until the stored promises are those in force."""
        self.is_busy = True
        try:
            while (gang := self._next()) is not None:
                await self._renew(gang)
            while self._over:
                await self._intents.remove(self._over.pop())
        finally:
            self.is_busy = False

    def _next(self) -> plan.GangRef | None:
        """A gang whose stored promise differs from the one in force."""
        for gang, promise in self._wanted.items():
            if promise not in (self._stored(gang), self._unstored.get(gang)):
                return gang
        for gang in self._written:
            if gang not in self._wanted:
                return gang
        return None

    def _waits(self, gang: plan.GangRef) -> bool:
        return any(
            not pod.spec.node_name and pod.status.phase not in pods.TERMINAL_PHASES
            for pod in self._members(gang)
        )

    def _starts(self, gang: plan.GangRef) -> bool:
        unbound = [pod for pod in self._members(gang) if not pod.spec.node_name]
        return any(pod.metadata.uid in self._world.assumed for pod in unbound)

    def _members(self, gang: plan.GangRef) -> list[pods.Pod]:
        members = self._world.gangs.members((gang.namespace, gang.name))
        return [pod for pod_id in members if (pod := self._world.pods.get(pod_id)) is not None]

    def _stored(self, gang: plan.GangRef) -> intents.Promise | None:
        written = self._written.get(gang)
        return None if written is None else written.spec.promise

    async def _renew(self, gang: plan.GangRef) -> None:
        before, promise = self._written.pop(gang, None), self._wanted.get(gang)
        self._unstored.pop(gang, None)

        if promise is not None:
            attempt = 1 if before is None else before.spec.attempt + 1
            spec = intents.IntentSpec(gang=gang.name, attempt=attempt, promise=promise)
            intent = intent_store.intent_of(gang.namespace, spec)
            if await self._intents.try_persist(intent):
                self._written[gang] = intent
            else:
                self._unstored[gang] = promise

        await self._intents.remove(before)


def promise_of(intent: intents.Intent) -> plan.Promise | None:
    """The promise an Intent stores, or the one that was lost; None where it cannot be read."""
    stored = intent.spec.promise
    if stored is None or not all(seat.uid and seat.node for seat in stored.seats):
        return None

    moved_from = None
    if stored.moved_from:
        moved_from = pod_order.instant(stored.moved_from)
        if not _is_usable(moved_from):
            return None

    gang = recovery.gang_of(intent)
    if moved_from is not None and not stored.start:
        return plan.Promise(
            gang=gang, cause="not known", moved_from=moved_from, lost_to=stored.cause
        )

    start = pod_order.instant(stored.start)
    if not _is_usable(start) or not stored.seats:
        return None

    seats = tuple(
        plan.PromisedSlot(pod=plan.PodRef(gang.namespace, seat.pod, seat.uid), node=seat.node)
        for seat in stored.seats
    )
    return plan.Promise(
        gang=gang, start=start, seats=seats, moved_from=moved_from, cause=stored.cause
    )


def stored_promise(promise: plan.Promise) -> intents.Promise:
    """How a promise that has a start, or had one, is stored."""
    cause = promise.lost_to if promise.start is None else promise.cause
    seats = sorted(promise.seats, key=lambda seat: seat.pod)  # equal promises are stored equally
    return intents.Promise(
        start=_stamp(promise.start),
        moved_from=_stamp(promise.moved_from),
        cause=cause[:MAX_CAUSE_LETTERS],
        seats=tuple(
            intents.Member(pod=seat.pod.name, uid=seat.pod.uid, node=seat.node) for seat in seats
        ),
    )


def _stamp(instant: datetime.datetime | None) -> str:
    """With every digit: what is read back is compared with end times."""
    return "" if instant is None else timestamps.to_exact_text(instant)


def _is_usable(instant: datetime.datetime) -> bool:
    """Whether it was readable, and date arithmetic on it cannot overflow."""
    if instant is pod_order.NEVER or instant.tzinfo is None:
        return False
    return FIRST_YEAR <= instant.year <= LAST_YEAR


def _start(promise: plan.Promise) -> datetime.datetime:
    start = promise.start or promise.moved_from
    assert start is not None
    return start

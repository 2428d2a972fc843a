"""Keeps on the API server which start a gang was promised: one intent a gang, written anew when the promise changes.

Given the promises of every decision, and what a predecessor left. The new one is written before the old one goes, so at
least one is there at any time. What cannot be read is said, removed, and promised anew. Never promises anything itself.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterable
from typing import Final

from dovetail.loops import intents as keeping
from dovetail.loops import recovery
from dovetail.model import intents, plan, pods
from dovetail.schedule import order
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.schedule")
MOST_LETTERS: Final = 4096  # of a cause, by the definition of intents
FIRST_YEAR: Final = 1970
LAST_YEAR: Final = 9000  # what lasts for centuries after it still ends within the years that can be written
TERMINAL: Final = ("Succeeded", "Failed")


class Pledges:
    """What is promised, and what is written about it."""

    def __init__(self, keeper: keeping.Keeper, world: World) -> None:
        self._keeper = keeper
        self._world = world
        self._wanted: dict[plan.GangRef, intents.Promise] = {}
        self._written: dict[plan.GangRef, intents.Intent] = {}
        self._over: list[intents.Intent] = []
        self._unsaid: dict[plan.GangRef, intents.Promise] = {}  # not to be had: refused, or the server knows no intents
        self.is_busy = False

    def taken_over(self, note: intents.Intent) -> plan.Promise | None:
        """What a predecessor promised to a gang that still waits. Of several about one gang the last that is given."""
        gang, promise = recovery.gang_of(note), promise_of(note)
        if promise is None:
            LOG.error("a promise cannot be read", extra={"intent": note.metadata.name, "gang": str(gang)})
        if promise is None or not self._waits(gang):
            self._over.append(note)
            return None
        wanted = note_of(promise)
        if (older := self._written.get(gang)) is not None:
            self._over.append(older)
        self._written[gang], self._wanted[gang] = note, wanted
        return promise

    def in_order(self, promises: Iterable[plan.Promise]) -> tuple[plan.Promise, ...]:
        """The first hour first."""
        return tuple(sorted(promises, key=_hour))

    def want(self, promises: Iterable[plan.Promise]) -> bool:
        """From now on these are promised. Whether somebody has to write that, and nobody does yet."""
        self._wanted = {one.gang: note_of(one) for one in promises if one.start or one.moved_from}
        return self.is_behind

    def starting(self) -> list[plan.Promise]:
        """What was promised to gangs that start and are not bound yet: it may still come to nothing."""
        return [one for gang, one in self._world.promises.items() if self._starts(gang)]

    def let_go(self) -> bool:
        """Gangs that wait no longer, because they run or are gone, need no promise. Whether that is to be written."""
        for gang in [gang for gang in self._wanted if not self._waits(gang)]:
            del self._wanted[gang]
        return self.is_behind

    @property
    def is_behind(self) -> bool:
        """Whether something is to be written, and nobody does."""
        return not self.is_busy and (bool(self._over) or self._next() is not None)

    async def carry(self) -> None:
        """Writes until what is written is what is promised, by then."""
        self.is_busy = True
        try:
            while (gang := self._next()) is not None:
                await self._renew(gang)
            while self._over:
                await self._keeper.remove(self._over.pop())
        finally:
            self.is_busy = False

    def _next(self) -> plan.GangRef | None:
        """A gang about which something else is written than was promised."""
        for gang, wanted in self._wanted.items():
            if wanted not in (self._said(gang), self._unsaid.get(gang)):
                return gang
        return next((gang for gang in self._written if gang not in self._wanted), None)

    def _waits(self, gang: plan.GangRef) -> bool:
        return any(not pod.spec.node_name and pod.status.phase not in TERMINAL for pod in self._members(gang))

    def _starts(self, gang: plan.GangRef) -> bool:
        found = [pod for pod in self._members(gang) if not pod.spec.node_name]
        return any(pod.metadata.uid in self._world.assumed for pod in found)

    def _members(self, gang: plan.GangRef) -> list[pods.Pod]:
        ids = self._world.gangs.members((gang.namespace, gang.name))
        return [pod for id_ in ids if (pod := self._world.pods.get(id_)) is not None]

    def _said(self, gang: plan.GangRef) -> intents.Promise | None:
        written = self._written.get(gang)
        return None if written is None else written.spec.promise

    async def _renew(self, gang: plan.GangRef) -> None:
        before, wanted = self._written.pop(gang, None), self._wanted.get(gang)
        self._unsaid.pop(gang, None)
        if wanted is not None:
            attempt = 1 if before is None else before.spec.attempt + 1
            spec = intents.IntentSpec(gang=gang.name, attempt=attempt, promise=wanted)
            made = keeping.intent_of(gang.namespace, spec)
            if await self._keeper.tried(made):
                self._written[gang] = made
            else:
                self._unsaid[gang] = wanted
        await self._keeper.remove(before)


def promise_of(intent: intents.Intent) -> plan.Promise | None:
    """The promise an intent is about, or the one that was lost; None where it cannot be read."""
    noted = intent.spec.promise
    if noted is None or not all(seat.uid and seat.node for seat in noted.seats):
        return None
    start, moved_from = order.instant(noted.start), order.instant(noted.moved_from or None)
    if noted.moved_from and not _is_moment(moved_from):
        return None
    if not noted.start and noted.moved_from:
        gang = recovery.gang_of(intent)
        return plan.Promise(gang=gang, cause="not known", moved_from=moved_from, lost_to=noted.cause)
    if not _is_moment(start) or not noted.seats:
        return None
    namespace = intent.metadata.namespace
    return plan.Promise(
        gang=recovery.gang_of(intent),
        start=start,
        seats=tuple(plan.Seat(pod=plan.PodRef(namespace, seat.pod, seat.uid), node=seat.node) for seat in noted.seats),
        moved_from=moved_from if noted.moved_from else None,
        cause=noted.cause,
    )


def note_of(promise: plan.Promise) -> intents.Promise:
    """What is put down about a promise that has a start, or had one."""
    cause = promise.lost_to if promise.start is None else promise.cause
    return intents.Promise(
        start=_stamp(promise.start),
        moved_from=_stamp(promise.moved_from),
        cause=cause[:MOST_LETTERS],
        seats=tuple(
            intents.Member(pod=one.pod.name, uid=one.pod.uid, node=one.node)
            for one in sorted(promise.seats, key=lambda one: one.pod)  # the same, in whichever order it was found
        ),
    )


def _stamp(moment: datetime.datetime | None) -> str:
    """To the last digit: what is read again is compared with what ends then."""
    return "" if moment is None else moment.astimezone(datetime.UTC).isoformat().replace("+00:00", "Z")


def _is_moment(moment: datetime.datetime) -> bool:
    """Whether it is a moment, and one that still can be reckoned with."""
    is_moment = moment is not order.NEVER and moment.tzinfo is not None
    return is_moment and FIRST_YEAR <= moment.year <= LAST_YEAR


def _hour(promise: plan.Promise) -> datetime.datetime:
    hour = promise.start or promise.moved_from
    assert hour is not None
    return hour

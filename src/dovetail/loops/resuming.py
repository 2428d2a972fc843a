"""Takes over what a predecessor left in intents: completes or takes back starts, keeps places, promises and doubts.

Given every intent there is, whatever is in it: each is handled alone, and one that cannot be acted upon is logged, told
by an event and removed once its time is over. What one intent took on is not taken on by another. Never decides anew.
"""

from __future__ import annotations

import datetime
import functools
import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from dovetail import errors
from dovetail.loops import flights, parts, pledges, recovery, relapses, slots, tell, ward
from dovetail.model import intents, kinds, plan
from dovetail.ports import clock as clocks
from dovetail.ports import meter
from dovetail.schedule import order
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.schedule")
GONE = "whoever began to start its gang is gone"


class Offices(NamedTuple):
    """Who goes on with what was left."""

    flights: flights.Flights
    slots: slots.Slots
    pledges: pledges.Pledges
    teller: tell.Teller
    relapses: relapses.Relapses
    ward: ward.Ward


class Resuming:
    """What is left of a predecessor."""

    def __init__(
        self, world: World, offices: Offices, *, clock: clocks.Clock, meter_: meter.Meter, longest_seconds: float
    ) -> None:
        self._world = world
        self._offices = offices
        self._clock = clock
        self._meter = meter_
        self._longest = longest_seconds
        self._unusable: list[tuple[float, intents.Intent]] = []  # to be removed after that time

    def resume(self, found: Iterable[intents.Intent]) -> None:
        """Before anything else is decided. Raises nothing, whatever was found."""
        begun: list[intents.Intent] = []
        kept: list[intents.Intent] = []
        promised: list[intents.Intent] = []
        for intent in found:
            if intent.spec.quarantine is not None:
                self._attempt((intent,), functools.partial(self._offices.ward.take_over, intent))
            elif intent.spec.slot is not None:
                kept.append(intent)
            elif intent.spec.promise is not None:
                promised.append(intent)
            else:
                begun.append(intent)
        promises: dict[plan.GangRef, plan.Promise] = {}
        for intent in sorted(promised, key=lambda intent: intent.spec.attempt):
            self._attempt((intent,), functools.partial(self._promise, intent, promises))
        self._world.promise(self._offices.pledges.in_order(promises.values()))
        take = self._offices.slots.taking(self._clock.monotonic(), self._clock.now())
        for intent in sorted(kept, key=_age):
            self._attempt((intent,), functools.partial(take, intent))
        taken: set[str] = set()
        for start in parts.joined(sorted(begun, key=_age)):
            self._attempt(start.parts, functools.partial(self._go_on, start, taken))

    def overdue(self) -> list[intents.Intent]:
        """Intents that could not be acted upon and whose time is over: to be removed."""
        now = self._clock.monotonic()
        over = [intent for until, intent in self._unusable if until <= now]
        self._unusable = [(until, intent) for until, intent in self._unusable if until > now]
        return over

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is left to be removed."""
        return not self._unusable

    def _attempt(self, notes: tuple[intents.Intent, ...], work: Callable[[], None]) -> None:
        """One of them must not keep the others from being handled, nor end the tenure: the next would end as well."""
        try:
            work()
        except Exception as error:
            LOG.exception("an intent cannot be acted upon", extra={"intent": notes[0].metadata.name})
            self._meter.count("dovetail_intents_unusable_total")
            for note in notes:
                self._unusable.append((self._clock.monotonic() + self._seconds_left(note), note))
            metadata = notes[0].metadata
            key = (metadata.namespace, metadata.name)
            said = f"the scheduler cannot act upon it and removes it once its time is over: {error}"
            self._offices.teller.about(kinds.INTENT, key, metadata.uid, reason="Unusable", note=said)

    def _seconds_left(self, note: intents.Intent) -> float:
        """Until its deadline, but no longer than such a thing takes here."""
        until = order.instant(note.spec.deadline or None)
        if until is order.NEVER or until.tzinfo is None:
            return self._longest
        now = self._clock.now().astimezone(datetime.UTC)
        return max(0.0, min(self._longest, (until - now).total_seconds()))

    def _promise(self, intent: intents.Intent, promises: dict[plan.GangRef, plan.Promise]) -> None:
        if (promise := self._offices.pledges.taken_over(intent)) is not None:
            promises[promise.gang] = promise

    def _go_on(self, start: parts.Begun, taken: set[str]) -> None:
        """Pods that another intent is about as well are left to that one. Raises where a tenure ended over it."""
        now = self._clock.monotonic()
        if any(self._offices.relapses.until(one.uid, now) is not None for one in start.members):
            raise errors.StateError("a tenure ended over what it is about")
        match recovery.judged(start, self._world, apart=taken):
            case recovery.Complete(members):
                LOG.info("completing", extra={"intent": start.name, "pods": len(members)})
                taken.update(pod.metadata.uid for pod, _ in members)
                self._offices.flights.start_together(start.gang, members, begun=start)
            case recovery.TakeBack(left):
                LOG.info("taking back", extra={"intent": start.name, "pods": len(left)})
                taken.update(pod.metadata.uid for pod in left)
                self._offices.flights.take_back(start, left, why=GONE)
            case recovery.Over():
                self._offices.flights.take_back(start, (), why="")


def _age(intent: intents.Intent) -> tuple[str, str, str]:
    """The oldest first; of what is as old, in an order that does not depend on how it was listed."""
    metadata = intent.metadata
    return metadata.creation_timestamp or "", metadata.namespace, metadata.name

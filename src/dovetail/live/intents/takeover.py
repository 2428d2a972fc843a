"""Restores a former leader's Intents: unfinished gangs, reserved slots, promises and quarantined pods.

Given every Intent in the cluster, valid or not. Each is handled by itself; one that cannot be acted upon is logged,
reported by an event and deleted after its deadline. A pod that one Intent covers is ignored in the next. Never makes a
new decision.
"""

from __future__ import annotations

import datetime
import functools
import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from dovetail import errors
from dovetail.kubetypes import registry
from dovetail.kubetypes.custom import intents
from dovetail.live.bind import binding_cycle, quarantine_store
from dovetail.live.evict import slot_reservations
from dovetail.live.intents import intent_parts, promise_store, recovery
from dovetail.live.queue import crash_backoff
from dovetail.live.report import recorder
from dovetail.model import plan
from dovetail.ports import clock as clocks
from dovetail.ports import meter
from dovetail.schedule import pod_order
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.schedule")
GONE = "the scheduler that was binding its gang is gone"


class TakeoverParts(NamedTuple):
    """The components that continue what a former leader left."""

    binding_cycles: binding_cycle.BindingCycles
    slots: slot_reservations.SlotReservations
    promises: promise_store.PromiseStore
    reports: recorder.Recorder
    crash_backoffs: crash_backoff.CrashBackoff
    quarantine: quarantine_store.QuarantineStore


class Takeover:
    """Restores the Intents of a former leader."""

    def __init__(
        self,
        world: World,
        parts: TakeoverParts,
        *,
        clock: clocks.Clock,
        meter_: meter.Meter,
        longest_seconds: float,
    ) -> None:
        self._world = world
        self._parts = parts
        self._clock = clock
        self._meter = meter_
        self._longest = longest_seconds
        self._unusable: list[tuple[float, intents.Intent]] = []  # deleted after that time

    def resume(self, stored: Iterable[intents.Intent]) -> None:
        """Runs before the first decision. Raises nothing, whatever the Intents contain."""
        starts: list[intents.Intent] = []
        slots: list[intents.Intent] = []
        promises: list[intents.Intent] = []
        for intent in stored:
            if intent.spec.quarantine is not None:
                self._attempt((intent,), functools.partial(self._parts.quarantine.restore, intent))
            elif intent.spec.slot is not None:
                slots.append(intent)
            elif intent.spec.promise is not None:
                promises.append(intent)
            else:
                starts.append(intent)

        self._restore_promises(promises)
        self._restore_slots(slots)
        self._resume_starts(starts)

    def _restore_promises(self, stored: Iterable[intents.Intent]) -> None:
        promises: dict[plan.GangRef, plan.Promise] = {}
        for intent in sorted(stored, key=lambda intent: intent.spec.attempt):
            self._attempt((intent,), functools.partial(self._promise, intent, promises))
        self._world.set_promises(self._parts.promises.by_start(promises.values()))

    def _restore_slots(self, stored: Iterable[intents.Intent]) -> None:
        restore = self._parts.slots.restorer(self._clock.monotonic(), self._clock.now())
        for intent in sorted(stored, key=_age):
            self._attempt((intent,), functools.partial(restore, intent))

    def _resume_starts(self, stored: Iterable[intents.Intent]) -> None:
        covered: set[str] = set()
        for start in intent_parts.join_parts(sorted(stored, key=_age)):
            self._attempt(start.parts, functools.partial(self._continue, start, covered))

    def overdue(self) -> list[intents.Intent]:
        """Unusable Intents whose deadline has passed; the caller deletes them."""
        now = self._clock.monotonic()
        overdue = [intent for until, intent in self._unusable if until <= now]
        self._unusable = [(until, intent) for until, intent in self._unusable if until > now]
        return overdue

    @property
    def is_idle(self) -> bool:
        """Whether no unusable Intent remains to be deleted."""
        return not self._unusable

    def _attempt(self, notes: tuple[intents.Intent, ...], work: Callable[[], None]) -> None:
        """Runs the work; an error must not stop the other Intents, nor end the tenure: the next would end too."""
        try:
            work()
        except Exception as error:
            LOG.exception(
                "gang.intents.unusable: deleted after its deadline",
                extra={"intent": notes[0].metadata.name},
            )
            self._meter.count("dovetail_intents_unusable_total")
            for note in notes:
                self._unusable.append((self._clock.monotonic() + self._seconds_left(note), note))

            metadata = notes[0].metadata
            key = (metadata.namespace, metadata.name)
            message = (
                "the scheduler cannot act upon this intent and deletes it after its deadline: "
                f"{error}"
            )
            self._parts.reports.record_event(
                registry.INTENT, key, metadata.uid, reason="Unusable", note=message
            )

    def _seconds_left(self, note: intents.Intent) -> float:
        """Until its deadline, but no longer than this scheduler's own limit."""
        until = pod_order.instant(note.spec.deadline or None)
        if until is pod_order.NEVER or until.tzinfo is None:
            return self._longest
        now = self._clock.now().astimezone(datetime.UTC)
        return max(0.0, min(self._longest, (until - now).total_seconds()))

    def _promise(self, intent: intents.Intent, promises: dict[plan.GangRef, plan.Promise]) -> None:
        if (promise := self._parts.promises.restore(intent)) is not None:
            promises[promise.gang] = promise

    def _continue(self, start: intent_parts.GangStart, covered: set[str]) -> None:
        """Completes or takes back a gang, without the pods another Intent covers. Raises after a crash over it."""
        now = self._clock.monotonic()
        crash_backoffs = self._parts.crash_backoffs
        if any(crash_backoffs.until(member.uid, now) is not None for member in start.members):
            raise errors.StateError("an earlier tenure crashed over one of its pods")

        match recovery.verdict_on(start, self._world, apart=covered):
            case recovery.Complete(members):
                LOG.info("gang.resume.complete", extra={"intent": start.name, "pods": len(members)})
                covered.update(pod.metadata.uid for pod, _ in members)
                self._parts.binding_cycles.start_gang(start.gang, members, intent=start)
            case recovery.TakeBack(unbound):
                LOG.info(
                    "gang.resume.take_back", extra={"intent": start.name, "pods": len(unbound)}
                )
                covered.update(pod.metadata.uid for pod in unbound)
                self._parts.binding_cycles.undo_start(start, unbound, why=GONE)
            case recovery.Finished():
                self._parts.binding_cycles.undo_start(start, (), why="")


def _age(intent: intents.Intent) -> tuple[str, str, str]:
    """Sorts the oldest first; equal ages by name, independent of the order of the list."""
    metadata = intent.metadata
    return metadata.creation_timestamp or "", metadata.namespace, metadata.name

"""Decides what news mean for the pods that wait: who is asked about now, again, or no more.

Given each change the World already shows. Also keeps devices out of use that a removed pod may still be using. Never
decides where a pod goes, never writes.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from dovetail.loops import awaited, complaints, flights, meaning, relapses, report, returning, tell, waiting, ward
from dovetail.model import claims, gangs, kinds, nodes, pods, unreadable
from dovetail.ports import clock as clocks
from dovetail.schedule import claims as pod_claims
from dovetail.schedule import order
from dovetail.world import events
from dovetail.world.events import ObjectKey
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.schedule")
UNREADABLE: Final = "the scheduler cannot read all of this pod, so it is not scheduled"
TERMINAL: Final = ("Succeeded", "Failed")


class Notices:
    """What happened, and to whom it could matter."""

    def __init__(
        self,
        world: World,
        queue: waiting.Waiting,
        *,
        clock: clocks.Clock,
        teller: tell.Teller,
        report_: report.Report,
        ward_: ward.Ward | None,
        scheduler_names: tuple[str, ...],
        stir_seconds: float,
        owner_seconds: float,
        relapses_: relapses.Relapses,
    ) -> None:
        self._world = world
        self._queue = queue
        self._clock = clock
        self._teller = teller
        self._complaints = complaints.Complaints(world, teller)
        self._report = report_
        self._ward = ward_
        self._names = scheduler_names
        self._stir_seconds = stir_seconds
        self._owner_seconds = owner_seconds
        self._relapses = relapses_
        self._held: dict[str, float] = {}  # pods whose owner is not seen yet, and until when that is waited for
        self._stir_asked: set[ObjectKey] = set()  # to whom something happened that could help
        self._stir_at = 0.0
        self.wake = asyncio.Event()  # something may be decided now
        self.flights: flights.Flights | None = None  # what is being written
        self.returning: returning.Returning | None = None  # what groups leave behind

    @property
    def is_quiet(self) -> bool:
        """Whether nothing happened that somebody is still to be asked about."""
        return not self._stir_asked

    def observe(self, kind: kinds.Kind, event: events.Event, before: Any) -> None:
        """Takes notice of a change the World already shows."""
        found = event.object
        is_there = isinstance(event, events.Changed)
        match found:
            case pods.Pod():
                self._pod_changed(found, before, is_there=is_there)
            case claims.ResourceClaim():
                self._claim_changed(found, before, is_there=is_there)
            case nodes.Node():
                if not is_there or before is None or meaning.offers_more(before, found):
                    self.ask_to_stir()
            case gangs.Gang():
                self._gang_changed(events.key_of(found))
            case _:
                self.ask_to_stir(awaited.concerned_by(kind, events.key_of(found)))

    def is_ours(self, pod: pods.Pod) -> bool:
        """Whether the pod names us as its scheduler."""
        return self.is_named(pod.spec.scheduler_name)

    def is_named(self, scheduler: str) -> bool:
        """Whether a scheduler of this name is us."""
        return not self._names or scheduler in self._names

    def consider(self, pod: pods.Pod) -> None:
        """A pod waits, or asks for something else than before."""
        id_ = events.pod_id(pod)
        if pod.metadata.deletion_timestamp is not None or not self.is_ours(pod):
            self._queue.drop(id_)
            return
        if self.flights is not None and id_ in self.flights:
            return
        if (problem := unreadable.problem_of(pod)) is not None:
            self._queue.drop(id_)
            self._teller.failed(pod, f"{UNREADABLE}: {problem}")
            return
        self._complaints.about(pod)
        if (until := self._relapses.until(id_, self._clock.monotonic())) is not None:
            self._teller.failed(pod, relapses.SAID)
            self._queue.hold(id_, order.rank(pod), until)
            return
        if (until := self._held_until(id_)) is not None:
            self._queue.hold(id_, order.rank(pod), until)
            self.wake.set()
            return
        self._queue.ready(id_, order.rank(pod))
        self._report.queued(id_, "active", "PodAdd")
        self.wake.set()

    def _held_until(self, id_: str) -> float | None:
        """News of a pod can overtake those of the Job that says with how many others it starts: they are waited for."""
        if self._owner_seconds <= 0 or not self._world.gangs.is_owner_unseen(id_):
            if self._held.pop(id_, None) is not None:
                self._queue.drop(id_)  # its owner is here
            return None
        until = self._held.setdefault(id_, self._clock.monotonic() + self._owner_seconds)
        return until if self._clock.monotonic() < until else None

    def ask_to_stir(self, whom: ObjectKey = awaited.ANYBODY) -> None:
        """Something happened that could help."""
        self._stir_asked.add(whom)
        self.wake.set()

    def stir_if_due(self) -> bool:
        """Asks about those again to whom something happened, not too often. Whether that was now."""
        now = self._clock.monotonic()
        if not self._stir_asked or now < self._stir_at:
            return False
        asked, self._stir_asked = self._stir_asked, set()
        stirred = self._queue.stir() if awaited.ANYBODY in asked else sum(map(self._queue.claim_changed, asked))
        self._stir_at = now + self._stir_seconds + stirred * 1e-3  # many parked pods cost many decisions
        return True

    def _pod_changed(self, pod: pods.Pod, before: pods.Pod | None, *, is_there: bool) -> None:
        id_ = events.pod_id(pod)
        if is_there and meaning.moves_neighbours(before, pod):
            self.ask_to_stir(awaited.NEIGHBOURS)
        if is_there and not pod.spec.node_name and pod.status.phase not in TERMINAL:
            if before is None or meaning.asks_otherwise(before, pod):
                self.consider(pod)
            return
        self._queue.drop(id_)
        self._held.pop(id_, None)
        if pod.status.phase in TERMINAL and self._ward is not None:
            self._ward.ended(id_)
        whole = pod if pod.spec.containers or before is None else before  # the end may be all we heard
        if not is_there:
            self._pod_gone(whole)
        if self.returning is not None and (not is_there or pod.status.phase in TERMINAL):
            self.returning.left(whole)
        if before is not None and before.spec.node_name and (not is_there or pod.status.phase in TERMINAL):
            self.ask_to_stir()

    def _gang_changed(self, key: ObjectKey) -> None:
        """What is known about a gang concerns its own pods, and nobody else's."""
        for id_ in self._world.gangs.owned(key):
            pod = self._world.pods.get(id_)
            if pod is not None and not pod.spec.node_name and pod.status.phase not in TERMINAL:
                self.consider(pod)

    def _pod_gone(self, pod: pods.Pod) -> None:
        uid = events.pod_id(pod)
        self._teller.forget(uid)
        self._report.gone(uid)
        if self.flights is not None:
            self.flights.pod_gone(uid)
        held = [self._world.allocation(key) for key in awaited.claims_of(pod)]
        if self._ward is not None:
            self._ward.isolate(pod, [one for one in held if one is not None])

    def _claim_changed(
        self, claim: claims.ResourceClaim, before: claims.ResourceClaim | None, *, is_there: bool
    ) -> None:
        self._queue.claim_changed(events.key_of(claim))
        if self.returning is not None:
            self.returning.saw(claim, is_there=is_there)
        had = before.status.allocation if before is not None else None
        if before is not None and had is not None and (not is_there or claim.status.allocation is None):
            for id_ in pod_claims.users_of(before, self._world):  # feeds overtake each other: the pod may be gone
                pod = self._world.pods.get(id_)
                if pod is not None and self._ward is not None:
                    self._ward.isolate(pod, [had])
            self.ask_to_stir()
        self.wake.set()

    def let_go(self) -> None:
        """Devices whose node let go of them can be given out again."""
        if self._ward is not None and self._ward.let_go():
            self.ask_to_stir()

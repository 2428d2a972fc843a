"""Decides what news mean for the pods that wait: who is asked about now, again, or no more.

Given each change the World already shows. Also keeps devices out of use that a removed pod may still be using. Never
decides where a pod goes, never writes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable
from typing import Any, Final

from dovetail.loops import awaited, complaints, flights, hints, net, relapses, report, returning, tell, waiting, ward
from dovetail.model import claims, kinds, pods, unreadable
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
        net_seconds: float = 0.0,
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
        self.net = net.Net(net_seconds, clock.monotonic())
        self._held: dict[str, float] = {}  # pods whose owner is not seen yet, and until when that is waited for
        self._are_together = False  # as of the last change
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
            case _:
                for news in hints.of_object(kind, before, found, is_there=is_there):
                    self._take(news, found)
        self._notice_company()

    def _take(self, news: hints.News, found: Any) -> None:
        """Asks again about the pods that the news could help."""
        concerned = hints.HINTS[news]
        key = events.key_of(found)
        match concerned:
            case hints.Concerned.ITSELF:
                self.consider(found)
            case hints.Concerned.ITS_USERS if news is hints.News.VOLUME_CLAIM_CHANGED:
                self.ask_to_stir(awaited.volume_claim(key))
            case hints.Concerned.ITS_USERS:
                self._free(self._queue.waiting_for(key))
                self._queue.claim_changed(key)
            case _:
                self.ask_to_stir(hints.GROUPS[concerned])
        if news is hints.News.GANG_CHANGED:
            self._gang_changed(key)

    def _notice_company(self) -> None:
        """Pods held back by a gang or a queue are free of it once the last one is gone, and are decided about alone."""
        are_together = bool(self._world.queues) or not self._world.gangs.is_trivial
        if are_together != self._are_together:
            self._are_together = are_together
            self.ask_to_stir()

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
            self.ask_to_stir(awaited.TOGETHER)  # its gang and its queue count it, or no longer
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
        self._free((id_,))
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
        if whom == awaited.TOGETHER and not self._are_together:
            return
        self._free(self._queue.waiting_for(whom) if whom != awaited.ANYBODY else None)
        self._stir_asked.add(whom)
        self.wake.set()

    def cast_net(self) -> None:
        """Asks about all parked pods, although nothing is known that could help them."""
        self.net.cast(self._queue.parked(), self._clock.monotonic())
        self._stir_asked.add(awaited.ANYBODY)
        self.wake.set()

    def _free(self, ids: Collection[str] | None) -> None:
        self.net.free(None if self._are_together else ids)

    def stir_if_due(self, *, is_whole: bool = False) -> bool:
        """Asks about those again to whom something happened, not too often. Whether that was now.

        Turns about everybody ask about parked pods anyway: those stay where they are, however many.
        """
        now = self._clock.monotonic()
        if not self._stir_asked or now < self._stir_at:
            return False
        asked, self._stir_asked = self._stir_asked, set()
        if awaited.ANYBODY in asked or self._are_together:
            self.net.put_off(now)
        if is_whole:
            stirred = 0
        else:
            stirred = self._queue.stir() if awaited.ANYBODY in asked else sum(map(self._queue.claim_changed, asked))
        self._stir_at = now + self._stir_seconds + stirred * 1e-3  # many parked pods cost many decisions
        return True

    def _pod_changed(self, pod: pods.Pod, before: pods.Pod | None, *, is_there: bool) -> None:
        id_ = events.pod_id(pod)
        if is_there and not pod.spec.node_name and pod.status.phase not in TERMINAL:
            self._take_all(hints.of_pod(before, pod, is_there=is_there), pod)
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
        self._take_all(hints.of_pod(before, pod, is_there=is_there), pod)

    def _take_all(self, all_news: Iterable[hints.News], found: Any) -> None:
        for news in all_news:
            self._take(news, found)

    def _gang_changed(self, key: ObjectKey) -> None:
        """Pods of a gang about which something else is known are told so, where it asks for something in vain."""
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
        self._take_all(hints.of_claim(before, claim, is_there=is_there), claim)
        if self.returning is not None:
            self.returning.saw(claim, is_there=is_there)
        had = before.status.allocation if before is not None else None
        if before is not None and had is not None and (not is_there or claim.status.allocation is None):
            for id_ in pod_claims.users_of(before, self._world):  # feeds overtake each other: the pod may be gone
                pod = self._world.pods.get(id_)
                if pod is not None and self._ward is not None:
                    self._ward.isolate(pod, [had])
        self.wake.set()

    def let_go(self) -> None:
        """Devices whose node let go of them can be given out again."""
        if self._ward is not None and self._ward.let_go():
            self.ask_to_stir()

"""Decides when parked pods return to the active queue, and wakes the scheduling cycle.

Given requests by the name under which pods are parked (`awaited_objects`). Requests are collected and
served no more often than a set pause, because each parked pod costs a decision. As a safety net, all
parked pods are retried from time to time even if no event asked for it (kube-scheduler's
flushUnschedulablePodsLeftover); a pod that starts only because of that is counted, since it proves
that a queueing hint is missing. Never decides where a pod goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import NamedTuple

from dovetail.live.queue import awaited_objects, scheduling_queue
from dovetail.model import plan
from dovetail.ports import clock as clocks
from dovetail.world.events import ObjectKey
from dovetail.world.world import World

SECONDS_PER_POD = 1e-3  # of extra pause: many parked pods cost many decisions


def are_decided_together(world: World) -> bool:
    """Whether there are queues or gangs: then one cycle decides about all waiting pods."""
    return bool(world.queues) or not world.gangs.is_trivial


class Requeuer:
    """Requests to retry parked pods, and the event that wakes the scheduling cycle."""

    def __init__(
        self,
        world: World,
        queue: scheduling_queue.SchedulingQueue,
        clock: clocks.Clock,
        *,
        pause_seconds: float,
        flush_seconds: float,
    ) -> None:
        self._world = world
        self._queue = queue
        self._clock = clock
        self._pause_seconds = pause_seconds
        self.flush = LeftoverFlush(flush_seconds, clock.monotonic())
        self.wake = asyncio.Event()  # set when something may be decided
        self._requested: set[ObjectKey] = set()
        self._not_before = 0.0
        self._are_together = False  # as of the last event

    @property
    def is_quiet(self) -> bool:
        """Whether no request waits to be served."""
        return not self._requested

    def request(self, group: ObjectKey = awaited_objects.ALL_PODS) -> None:
        """Something happened that may help the pods parked under this name."""
        if group == awaited_objects.TOGETHER and not self._are_together:
            return
        is_for_all = group == awaited_objects.ALL_PODS
        self._exclude_from_flush(None if is_for_all else self._queue.parked_under(group))
        self._requested.add(group)
        self.wake.set()

    def claim_changed(self, key: ObjectKey) -> None:
        """A claim changed: the pods that name it return to the active queue at once."""
        self._exclude_from_flush(self._queue.parked_under(key))
        self._queue.requeue(key)

    def pod_changed(self, pod_id: str) -> None:
        """The pod itself changed: if it starts now, that is not due to the flush."""
        self._exclude_from_flush((pod_id,))

    def check_mode(self) -> None:
        """Retries all pods when the last gang or queue goes, or the first one comes.

        Pods that a gang or a queue held back are then decided about one by one, or the reverse.
        """
        are_together = are_decided_together(self._world)
        if are_together != self._are_together:
            self._are_together = are_together
            self.request()

    def flush_leftovers(self) -> None:
        """Retries all parked pods, although no event asked for it."""
        self.flush.start(self._queue.parked(), self._clock.monotonic())
        self._requested.add(awaited_objects.ALL_PODS)
        self.wake.set()

    def requeue_if_due(self, *, is_whole: bool = False) -> bool:
        """Serves the collected requests, unless the pause is not over. Returns whether it did.

        A cycle about all waiting pods (`is_whole`) reads parked pods anyway: they stay parked.
        """
        now = self._clock.monotonic()
        if not self._requested or now < self._not_before:
            return False
        requested, self._requested = self._requested, set()
        is_for_all = awaited_objects.ALL_PODS in requested
        if is_for_all or self._are_together:
            self.flush.postpone(now)
        count = 0 if is_whole else self._requeue(requested, is_for_all=is_for_all)
        self._not_before = now + self._pause_seconds + count * SECONDS_PER_POD
        return True

    def _requeue(self, requested: Iterable[ObjectKey], *, is_for_all: bool) -> int:
        """Moves parked pods to the active queue; returns how many."""
        if is_for_all:
            return self._queue.requeue_all()
        return sum(map(self._queue.requeue, requested))

    def _exclude_from_flush(self, pod_ids: Collection[str] | None) -> None:
        self.flush.exclude(None if self._are_together else pod_ids)


class FlushEffect(NamedTuple):
    """What a plan did only because of the flush."""

    started: tuple[plan.PodRef, ...] = ()
    evicted: tuple[plan.PodRef, ...] = ()


class LeftoverFlush:
    """When all parked pods are retried next, and which pods wait only because of such a retry."""

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self._last = now  # when all parked pods were last retried
        self._pods: set[str] = set()  # retried by the flush alone, and not decided about yet

    def is_due(self, now: float) -> bool:
        """Whether parked pods were left alone long enough; never if the flush is turned off."""
        return self._seconds > 0 and now - self._last >= self._seconds

    def start(self, pod_ids: Iterable[str], now: float) -> None:
        """These pods are retried, for no other reason."""
        self._pods = set(pod_ids)
        self._last = now

    def postpone(self, now: float) -> None:
        """An event had all parked pods retried."""
        self._last = now

    def exclude(self, pod_ids: Collection[str] | None = None) -> None:
        """An event may help these pods, or all pods: they would have been retried anyway."""
        if pod_ids is None:
            self._pods.clear()
        else:
            self._pods.difference_update(pod_ids)

    def effect_of(self, decided: plan.Plan, pod_ids: Collection[str]) -> FlushEffect:
        """What a plan about these pods did because of the flush alone; they leave the flush."""
        flushed = self._pods.intersection(pod_ids)
        self._pods -= flushed
        if not flushed:
            return FlushEffect()
        placed = [placement.pod for placement in decided.placements]
        started = tuple(pod for pod in placed if pod.uid in flushed)
        is_only_flushed = flushed.issuperset(pod_ids)
        evicted = tuple(eviction.pod for eviction in decided.evictions) if is_only_flushed else ()
        return FlushEffect(started, evicted)

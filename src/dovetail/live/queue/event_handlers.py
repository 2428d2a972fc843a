"""Handles informer events: which pods are queued, retried or dropped, and which devices quarantined.

Given each change after the World shows it. A fault in handling one change is logged, and the pods it
may have lost are looked for later. Never decides where a pod goes, never writes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final

from dovetail.kubetypes import registry, unreadable
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.live import handle as handles
from dovetail.live.bind import binding_cycle, group_claim_release, quarantine_store
from dovetail.live.queue import awaited_objects, crash_backoff, queueing_hints
from dovetail.live.report import annotation_events
from dovetail.model import reservations
from dovetail.model.reasons import Change
from dovetail.schedule import pod_order
from dovetail.schedule.node import pod_claims
from dovetail.world import events
from dovetail.world.events import ObjectKey

LOG = logging.getLogger("dovetail.schedule")
UNREADABLE: Final = "the scheduler cannot read all of this pod, so it is not scheduled"


class EventHandlers:
    """Turns events into changes of the scheduling queue."""

    def __init__(
        self,
        handle: handles.Handle,
        binding_cycles: binding_cycle.BindingCycles,
        returning: group_claim_release.GroupClaimRelease,
        *,
        quarantine: quarantine_store.QuarantineStore | None,
        crash_backoffs: crash_backoff.CrashBackoff,
    ) -> None:
        self._world = handle.world
        self._queue = handle.queue
        self._requeuer = handle.requeuer
        self._clock = handle.clock
        self._meter = handle.meter
        self._settings = handle.settings
        self._recorder = handle.recorder
        self._metrics = handle.metrics
        self._annotation_events = annotation_events.AnnotationEvents(handle.world, handle.recorder)
        self._binding_cycles = binding_cycles
        self._group_claim_release = returning
        self._quarantine = quarantine  # None: quarantine is turned off
        self._crash_backoff = crash_backoffs
        self._without_owner: dict[str, float] = {}  # pods that wait for news of their owner
        self._may_have_lost_pods = False

    # Events

    def observe(self, kind: registry.Kind, event: events.Event, before: Any) -> None:
        """Handles a change that the World already shows. Raises nothing."""
        try:
            self._observe(kind, event, before)
        except Exception:  # our own fault must not keep later events from being handled
            self._may_have_lost_pods = True
            self._meter.count("dovetail_turn_errors_total", where="noticing")
            LOG.exception("event.failed: its pods are looked for later", extra={"kind": kind.name})

    def _observe(self, kind: registry.Kind, event: events.Event, before: Any) -> None:
        after = event.object
        is_there = isinstance(event, events.Changed)
        match after:
            case pods.Pod():
                self._pod_changed(after, before, is_there=is_there)
            case claims.ResourceClaim():
                self._claim_changed(after, before, is_there=is_there)
            case _:
                news = queueing_hints.of_object(kind, before, after, is_there=is_there)
                self._take_all(news, after)
        self._requeuer.check_mode()

    def _take_all(self, all_news: Iterable[queueing_hints.News], changed: Any) -> None:
        for news in all_news:
            self._take(news, changed)

    def _take(self, news: queueing_hints.News, changed: Any) -> None:
        """Retries the pods that the news may help."""
        change = queueing_hints.HINTS[news]
        key = events.key_of(changed)
        match change:
            case Change.ITSELF:
                self.consider(changed)
            case Change.ITS_CLAIMS if news is queueing_hints.News.VOLUME_CLAIM_CHANGED:
                self._requeuer.request(awaited_objects.volume_claim(key))
            case Change.ITS_CLAIMS:
                self._requeuer.claim_changed(key)
            case _:
                self._requeuer.request(queueing_hints.GROUPS[change])
        if news is queueing_hints.News.GANG_CHANGED:
            self._gang_changed(key)

    def _pod_changed(self, pod: pods.Pod, before: pods.Pod | None, *, is_there: bool) -> None:
        if is_there and _is_pending(pod):
            self._take_all(queueing_hints.of_pod(before, pod, is_there=is_there), pod)
            return
        pod_id = events.pod_id(pod)
        has_ended = pod.status.phase in pods.TERMINAL_PHASES
        self._queue.drop(pod_id)
        self._without_owner.pop(pod_id, None)
        if has_ended and self._quarantine is not None:
            self._quarantine.ended(pod_id)
        # A deletion may carry no more than the name; what the pod used is then known from before.
        last_seen = pod if pod.spec.containers or before is None else before
        if not is_there:
            self._pod_gone(last_seen)
        if not is_there or has_ended:
            self._group_claim_release.pod_ended(last_seen)
        self._take_all(queueing_hints.of_pod(before, pod, is_there=is_there), pod)

    def _pod_gone(self, pod: pods.Pod) -> None:
        uid = events.pod_id(pod)
        self._recorder.forget(uid)
        self._metrics.gone(uid)
        self._binding_cycles.pod_gone(uid)
        if self._quarantine is not None:
            keys = reservations.used_claims(pod)
            allocations = [self._world.allocation(key) for key in keys]
            self._quarantine.quarantine(
                pod, [devices for devices in allocations if devices is not None]
            )

    def _gang_changed(self, key: ObjectKey) -> None:
        """Pods of a gang that asks for something else are considered again, also for complaints."""
        for pod_id in self._world.gangs.owned(key):
            pod = self._world.pods.get(pod_id)
            if pod is not None and _is_pending(pod):
                self.consider(pod)

    def _claim_changed(
        self, claim: claims.ResourceClaim, before: claims.ResourceClaim | None, *, is_there: bool
    ) -> None:
        self._take_all(queueing_hints.of_claim(before, claim, is_there=is_there), claim)
        self._group_claim_release.claim_changed(claim, is_there=is_there)
        has_devices = is_there and claim.status.allocation is not None
        if before is not None and not has_devices:
            self._isolate_users(before)
        self._requeuer.wake.set()

    def _isolate_users(self, claim: claims.ResourceClaim) -> None:
        """Quarantines the devices a claim lost: the event of its pod's end may still be on its way."""
        allocation = claim.status.allocation
        if allocation is None or self._quarantine is None:
            return
        for pod_id in pod_claims.users_of(claim, self._world):
            pod = self._world.pods.get(pod_id)
            if pod is not None:
                self._quarantine.quarantine(pod, [allocation])

    # Pods

    def is_ours(self, pod: pods.Pod) -> bool:
        """Whether the pod names us as its scheduler."""
        return self._settings.is_ours(pod.spec.scheduler_name)

    def consider(self, pod: pods.Pod) -> None:
        """Queues a pod that waits, or asks for something else than before."""
        pod_id = events.pod_id(pod)
        if pod.metadata.deletion_timestamp is not None or not self.is_ours(pod):
            self._queue.drop(pod_id)
            # Its gang and its queue counted it, and do not any more.
            self._requeuer.request(awaited_objects.TOGETHER)
            return
        if pod_id in self._binding_cycles:
            return
        if (problem := unreadable.problem_of(pod)) is not None:
            self._queue.drop(pod_id)
            self._recorder.failed(pod, f"{UNREADABLE}: {problem}")
            return
        self._annotation_events.report(pod)
        if (until := self._crash_backoff.until(pod_id, self._clock.monotonic())) is not None:
            self._recorder.failed(pod, crash_backoff.MESSAGE)
            self._queue.hold(pod_id, pod_order.rank(pod), until)
            return
        self._requeuer.pod_changed(pod_id)
        if (until := self._owner_awaited_until(pod_id)) is not None:
            self._queue.hold(pod_id, pod_order.rank(pod), until)
        else:
            self._queue.ready(pod_id, pod_order.rank(pod))
            self._metrics.queued(pod_id, "active", "PodAdd")
        self._requeuer.wake.set()

    def _owner_awaited_until(self, pod_id: str) -> float | None:
        """How long a pod waits for the Job that says with how many others it starts.

        Kinds are watched separately, so a pod's event can arrive before its owner's.
        """
        seconds = self._settings.owner_seconds
        if seconds <= 0 or not self._world.gangs.is_owner_unseen(pod_id):
            if self._without_owner.pop(pod_id, None) is not None:
                self._queue.drop(pod_id)  # its owner is here
            return None
        now = self._clock.monotonic()
        until = self._without_owner.setdefault(pod_id, now + seconds)
        return until if now < until else None

    # Chores

    def expect_lost_pods(self) -> None:
        """A fault may have left a pod outside of every queue: `find_lost_pods` will look for it."""
        self._may_have_lost_pods = True

    def find_lost_pods(self) -> None:
        """After a fault: considers every pending pod that is in no queue and not being bound."""
        if not self._may_have_lost_pods:
            return
        self._may_have_lost_pods = False
        for pod in [*self._world.pending()]:
            pod_id = events.pod_id(pod)
            is_somewhere = pod_id in self._queue or pod_id in self._world.assumed
            if not is_somewhere and self.is_ours(pod):
                self.consider(pod)

    def consider_overdue(self) -> None:
        """Considers pods whose passing obstacle lasts longer than such obstacles do."""
        for uid in self._recorder.overdue():
            if uid in self._world.pods:
                self.consider(self._world.pods[uid])

    def end_quarantines(self) -> None:
        """Ends quarantines that are over: their devices may be used again."""
        if self._quarantine is not None and self._quarantine.end_due():
            self._requeuer.request()


def _is_pending(pod: pods.Pod) -> bool:
    return not pod.spec.node_name and pod.status.phase not in pods.TERMINAL_PHASES

"""Reports the scheduler's metrics: attempts, durations and queues, under kube-scheduler's names where they fit.

Given the events of scheduling as they happen. Also assigns the id of every cycle, and passes each step of a pod to the
tracer. Never decides.
"""

from __future__ import annotations

import hashlib
import logging
from typing import Final, NamedTuple

from dovetail.live.cycle import progress
from dovetail.live.queue import requeue
from dovetail.model import plan
from dovetail.ports import clock as clocks
from dovetail.ports import meter, tracing

LOG = logging.getLogger("dovetail.schedule")
PROFILE: Final = "dovetail"
MANY_ATTEMPTS: Final = 15  # kube-scheduler counts no further
SHOWN: Final = 10  # pods named in one line of the log


class _Entered(NamedTuple):
    at: float
    attempts: int


class SchedulerMetrics:
    """Metrics and one log line per batch; remembers since when each pod waits."""

    def __init__(
        self,
        clock: clocks.Clock,
        meter_: meter.Meter,
        tracer: tracing.Tracer,
        progress_: progress.Progress,
    ) -> None:
        self._clock = clock
        self._progress = progress_
        self._meter = meter_
        self._tracer = tracer
        self._entered: dict[str, _Entered] = {}
        # Cycles are counted from one in every tenure; the start time distinguishes tenures.
        self._tenure = hashlib.sha256(clock.now().isoformat().encode()).hexdigest()[:6]

    def begin(self, cycle: int) -> None:
        """A cycle begins: logs, events and bindings from here on carry its id."""
        tracing.CYCLE.set(f"{self._tenure}-{cycle}")

    def queued(self, uid: str, queue: str, event: str) -> None:
        """A pod was put into a queue."""
        if uid not in self._entered:
            self._entered[uid] = _Entered(self._clock.monotonic(), 0)
            self._tracer.step(uid, tracing.SEEN)
        self._tracer.step(uid, tracing.QUEUED, queue=queue, cause=event)
        self._meter.count("scheduler_queue_incoming_pods_total", queue=queue, event=event)

    def gone(self, uid: str) -> None:
        """A pod no longer needs a node."""
        self._entered.pop(uid, None)
        self._tracer.gone(uid)

    def decided(self, uids: list[str], plan_: plan.Plan, seconds: float) -> None:
        """One batch was decided."""
        if self._tracer.is_on:
            self._trace(plan_, seconds)
        for uid in uids:
            entered = self._entered.get(uid, _Entered(self._clock.monotonic(), 0))
            self._entered[uid] = entered._replace(attempts=entered.attempts + 1)

        placed, refused = len(plan_.placements), len(plan_.refusals)
        if refused > plan_.undecided:  # placements count as progress once they are written
            self._progress.answered(self._clock.monotonic())

        self._meter.observe("dovetail_cycle_seconds", seconds)
        self._meter.observe("dovetail_cycle_pods", len(uids))
        self._meter.observe("scheduler_scheduling_algorithm_duration_seconds", seconds / len(uids))
        self._count_attempts(placed, "scheduled")
        self._count_attempts(refused, "unschedulable")
        if plan_.undecided:
            self._meter.count("dovetail_undecided_total", plan_.undecided)

        fields = {
            "cycle": tracing.CYCLE.get(),
            "placed": placed,
            "refused": refused,
            "milliseconds": seconds * 1e3,
        }
        LOG.debug("cycle.decided", extra=fields)

    def _count_attempts(self, count: int, result: str) -> None:
        if count:
            self._meter.count(
                "scheduler_schedule_attempts_total", count, result=result, profile=PROFILE
            )

    def _trace(self, plan_: plan.Plan, seconds: float) -> None:
        cycle = tracing.CYCLE.get()
        for placement in plan_.placements:
            self._tracer.step(
                placement.pod.uid,
                tracing.DECIDED,
                pod=str(placement.pod),
                node=placement.node,
                cycle=cycle,
                refusals=0,
                seconds=seconds,
            )
        for refusal in plan_.refusals:
            self._tracer.step(
                refusal.pod.uid,
                tracing.DECIDED,
                pod=str(refusal.pod),
                cycle=cycle,
                refusals=len(refusal.obstacles),
                seconds=seconds,
                summary=refusal.summary,
            )

    def written(self, uid: str) -> None:
        """All claims of a placement are written."""
        self._tracer.step(uid, tracing.WRITTEN)

    def bound(self, uid: str, seconds: float) -> None:
        """A pod was bound, this many seconds after the decision."""
        self._progress.answered(self._clock.monotonic())
        self._tracer.step(uid, tracing.BOUND)
        self._meter.observe(
            "scheduler_scheduling_attempt_duration_seconds",
            seconds,
            result="scheduled",
            profile=PROFILE,
        )
        entered = self._entered.pop(uid, None)
        if entered is not None:
            is_many = entered.attempts >= MANY_ATTEMPTS
            attempts = f"{MANY_ATTEMPTS}+" if is_many else str(entered.attempts)
            waited = self._clock.monotonic() - entered.at
            self._meter.observe(
                "scheduler_pod_scheduling_sli_duration_seconds", waited, attempts=attempts
            )

    def caught_by_flush(self, catch: requeue.FlushEffect) -> None:
        """Pods started or were evicted only because of the periodic flush: a defect of the requeue hints."""
        for what, refs in (("started", catch.started), ("evicted", catch.evicted)):
            if refs:
                self._meter.count("dovetail_caught_by_net_total", len(refs), what=what)
                LOG.warning(
                    "queue.flush.caught: no requeue hint fired for these pods",
                    extra={"what": what, "pods": [str(ref) for ref in refs[:SHOWN]]},
                )

    def abandoned(self, seconds: float) -> None:
        """A placement could not be written."""
        self._meter.count("scheduler_schedule_attempts_total", result="error", profile=PROFILE)
        self._meter.observe(
            "scheduler_scheduling_attempt_duration_seconds",
            seconds,
            result="error",
            profile=PROFILE,
        )

    def gave_up(self, what: str) -> None:
        """The API server keeps refusing a write, a pod's binding or a claim's release, and it is given up."""
        self._meter.count("dovetail_writes_given_up_total", what=what)

    def gang(self, bound: int, *, of: int) -> None:
        """A gang was written; this many of its pods are bound."""
        result = "bound"
        if bound != of:
            result = "partly" if bound else "none"
        self._meter.count("dovetail_gangs_total", result=result)

    def counts(self, queues: dict[str, int], *, assumed: int, quarantined: int) -> None:
        """How many pods wait in each queue, and other gauges."""
        for queue, count in queues.items():
            self._meter.gauge("scheduler_pending_pods", count, queue=queue)
        self._meter.gauge(
            "dovetail_stalled_seconds", self._progress.stalled_seconds(self._clock.monotonic())
        )
        self._meter.gauge("dovetail_assumed_pods", assumed)
        self._meter.gauge("dovetail_quarantined_devices", quarantined)

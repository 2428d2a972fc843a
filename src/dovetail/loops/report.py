"""What the scheduler reports about itself: attempts, durations, queues, under kube-scheduler's names where they fit.

Also gives every turn of deciding its id, and tells a tracer each step of a pod's way.
"""

from __future__ import annotations

import hashlib
import logging
from typing import Final, NamedTuple

from dovetail.loops import net, progress
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


class Report:
    """Numbers and one log line per batch; knows since when each pod waits."""

    def __init__(
        self, clock: clocks.Clock, meter_: meter.Meter, tracer: tracing.Tracer, progress_: progress.Progress
    ) -> None:
        self._clock = clock
        self._progress = progress_
        self._meter = meter_
        self._tracer = tracer
        self._entered: dict[str, _Entered] = {}
        # Turns are counted from one in every tenure; the moment it began tells tenures apart.
        self._tenure = hashlib.sha256(clock.now().isoformat().encode()).hexdigest()[:6]

    def begin(self, cycle: int) -> None:
        """A turn of deciding begins: what is logged, told and started from here on belongs to it."""
        tracing.CYCLE.set(f"{self._tenure}-{cycle}")

    def queued(self, uid: str, queue: str, event: str) -> None:
        """A pod was put into a queue."""
        if uid not in self._entered:
            self._entered[uid] = _Entered(self._clock.monotonic(), 0)
            self._tracer.step(uid, tracing.SEEN)
        self._tracer.step(uid, tracing.QUEUED, queue=queue, cause=event)
        self._meter.count("scheduler_queue_incoming_pods_total", queue=queue, event=event)

    def gone(self, uid: str) -> None:
        """A pod needs no node any more."""
        self._entered.pop(uid, None)
        self._tracer.gone(uid)

    def decided(self, uids: list[str], made: plan.Plan, seconds: float) -> None:
        """One batch was decided about."""
        if self._tracer.is_on:
            self._trace(made, seconds)
        for uid in uids:
            known = self._entered.get(uid, _Entered(self._clock.monotonic(), 0))
            self._entered[uid] = known._replace(attempts=known.attempts + 1)
        placed, refused = len(made.placements), len(made.refusals)
        if refused > made.undecided:  # what is placed counts once it is written
            self._progress.answered(self._clock.monotonic())
        self._meter.observe("dovetail_cycle_seconds", seconds)
        self._meter.observe("dovetail_cycle_pods", len(uids))
        self._meter.observe("scheduler_scheduling_algorithm_duration_seconds", seconds / len(uids))
        if placed:
            self._meter.count("scheduler_schedule_attempts_total", placed, result="scheduled", profile=PROFILE)
        if refused:
            self._meter.count("scheduler_schedule_attempts_total", refused, result="unschedulable", profile=PROFILE)
        if made.undecided:
            self._meter.count("dovetail_undecided_total", made.undecided)
        told = {"cycle": tracing.CYCLE.get(), "placed": placed, "refused": refused, "milliseconds": seconds * 1e3}
        LOG.debug("cycle", extra=told)

    def _trace(self, made: plan.Plan, seconds: float) -> None:
        cycle = tracing.CYCLE.get()
        for placed in made.placements:
            name, node = str(placed.pod), placed.node
            self._tracer.step(
                placed.pod.uid, tracing.DECIDED, pod=name, node=node, cycle=cycle, refusals=0, seconds=seconds
            )
        for refusal in made.refusals:
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
        """A pod got its node, so long after it was decided about."""
        self._progress.answered(self._clock.monotonic())
        self._tracer.step(uid, tracing.BOUND)
        self._meter.observe(
            "scheduler_scheduling_attempt_duration_seconds", seconds, result="scheduled", profile=PROFILE
        )
        entered = self._entered.pop(uid, None)
        if entered is not None:
            attempts = str(entered.attempts) if entered.attempts < MANY_ATTEMPTS else f"{MANY_ATTEMPTS}+"
            waited = self._clock.monotonic() - entered.at
            self._meter.observe("scheduler_pod_scheduling_sli_duration_seconds", waited, attempts=attempts)

    def caught(self, catch: net.Catch) -> None:
        """Pods started, or were made to yield, that nothing but the net had asked about: a defect of the hints."""
        for what, refs in (("started", catch.started), ("evicted", catch.evicted)):
            if refs:
                self._meter.count("dovetail_caught_by_net_total", len(refs), what=what)
                LOG.warning("caught by the net", extra={"what": what, "pods": [str(ref) for ref in refs[:SHOWN]]})

    def abandoned(self, seconds: float) -> None:
        """A placement could not be carried out."""
        self._meter.count("scheduler_schedule_attempts_total", result="error", profile=PROFILE)
        self._meter.observe("scheduler_scheduling_attempt_duration_seconds", seconds, result="error", profile=PROFILE)

    def gave_up(self, what: str) -> None:
        """The API server will not take a write, however often it is repeated: a pod's start, or a claim's release."""
        self._meter.count("dovetail_writes_given_up_total", what=what)

    def gang(self, bound: int, *, of: int) -> None:
        """A gang was written, so many of its pods with success."""
        result = "bound" if bound == of else "partly" if bound else "none"
        self._meter.count("dovetail_gangs_total", result=result)

    def counts(self, queues: dict[str, int], *, assumed: int, quarantined: int) -> None:
        """How many wait where."""
        for queue, count in queues.items():
            self._meter.gauge("scheduler_pending_pods", count, queue=queue)
        self._meter.gauge("dovetail_stalled_seconds", self._progress.stalled_seconds(self._clock.monotonic()))
        self._meter.gauge("dovetail_assumed_pods", assumed)
        self._meter.gauge("dovetail_quarantined_devices", quarantined)

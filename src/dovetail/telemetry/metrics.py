"""Numbers about ourselves in Prometheus' text format: what is counted, under which names, with which labels.

Implements `ports.meter.Meter` on a registry of its own. Every metric is a line of DECLARED; kube-scheduler's names are
used where they mean the same, so its dashboards and alerts work. Never fails and never blocks in production: a
mistake in reporting is itself counted. With `is_strict` it raises, which is how tests find it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import prometheus_client
from prometheus_client import exposition, registry

from dovetail import errors

CONTENT_TYPE: Final = exposition.CONTENT_TYPE_PLAIN_0_0_4
MAX_SERIES: Final = 1000  # of one metric: labels come from clusters, and a cluster can invent names without end
OVERFLOW: Final = "other"
ERRORS: Final = "dovetail_meter_errors_total"
FRESH_SECONDS: Final = 1.0  # a rendering is served again for so long

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """One declaration. `series` are label values known beforehand: they are there, at zero, from the start."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    series: tuple[tuple[str, ...], ...] = ()


class MeterError(errors.DovetailError):
    """A number was reported under a name, kind or label that is not declared. `reason` is what is counted."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def doubling(start: float, count: int) -> tuple[float, ...]:
    """Bucket bounds, each twice the one before, as kube-scheduler has them."""
    return tuple(start * 2**step for step in range(count))


_RESULTS: Final = (("scheduled", "dovetail"), ("unschedulable", "dovetail"), ("error", "dovetail"))
_QUEUES: Final = (("active",), ("backoff",), ("unschedulable",), ("gated",))
_SHORT: Final = doubling(0.001, 15)  # 1 ms to 16 s

DECLARED: Final = (
    # As kube-scheduler 1.37 has them: pkg/scheduler/metrics/metrics.go
    Metric(
        "scheduler_schedule_attempts_total",
        "counter",
        "Attempts to place a pod, by result: scheduled, unschedulable, or error for a problem of ours.",
        ("result", "profile"),
        series=_RESULTS,
    ),
    Metric(
        "scheduler_scheduling_attempt_duration_seconds",
        "histogram",
        "From the start of an attempt to its end, writes included.",
        ("result", "profile"),
        _SHORT,
    ),
    Metric("scheduler_scheduling_algorithm_duration_seconds", "histogram", "Deciding, without writes.", (), _SHORT),
    Metric(
        "scheduler_pod_scheduling_sli_duration_seconds",
        "histogram",
        "From a pod's first entry into a queue to its binding, over all attempts; 15 and more are '15+'.",
        ("attempts",),
        doubling(0.01, 20),
    ),
    Metric(
        "scheduler_pending_pods",
        "gauge",
        "Pods that wait: to be tried (active), after a failed write (backoff), for room (unschedulable), gated.",
        ("queue",),
        series=_QUEUES,
    ),
    Metric("scheduler_queue_incoming_pods_total", "counter", "Pods put into a queue, and by what.", ("queue", "event")),
    # Ours: deciding
    Metric("dovetail_leader", "gauge", "1 while this replica leads."),
    Metric("dovetail_cycle_seconds", "histogram", "One turn of deciding.", (), _SHORT),
    Metric("dovetail_cycle_pods", "histogram", "Pods looked at in one turn.", (), doubling(1, 15)),
    Metric("dovetail_decision_errors_total", "counter", "Decisions that failed by a fault of ours."),
    Metric("dovetail_plan_errors_total", "counter", "Words of plans that could not be carried out."),
    Metric(
        "dovetail_turn_errors_total",
        "counter",
        "Turns and chores that failed by a fault of ours and were done again.",
        ("where",),
        series=(
            ("deciding",),
            ("housekeeping",),
            ("noticing",),
            ("picture",),
            ("telling",),
            ("evicting",),
            ("audit",),
            ("queue status",),
            ("idleness",),
            ("usage",),
        ),
    ),
    Metric(
        "dovetail_gangs_set_aside",
        "gauge",
        "Gangs left out of decisions because deciding about them fails.",
        ("state",),
        series=(("waiting",), ("running",)),
    ),
    Metric("dovetail_tenure_errors_total", "counter", "Tenures that ended by a fault of ours."),
    Metric("dovetail_undecided_total", "counter", "Pods left without yes or no because the step budget ended."),
    Metric(
        "dovetail_caught_by_net_total",
        "counter",
        "Pods that started, or had to yield, although only the periodic net had asked about them.",
        ("what",),
    ),
    Metric("dovetail_loop_blocked_seconds", "histogram", "How long other work kept the event loop.", (), _SHORT),
    Metric("dovetail_loop_held_seconds", "gauge", "For how long the event loop has been held by one piece of work."),
    Metric("dovetail_stalled_seconds", "gauge", "For how long pods have waited while no pod got any answer."),
    Metric("dovetail_tenures_total", "counter", "Tenures as leader that this process began."),
    Metric("dovetail_shadow_comparisons_total", "counter", "Decisions compared with another's.", ("result",)),
    # Ours: writing
    Metric("dovetail_assumed_pods", "gauge", "Pods decided upon whose binding is not confirmed yet."),
    Metric("dovetail_writes_total", "counter", "Writes to the API server, by how they ended.", ("what", "result")),
    Metric("dovetail_write_seconds", "histogram", "One write, from sending to its end.", ("what",), _SHORT),
    Metric("dovetail_write_retries_total", "counter", "Writes that were repeated, by why.", ("reason",)),
    Metric("dovetail_writes_given_up_total", "counter", "Writes the API server will never take, by what.", ("what",)),
    Metric("dovetail_intents_unusable_total", "counter", "Intents of a predecessor that could not be acted upon."),
    Metric("dovetail_gangs_total", "counter", "Gangs whose start was written, by how that ended.", ("result",)),
    Metric("dovetail_evictions_total", "counter", "Pods that were to yield, by rule and result.", ("rule", "result")),
    Metric("dovetail_queue_status_writes_total", "counter", "Statuses of queues that were written."),
    Metric("dovetail_events_dropped_total", "counter", "Events for people that were not written.", ("reason",)),
    # Ours: reading
    Metric("dovetail_watch_lists_total", "counter", "Kinds listed anew from the API server.", ("kind",)),
    Metric("dovetail_watch_events_total", "counter", "Changes heard from the API server.", ("kind",)),
    Metric("dovetail_watch_dropped_total", "counter", "Changes that were older than what is known.", ("kind",)),
    Metric("dovetail_watch_restarts_total", "counter", "Watches begun anew, by why.", ("kind", "reason")),
    Metric("dovetail_fields_dropped_total", "counter", "Fields written that the API server did not keep.", ("field",)),
    # Ours: audit
    Metric("dovetail_overlaps", "gauge", "Devices and counters that are given out twice."),
    Metric("dovetail_overlap_releases_total", "counter", "Allocations taken back because they overlapped."),
    Metric("dovetail_quarantined_devices", "gauge", "Devices kept out of use until a doubt is settled."),
    # Ours: nodes played in memory
    Metric("dovetail_player_renewals_total", "counter", "Node leases renewed."),
    Metric("dovetail_player_phases_total", "counter", "Pods moved to a phase.", ("phase",)),
    Metric("dovetail_player_violations_total", "counter", "What a kubelet would not have accepted.", ("code",)),
    # Ours: this meter
    Metric(ERRORS, "counter", "Numbers that could not be reported, by why.", ("reason",)),
)


class Metrics:
    """Implements `ports.meter.Meter`. A report of a known series costs a dictionary look-up and an addition."""

    def __init__(
        self,
        declared: tuple[Metric, ...] = DECLARED,
        *,
        is_strict: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        # Otherwise each counter has a second series that nobody reads.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = registry.CollectorRegistry()
        self._declared = {metric.name: metric for metric in declared}
        self._families: dict[str, Any] = {metric.name: self._family(metric) for metric in declared}
        self._series: dict[tuple[object, ...], Any] = {}
        self._opened_count: dict[str, int] = {}
        self._is_strict = is_strict
        self._monotonic = monotonic
        self._made = b""
        self._made_at: float | None = None
        prometheus_client.ProcessCollector(registry=self._registry)
        for metric in declared:
            for values in metric.series:
                self._families[metric.name].labels(*values)

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Adds to a counter."""
        try:
            self._child("counter", name, labels).inc(amount)
        except (MeterError, ValueError, TypeError) as error:
            self._failed(error)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """One more value of a distribution."""
        try:
            self._child("histogram", name, labels).observe(value)
        except (MeterError, ValueError, TypeError) as error:
            self._failed(error)

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Sets what something is now."""
        try:
            self._child("gauge", name, labels).set(value)
        except (MeterError, ValueError, TypeError) as error:
            self._failed(error)

    def text(self) -> bytes:
        """All metrics as text of type CONTENT_TYPE, at most a second old."""
        now = self._monotonic()
        if self._made_at is None or not 0 <= now - self._made_at < FRESH_SECONDS:
            self._made = exposition.generate_latest(self._registry)
            self._made_at = now
        return self._made

    def _family(self, metric: Metric) -> Any:
        match metric.kind:
            case "counter":
                return prometheus_client.Counter(metric.name, metric.help, metric.labels, registry=self._registry)
            case "gauge":
                return prometheus_client.Gauge(metric.name, metric.help, metric.labels, registry=self._registry)
            case "histogram":
                return prometheus_client.Histogram(
                    metric.name, metric.help, metric.labels, registry=self._registry, buckets=metric.buckets
                )

    def _child(self, kind: Kind, name: str, labels: dict[str, str]) -> Any:
        key = (kind, name, *labels.items())
        return self._series.get(key) or self._opened(key, kind, name, labels)

    def _opened(self, key: tuple[object, ...], kind: Kind, name: str, labels: dict[str, str]) -> Any:
        """The series of these labels; beyond MAX_SERIES the one for all the rest. Raises MeterError."""
        metric = self._declared.get(name)
        if metric is None:
            raise MeterError("undeclared", f"{name}: not declared in telemetry.metrics")
        if metric.kind != kind:
            raise MeterError("kind", f"{name}: is a {metric.kind}, reported as a {kind}")
        if labels.keys() != set(metric.labels):
            raise MeterError("labels", f"{name}: needs labels {sorted(metric.labels)}, has {sorted(labels)}")
        family = self._families[name]
        if labels and self._opened_count.get(name, 0) >= MAX_SERIES:
            self._families[ERRORS].labels(reason="too many").inc()
            return family.labels(**dict.fromkeys(labels, OVERFLOW))
        self._opened_count[name] = self._opened_count.get(name, 0) + 1
        child = self._series[key] = family.labels(**labels) if labels else family
        return child

    def _failed(self, error: Exception) -> None:
        if self._is_strict:
            raise error
        self._families[ERRORS].labels(reason=error.reason if isinstance(error, MeterError) else "value").inc()

"""The scheduler's metrics in Prometheus' text format: names, labels and help texts.

Implements `ports.meter.Meter` on its own registry. Every metric is declared in DECLARED; kube-scheduler's names are
used where they mean the same, so its dashboards and alerts work. Never raises and never blocks in production: a wrong
report is itself counted. With `is_strict` it raises, which is how tests find such reports.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import prometheus_client
from prometheus_client import exposition, registry

from dovetail import errors

CONTENT_TYPE: Final = exposition.CONTENT_TYPE_PLAIN_0_0_4
# Of one metric: label values come from clusters, and a cluster can invent any number of names.
MAX_SERIES: Final = 1000
OVERFLOW: Final = "other"
ERRORS: Final = "dovetail_meter_errors_total"
FRESH_SECONDS: Final = 1.0  # how long a rendered text is reused

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """One declaration. `series` are label values known beforehand: they exist, at zero, from the start."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    series: tuple[tuple[str, ...], ...] = ()


class MeterError(errors.DovetailError):
    """A value was reported under a name, kind or label that is not declared. `reason` is its error label."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def doubling_buckets(start: float, count: int) -> tuple[float, ...]:
    """Bucket bounds, each twice the previous one, as in kube-scheduler."""
    return tuple(start * 2**step for step in range(count))


_RESULTS: Final = (("scheduled", "dovetail"), ("unschedulable", "dovetail"), ("error", "dovetail"))
_QUEUES: Final = (("active",), ("backoff",), ("unschedulable",), ("gated",))
_SHORT: Final = doubling_buckets(0.001, 15)  # 1 ms to 16 s

DECLARED: Final = (
    # As kube-scheduler 1.37 has them: pkg/scheduler/metrics/metrics.go
    Metric(
        "scheduler_schedule_attempts_total",
        "counter",
        "Attempts to place a pod, by result: scheduled, unschedulable, or error for a fault of the scheduler.",
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
    Metric(
        "scheduler_scheduling_algorithm_duration_seconds",
        "histogram",
        "Deciding, without writes.",
        (),
        _SHORT,
    ),
    Metric(
        "scheduler_pod_scheduling_sli_duration_seconds",
        "histogram",
        "From a pod's first entry into a queue to its binding, over all attempts; 15 and more are '15+'.",
        ("attempts",),
        doubling_buckets(0.01, 20),
    ),
    Metric(
        "scheduler_pending_pods",
        "gauge",
        "Pods that wait: to be tried (active), after a failed write (backoff), for room (unschedulable), gated.",
        ("queue",),
        series=_QUEUES,
    ),
    Metric(
        "scheduler_queue_incoming_pods_total",
        "counter",
        "Pods put into a queue, and by what.",
        ("queue", "event"),
    ),
    # Ours: deciding
    Metric("dovetail_leader", "gauge", "1 while this replica leads."),
    Metric("dovetail_cycle_seconds", "histogram", "Duration of one scheduling cycle.", (), _SHORT),
    Metric(
        "dovetail_cycle_pods",
        "histogram",
        "Pods decided in one cycle.",
        (),
        doubling_buckets(1, 15),
    ),
    Metric(
        "dovetail_decision_errors_total",
        "counter",
        "Decisions that failed by a fault of the scheduler.",
    ),
    Metric(
        "dovetail_plan_errors_total", "counter", "Invalid entries of plans, which were ignored."
    ),
    Metric(
        "dovetail_turn_errors_total",
        "counter",
        "Cycles and background tasks that failed by a fault of the scheduler and were repeated.",
        ("where",),
        series=(
            ("deciding",),
            ("housekeeping",),
            ("noticing",),
            ("picture",),
            ("reporting",),
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
        "Gangs excluded from decisions because deciding about them fails.",
        ("state",),
        series=(("waiting",), ("running",)),
    ),
    Metric(
        "dovetail_tenure_errors_total", "counter", "Tenures that ended by a fault of the scheduler."
    ),
    Metric(
        "dovetail_undecided_total",
        "counter",
        "Pods without a decision because the step budget was used up.",
    ),
    Metric(
        "dovetail_caught_by_net_total",
        "counter",
        "Pods that started or were evicted only because of the periodic flush.",
        ("what",),
    ),
    Metric(
        "dovetail_loop_blocked_seconds",
        "histogram",
        "How long other work blocked the event loop.",
        (),
        _SHORT,
    ),
    Metric(
        "dovetail_loop_held_seconds",
        "gauge",
        "How long one piece of work has blocked the event loop.",
    ),
    Metric(
        "dovetail_stalled_seconds",
        "gauge",
        "How long pods have waited while no pod was decided.",
    ),
    Metric("dovetail_tenures_total", "counter", "Tenures as leader that this process started."),
    Metric(
        "dovetail_shadow_comparisons_total",
        "counter",
        "Decisions compared with those of another scheduler.",
        ("result",),
    ),
    # Ours: idle work
    Metric(
        "dovetail_idle_pods",
        "gauge",
        "Pods all of whose GPUs are idle, by what was done about it.",
        ("stage",),
        series=(("Warned",), ("Preemptible",)),
    ),
    Metric(
        "dovetail_idle_devices",
        "gauge",
        "GPUs and slices that idle pods hold, by what was done about it.",
        ("stage",),
        series=(("Warned",), ("Preemptible",)),
    ),
    Metric(
        "dovetail_device_metrics_up",
        "gauge",
        "1 if the last query for utilisation was answered, else 0.",
    ),
    Metric(
        "dovetail_device_metrics_devices",
        "gauge",
        "Devices whose utilisation was asked for: measured, missing, or with readings that stand still.",
        ("state",),
        series=(("measured",), ("missing",), ("frozen",)),
    ),
    Metric(
        "dovetail_device_metrics_skew_seconds",
        "gauge",
        "Clock of Prometheus minus the scheduler's.",
    ),
    # Ours: writing
    Metric("dovetail_assumed_pods", "gauge", "Pods placed whose binding is not confirmed yet."),
    Metric(
        "dovetail_writes_total",
        "counter",
        "Writes to the API server, by result.",
        ("what", "result"),
    ),
    Metric(
        "dovetail_write_seconds",
        "histogram",
        "One write, from sending to its end.",
        ("what",),
        _SHORT,
    ),
    Metric(
        "dovetail_write_retries_total",
        "counter",
        "Writes that were repeated, by reason.",
        ("reason",),
    ),
    Metric(
        "dovetail_writes_given_up_total",
        "counter",
        "Writes given up because the API server keeps refusing them, by kind.",
        ("what",),
    ),
    Metric(
        "dovetail_intents_unusable_total",
        "counter",
        "Intents of a predecessor that could not be acted upon.",
    ),
    Metric(
        "dovetail_gangs_total",
        "counter",
        "Gangs that were bound, by result.",
        ("result",),
    ),
    Metric(
        "dovetail_evictions_total",
        "counter",
        "Evictions, by rule and result.",
        ("rule", "result"),
    ),
    Metric("dovetail_queue_status_writes_total", "counter", "Queue statuses written."),
    Metric(
        "dovetail_events_dropped_total",
        "counter",
        "Events that were not written, by reason.",
        ("reason",),
    ),
    # Ours: reading
    Metric(
        "dovetail_watch_lists_total",
        "counter",
        "Complete lists read from the API server.",
        ("kind",),
    ),
    Metric(
        "dovetail_watch_events_total", "counter", "Changes received from the API server.", ("kind",)
    ),
    Metric(
        "dovetail_watch_dropped_total",
        "counter",
        "Changes dropped because a newer state was known.",
        ("kind",),
    ),
    Metric(
        "dovetail_watch_restarts_total",
        "counter",
        "Watches restarted, by reason.",
        ("kind", "reason"),
    ),
    Metric(
        "dovetail_fields_dropped_total",
        "counter",
        "Fields written that the API server did not store.",
        ("field",),
    ),
    # Ours: audit
    Metric("dovetail_overlaps", "gauge", "Devices and counters that are allocated twice."),
    Metric(
        "dovetail_overlap_releases_total",
        "counter",
        "Allocations released because they overlapped.",
    ),
    Metric(
        "dovetail_quarantined_devices",
        "gauge",
        "Devices kept out of use until their state is known.",
    ),
    # Ours: hollow nodes
    Metric("dovetail_player_renewals_total", "counter", "Node leases renewed."),
    Metric("dovetail_player_phases_total", "counter", "Pods moved to a phase.", ("phase",)),
    Metric(
        "dovetail_player_violations_total",
        "counter",
        "Pods bound to nodes where a kubelet would not start them.",
        ("code",),
    ),
    # Ours: this meter
    Metric(ERRORS, "counter", "Values that could not be reported, by reason.", ("reason",)),
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
        # Otherwise each counter has a second series, its creation time, which is of no use.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = registry.CollectorRegistry()
        self._declared = {metric.name: metric for metric in declared}
        self._families: dict[str, Any] = {metric.name: self._family(metric) for metric in declared}
        self._series: dict[tuple[object, ...], Any] = {}
        self._opened_count: dict[str, int] = {}
        self._is_strict = is_strict
        self._monotonic = monotonic
        self._rendered = b""
        self._rendered_at: float | None = None
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
        """Adds a value to a histogram."""
        try:
            self._child("histogram", name, labels).observe(value)
        except (MeterError, ValueError, TypeError) as error:
            self._failed(error)

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Sets the present value."""
        try:
            self._child("gauge", name, labels).set(value)
        except (MeterError, ValueError, TypeError) as error:
            self._failed(error)

    def text(self) -> bytes:
        """All metrics as text of type CONTENT_TYPE, at most a second old."""
        now = self._monotonic()
        if self._rendered_at is None or not 0 <= now - self._rendered_at < FRESH_SECONDS:
            self._rendered = exposition.generate_latest(self._registry)
            self._rendered_at = now
        return self._rendered

    def _family(self, metric: Metric) -> Any:
        match metric.kind:
            case "counter":
                return prometheus_client.Counter(
                    metric.name, metric.help, metric.labels, registry=self._registry
                )
            case "gauge":
                return prometheus_client.Gauge(
                    metric.name, metric.help, metric.labels, registry=self._registry
                )
            case "histogram":
                return prometheus_client.Histogram(
                    metric.name,
                    metric.help,
                    metric.labels,
                    registry=self._registry,
                    buckets=metric.buckets,
                )

    def _child(self, kind: Kind, name: str, labels: dict[str, str]) -> Any:
        key = (kind, name, *labels.items())
        return self._series.get(key) or self._opened(key, kind, name, labels)

    def _opened(
        self, key: tuple[object, ...], kind: Kind, name: str, labels: dict[str, str]
    ) -> Any:
        """The series of these labels; beyond MAX_SERIES the overflow series. Raises MeterError."""
        metric = self._declared.get(name)
        if metric is None:
            raise MeterError("undeclared", f"{name}: not declared in telemetry.metrics")
        if metric.kind != kind:
            raise MeterError("kind", f"{name}: is a {metric.kind}, reported as a {kind}")
        if labels.keys() != set(metric.labels):
            raise MeterError(
                "labels", f"{name}: needs labels {sorted(metric.labels)}, has {sorted(labels)}"
            )

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
        reason = error.reason if isinstance(error, MeterError) else "value"
        self._families[ERRORS].labels(reason=reason).inc()

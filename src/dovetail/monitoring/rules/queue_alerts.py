"""Alerts about work that waits: queues below their share, gangs in parts, pods that nothing starts."""

from __future__ import annotations

from typing import Final

from dovetail.monitoring.rules.rule import Alert, Audience, Group, Severity

GROUP: Final = Group(
    name="dovetail-queues",
    rules=(
        Alert(
            name="QueueStarved",
            expr=(
                '(dovetail_queue_charged{resource="gpu"} < on (queue, resource) dovetail_queue_fair_share)'
                " and on (queue, resource) (dovetail_queue_requested > dovetail_queue_charged)"
                " and on (queue) (dovetail_queue_pending_pods > 0)"
            ),
            hold="30m",
            severity=Severity.WARNING,
            summary="Queue {{ $labels.queue }} has less than it is due, and pods wait in it.",
            description=(
                "Queue {{ $labels.queue }} has held {{ $value | humanize }} GPUs, less than its fair share, for"
                " 30 minutes while its pods wait."
            ),
        ),
        Alert(
            name="QueueNotReady",
            expr="dovetail_queue_ready == 0",
            hold="10m",
            severity=Severity.WARNING,
            summary="Queue {{ $labels.queue }} is not ready: its pods do not start.",
            description="The condition Ready of queue {{ $labels.queue }} has not been True for 10 minutes.",
        ),
        Alert(
            name="GangPartial",
            expr=(
                'dovetail_gang_pods{state="running"} > 0'
                " and on (namespace, gang)"
                ' (dovetail_gang_pods{state="running"} < on (namespace, gang) dovetail_gang_min_pods)'
            ),
            hold="10m",
            severity=Severity.WARNING,
            audience=Audience.OWNER,
            summary="Gang {{ $labels.namespace }}/{{ $labels.gang }} runs in part.",
            description=(
                "{{ $value }} pods of gang {{ $labels.namespace }}/{{ $labels.gang }} have run for 10 minutes,"
                " fewer than must run together: they hold GPUs and get nothing done."
            ),
        ),
        Alert(
            name="GangWaitsLong",
            expr=(
                "(time() - dovetail_gang_created_timestamp_seconds > 4 * 3600)"
                ' and on (namespace, gang) (dovetail_gang_pods{state="pending"} > 0)'
                ' unless on (namespace, gang) (dovetail_gang_pods{state="running"} > 0)'
            ),
            hold="5m",
            severity=Severity.INFO,
            audience=Audience.OWNER,
            summary="Gang {{ $labels.namespace }}/{{ $labels.gang }} has waited {{ $value | humanizeDuration }}.",
            description="None of its pods has started in four hours.",
        ),
        Alert(
            name="PromisesMoved",
            expr="sum by (namespace) (increase(dovetail_promises_moved_total[1h])) > 0.5",
            severity=Severity.INFO,
            audience=Audience.OWNER,
            summary="Promised starts in {{ $labels.namespace }} moved {{ $value | humanize }} times in an hour.",
            description=(
                "The scheduler had promised gangs of this namespace a start, and now promises a later one, or"
                " none."
            ),
        ),
        Alert(
            name="PodsWaitBesideFreeGpus",
            expr=(
                'sum(scheduler_pending_pods{queue="unschedulable"}) > 0'
                " and on () (sum(node:dovetail_gpus:count)"
                " - (sum(node:dovetail_gpus_allocated:count) or vector(0)) > 0)"
            ),
            hold="30m",
            severity=Severity.WARNING,
            summary="{{ $value }} pods wait although GPUs are free.",
            description=(
                "GPUs have been free for 30 minutes that none of {{ $value }} waiting pods could use: taints,"
                " quotas, shapes or topology are in the way."
            ),
        ),
        Alert(
            name="PodsUnschedulable",
            # The exporter knows reasons; without it the scheduler's count is better than nothing.
            expr=(
                'sum by (reason) (dovetail_waiting_pods{reason!="SchedulingGated"}) > 0'
                ' or (sum(scheduler_pending_pods{queue="unschedulable"}) > 0'
                " unless on () dovetail_exporter_synced)"
            ),
            hold="4h",
            severity=Severity.INFO,
            summary="Pods have waited for room for four hours{{ with $labels.reason }}: {{ . }}{{ end }}.",
            description=(
                "{{ $value }} pods wait{{ with $labels.reason }} with reason {{ . }}{{ end }}, and some did at any"
                " time of the last four hours."
            ),
        ),
        Alert(
            name="SchedulingSlow",
            expr=(
                "histogram_quantile(0.99, sum by (le)"
                " (rate(scheduler_scheduling_algorithm_duration_seconds_bucket[10m]))) > 1"
            ),
            hold="15m",
            severity=Severity.WARNING,
            summary="One pod in a hundred takes {{ $value | humanizeDuration }} to decide.",
            description="The 99th percentile of deciding about a pod has been above a second for 15 minutes.",
        ),
    ),
)

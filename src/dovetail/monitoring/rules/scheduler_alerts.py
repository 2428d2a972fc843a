"""Alerts about Dovetail itself: leadership, the loop, reading, writing, defects, and what its metrics come from."""

from __future__ import annotations

from typing import Final

from dovetail.monitoring.rules.rule import Alert, Group, Severity

GROUP: Final = Group(
    name="dovetail-scheduler",
    rules=(
        Alert(
            name="DovetailSchedulerAbsent",
            expr="absent(dovetail_leader)",
            hold="10m",
            severity=Severity.CRITICAL,
            summary="No replica of the scheduler has metrics.",
            description="Prometheus has read no metrics of the scheduler for 10 minutes: it is down, or not scraped.",
        ),
        Alert(
            name="DovetailNotLeading",
            expr="sum by (namespace, job) (dovetail_leader) == 0",
            hold="2m",
            severity=Severity.CRITICAL,
            summary="No replica of the scheduler leads: no pod is placed.",
            description="Replicas run in namespace {{ $labels.namespace }}, and none has held the lease for 2 minutes.",
        ),
        Alert(
            name="DovetailTwoLeaders",
            expr="sum by (namespace, job) (dovetail_leader) > 1",
            hold="1m",
            severity=Severity.CRITICAL,
            summary="{{ $value }} replicas of the scheduler believe that they lead.",
            description="For a minute more than one replica in namespace {{ $labels.namespace }} has led.",
        ),
        Alert(
            name="DovetailLoopHeld",
            expr="dovetail_loop_held_seconds > 10",
            hold="1m",
            severity=Severity.CRITICAL,
            summary="One piece of work has held the scheduler's loop for {{ $value | humanizeDuration }}.",
            description="{{ $labels.instance }} answers nothing meanwhile, and may lose its lease.",
        ),
        Alert(
            name="DovetailStalled",
            expr="dovetail_stalled_seconds > 300",
            hold="2m",
            severity=Severity.CRITICAL,
            summary="Pods wait and the scheduler has decided about none for {{ $value | humanizeDuration }}.",
            description="{{ $labels.instance }} leads, pods are pending, and none was bound or got a reason.",
        ),
        Alert(
            name="DovetailInformerUnstable",
            expr='sum by (kind) (increase(dovetail_watch_restarts_total{reason!="unreadable"}[15m])) > 10',
            hold="10m",
            severity=Severity.WARNING,
            summary="Watches of {{ $labels.kind }} break again and again.",
            description=(
                "{{ $value | humanize }} restarts in 15 minutes: what the scheduler knows of {{ $labels.kind }} may"
                " be old."
            ),
        ),
        Alert(
            name="DovetailObjectsUnreadable",
            expr='sum by (kind) (increase(dovetail_watch_restarts_total{reason="unreadable"}[15m])) > 0',
            severity=Severity.WARNING,
            summary="The scheduler cannot read an object of kind {{ $labels.kind }}.",
            description="Objects that cannot be read are not part of any decision.",
        ),
        Alert(
            name="DovetailWriteErrors",
            expr=(
                'sum by (what) (rate(dovetail_writes_total{result!="ok"}[10m]))'
                " / sum by (what) (rate(dovetail_writes_total[10m])) > 0.2"
            ),
            hold="10m",
            severity=Severity.WARNING,
            summary="{{ $value | humanizePercentage }} of the writes of {{ $labels.what }} fail.",
            description="The API server refuses, or does not answer, more than a fifth of these writes.",
        ),
        Alert(
            name="DovetailWritesGivenUp",
            expr="sum by (what) (increase(dovetail_writes_given_up_total[1h])) > 0",
            severity=Severity.WARNING,
            summary="The scheduler gave up a write of {{ $labels.what }}.",
            description="The API server will never accept it: a pod does not start, or devices stay allocated.",
        ),
        Alert(
            name="DovetailDefects",
            expr=(
                "sum(increase(dovetail_decision_errors_total[1h])) > 0"
                " or sum(increase(dovetail_turn_errors_total[1h])) > 0"
                " or sum(increase(dovetail_tenure_errors_total[1h])) > 0"
                " or sum(increase(dovetail_plan_errors_total[1h])) > 0"
            ),
            severity=Severity.WARNING,
            summary="The scheduler met a defect of its own.",
            description="It isolates such faults and goes on; the log has the traceback.",
        ),
        Alert(
            name="DovetailGangsSetAside",
            expr="sum by (state) (dovetail_gangs_set_aside) > 0",
            hold="10m",
            severity=Severity.WARNING,
            summary="{{ $value }} {{ $labels.state }} gangs are excluded from decisions.",
            description="Deciding about them fails by a defect; all other work is scheduled.",
        ),
        Alert(
            name="DovetailGangsBoundInPart",
            expr='sum(increase(dovetail_gangs_total{result="partly"}[1h])) > 0',
            severity=Severity.WARNING,
            summary="A gang was bound in part.",
            description="Writes failed in the middle of a gang's start: the remainder follows, or the gang is evicted.",
        ),
        Alert(
            name="DovetailOverlap",
            expr="max(dovetail_overlaps) > 0",
            hold="2m",
            severity=Severity.CRITICAL,
            summary="{{ $value }} devices are allocated twice.",
            description="Two claims hold the same device or counter: do two schedulers share nodes?",
        ),
        Alert(
            name="DovetailQuarantine",
            expr="max(dovetail_quarantined_devices) > 0",
            hold="1h",
            severity=Severity.WARNING,
            summary="{{ $value }} devices have been in quarantine for an hour.",
            description="Pods that held them were removed by force, and no kubelet has confirmed that they ended.",
        ),
        Alert(
            name="DovetailFieldsDropped",
            expr="sum by (field) (increase(dovetail_fields_dropped_total[1h])) > 0",
            severity=Severity.WARNING,
            summary="The API server does not store the field {{ $labels.field }}.",
            description="A feature gate of the API server is off, and the feature that needs the field does not work.",
        ),
        Alert(
            name="DovetailExporterAbsent",
            expr="absent(dovetail_exporter_synced) and on () (dovetail_leader == 1)",
            hold="15m",
            severity=Severity.WARNING,
            summary="`dovetail exporter` has no metrics.",
            description="Alerts about claims, queues and gangs cannot fire, and dashboards have gaps.",
        ),
        Alert(
            name="DovetailExporterStale",
            expr="dovetail_exporter_synced == 0",
            hold="5m",
            severity=Severity.WARNING,
            summary="The exporter's watch of {{ $labels.kind }} is not current.",
            description="Figures of {{ $labels.kind }} at {{ $labels.instance }} may be old.",
        ),
        Alert(
            name="DovetailDeviceMetricsDown",
            expr="max(dovetail_device_metrics_up) == 0",
            hold="15m",
            severity=Severity.WARNING,
            summary="The scheduler gets no utilisation from Prometheus.",
            description="Idle work is neither noticed nor warned.",
        ),
        Alert(
            name="DovetailNodeAgentRestarts",
            expr="sum by (instance, work) (increase(dovetail_node_restarts_total[1h])) > 3",
            severity=Severity.WARNING,
            summary="Work of a node agent fails again and again.",
            description=(
                "`{{ $labels.work }}` of the agent at {{ $labels.instance }} was started again"
                " {{ $value | humanize }} times in an hour."
            ),
        ),
    ),
)

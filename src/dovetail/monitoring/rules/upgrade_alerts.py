"""Alerts about upgrades and healing of the GPU stack: what stopped, failed, or waits for a person."""

from __future__ import annotations

from typing import Final

from dovetail.monitoring.rules.rule import Alert, Group, Severity

_NODE: Final = "upgrade, node, phase"

GROUP: Final = Group(
    name="dovetail-upgrades",
    rules=(
        Alert(
            name="StackUpgradeStopped",
            expr='max by (upgrade) (dovetail_lifecycle_upgrade_phase{phase="Stopped"}) == 1',
            severity=Severity.WARNING,
            summary="Upgrade {{ $labels.upgrade }} stopped by itself.",
            description=(
                "A stop rule ended upgrade {{ $labels.upgrade }}: nodes that had not begun keep their versions,"
                " failed nodes stay fenced."
            ),
        ),
        Alert(
            name="StackUpgradeNodesFailed",
            expr='max by (upgrade) (dovetail_lifecycle_nodes{phase="Failed"}) > 0',
            hold="5m",
            severity=Severity.WARNING,
            summary="{{ $value }} nodes failed in upgrade {{ $labels.upgrade }}.",
            description=(
                "A failed node stays fenced until a person repairs it and removes the fence, unless nothing was"
                " applied to it."
            ),
        ),
        Alert(
            name="StackUpgradeStuck",
            expr=(
                f"max by ({_NODE}) (dovetail_lifecycle_node_phase_seconds)"
                f" > max by ({_NODE}) (dovetail_lifecycle_node_phase_limit_seconds)"
            ),
            hold="10m",
            severity=Severity.WARNING,
            summary="Node {{ $labels.node }} does not get on in upgrade {{ $labels.upgrade }}.",
            description=(
                "It has been {{ $labels.phase }} for {{ $value | humanizeDuration }}, longer than the upgrade's"
                " rules allow, and the process has not ended that."
            ),
        ),
        Alert(
            name="DovetailLifecycleAbsent",
            # Over a day, so that a process that is gone counts, and a cluster without upgrades does not.
            expr=(
                "max by (upgrade) (last_over_time("
                'dovetail_lifecycle_upgrade_condition{condition="Progressing"}[1d])) == 1'
                " unless on () (max(dovetail_lifecycle_leading) == 1)"
            ),
            hold="10m",
            severity=Severity.CRITICAL,
            summary="No process carries out upgrade {{ $labels.upgrade }}, which is under way.",
            description=(
                "No replica of `dovetail lifecycle` has led for 10 minutes. Nodes that are fenced stay fenced, and"
                " gangs that were half evicted wait."
            ),
        ),
        Alert(
            name="GpuHealingWaits",
            expr='max by (state) (dovetail_heal_nodes{state=~"stuck|refused"}) > 0',
            hold="15m",
            severity=Severity.WARNING,
            summary="{{ $value }} nodes with faulty GPUs wait for a person: {{ $labels.state }}.",
            description=(
                "The healer does no more there: a rule forbids the remedy that is due (refused), or the node"
                " refused it (stuck)."
            ),
        ),
        Alert(
            name="GpuHealingBreakerOpen",
            expr="max by (pool) (dovetail_heal_breaker_open) == 1",
            hold="10m",
            severity=Severity.WARNING,
            summary="Healing of pool {{ $labels.pool }} is held back: too many of its nodes are faulty.",
            description=(
                "So many nodes of the pool have new faults, or are being healed, that a common cause is likely."
                " No remedy begins there until fewer are."
            ),
        ),
    ),
)

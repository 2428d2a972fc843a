"""The fleet: how many GPUs there are, how many work, what is broken, and how the scheduler does."""

from __future__ import annotations

from typing import Final

from dovetail.monitoring.dashboards.panel import Dashboard, Form, Panel, Query, Row, Unit
from dovetail.monitoring.rules import device_alerts

BUSY: Final = "max by (UUID) (accelerator_active_ratio)"
HELD: Final = 'max by (UUID) (accelerator_active_ratio{pod!=""})'
UNHEALTHY: Final = 'dovetail_device_unhealthy{effect=~"NoSchedule|NoExecute"}'


def _figure(title: str, meaning: str, expr: str, **more: object) -> Panel:
    fields = {"form": Form.FIGURE, "width": 4, "height": 4, **more}
    return Panel(title=title, meaning=meaning, queries=(Query(expr),), **fields)  # type: ignore[arg-type]


DASHBOARD: Final = Dashboard(
    name="fleet",
    title="Dovetail / Fleet",
    meaning="All GPUs of the cluster: allocated, busy, broken; what waits; how the scheduler does.",
    rows=(
        Row(
            "Now",
            (
                _figure("GPUs", "Published by ResourceSlices.", "sum(node:dovetail_gpus:count)"),
                _figure(
                    "Allocated",
                    "GPUs that a claim holds, as a whole or in part.",
                    "sum(node:dovetail_gpus_allocated:count) or vector(0)",
                ),
                _figure(
                    "Busy",
                    "Mean over all GPUs of the time in which they worked.",
                    f"avg({BUSY})",
                    unit=Unit.RATIO,
                ),
                _figure(
                    "Pods that wait",
                    "For a try, after a failed write, or for room.",
                    'sum(scheduler_pending_pods{queue!="gated"})',
                ),
                _figure(
                    "Unhealthy",
                    "Taints that keep new work off devices.",
                    f"count({UNHEALTHY}) or vector(0)",
                    warns_at=1,
                ),
                _figure(
                    "Alerts",
                    "Alerts of Dovetail that fire and that someone should look at.",
                    'count(ALERTS{alertstate="firing", audience!="", severity!="info"}) or vector(0)',
                    warns_at=1,
                    alarms_at=5,
                ),
            ),
        ),
        Row(
            "Capacity",
            (
                Panel(
                    title="GPUs allocated",
                    meaning="Of the published ones.",
                    queries=(
                        Query("sum(node:dovetail_gpus:count)", "published"),
                        Query("sum(node:dovetail_gpus_allocated:count) or vector(0)", "allocated"),
                    ),
                ),
                Panel(
                    title="GPUs by product",
                    meaning="Published by ResourceSlices.",
                    queries=(Query("count by (product) (dovetail_device_info)", "{{product}}"),),
                    is_stacked=True,
                ),
                Panel(
                    title="How busy GPUs are",
                    meaning="Share of time in which the engine worked; percentiles over all GPUs.",
                    queries=(
                        Query(f"quantile(0.5, {BUSY})", "median"),
                        Query(f"quantile(0.9, {BUSY})", "90 %"),
                        Query(f"avg({BUSY})", "mean"),
                    ),
                    unit=Unit.RATIO,
                    top=1,
                ),
                Panel(
                    title="Held and idle",
                    meaning="GPUs that a pod holds, and those of them that do less than 1 % of the time.",
                    queries=(
                        Query(f"count({HELD})", "held"),
                        Query(
                            f"count({HELD} < {device_alerts.IDLE_RATIO}) or vector(0)",
                            "held and idle",
                        ),
                    ),
                ),
                Panel(
                    title="Memory in use",
                    meaning="Of all memory of the GPUs.",
                    queries=(
                        Query("sum(accelerator_memory_used_bytes)", "used"),
                        Query("sum(accelerator_memory_total_bytes)", "there"),
                    ),
                    unit=Unit.BYTES,
                ),
                Panel(
                    title="Power",
                    meaning="Drawn by all GPUs.",
                    queries=(Query("sum(accelerator_power_usage_watts)", "GPUs"),),
                    unit=Unit.WATTS,
                ),
            ),
        ),
        Row(
            "Health",
            (
                Panel(
                    title="Hottest GPUs",
                    meaning="The ten hottest; boards slow down between 87 and 95 degrees.",
                    queries=(
                        Query("topk(10, accelerator_temperature_celsius)", "{{node}} {{gpu}}"),
                    ),
                    unit=Unit.CELSIUS,
                    warns_at=device_alerts.HOT_CELSIUS,
                ),
                Panel(
                    title="Errors of the driver",
                    meaning="The last XID of each GPU that had one since its exporter started.",
                    queries=(Query("accelerator_last_xid"),),
                    form=Form.TABLE,
                ),
                Panel(
                    title="Taints of devices",
                    meaning="What keeps new work off a device, or only warns of it.",
                    queries=(Query("dovetail_device_unhealthy"),),
                    form=Form.TABLE,
                    width=24,
                ),
            ),
        ),
        Row(
            "Scheduler",
            (
                Panel(
                    title="Pods that wait",
                    meaning="To be tried, after a failed write, for room, or held back by gates.",
                    queries=(Query("sum by (queue) (scheduler_pending_pods)", "{{queue}}"),),
                    is_stacked=True,
                ),
                Panel(
                    title="Attempts",
                    meaning="Decisions about pods per second, by result.",
                    queries=(
                        Query(
                            "sum by (result) (rate(scheduler_schedule_attempts_total[$__rate_interval]))",
                            "{{result}}",
                        ),
                    ),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="From pending to bound",
                    meaning="Over all attempts of a pod.",
                    queries=tuple(
                        Query(
                            f"histogram_quantile({share}, sum by (le)"
                            " (rate(scheduler_pod_scheduling_sli_duration_seconds_bucket[$__rate_interval])))",
                            f"{name}",
                        )
                        for share, name in ((0.5, "median"), (0.99, "99 %"))
                    ),
                    unit=Unit.SECONDS,
                ),
                Panel(
                    title="Writes",
                    meaning="To the API server per second, by result.",
                    queries=(
                        Query(
                            "sum by (what, result) (rate(dovetail_writes_total[$__rate_interval]))",
                            "{{what}} {{result}}",
                        ),
                    ),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="Evictions",
                    meaning="Per second, by the rule that allowed them.",
                    queries=(
                        Query(
                            "sum by (rule, result) (rate(dovetail_evictions_total[$__rate_interval]))",
                            "{{rule}} {{result}}",
                        ),
                    ),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="Leaders",
                    meaning="Replicas that lead; there should be one.",
                    queries=(Query("sum by (job) (dovetail_leader)", "{{job}}"),),
                ),
            ),
        ),
        Row(
            "Upgrades of the GPU stack",
            (
                Panel(
                    title="Nodes of upgrades",
                    meaning="By phase, of all upgrades whose objects exist.",
                    queries=(Query("sum by (phase) (dovetail_lifecycle_nodes) > 0", "{{phase}}"),),
                    is_stacked=True,
                ),
                Panel(
                    title="Time in the phase",
                    meaning="Of nodes under way, as a share of what the upgrade's rules allow.",
                    queries=(
                        Query(
                            "max by (upgrade, node, phase) (dovetail_lifecycle_node_phase_seconds)"
                            " / max by (upgrade, node, phase)"
                            " (dovetail_lifecycle_node_phase_limit_seconds)",
                            "{{node}} {{phase}}",
                        ),
                    ),
                    unit=Unit.RATIO,
                    warns_at=0.8,
                    alarms_at=1,
                ),
            ),
        ),
    ),
)

"""Cost: GPU-hours and money, of queues and namespaces, split into used, held without use, and not allocated.

One price per GPU-hour is typed in. `dovetail cost` has prices by product and pool, and shares of GPUs; this page is for
looking, not for invoices.
"""

from __future__ import annotations

from typing import Final

from dovetail.monitoring.dashboards.panel import (
    Choice,
    Dashboard,
    Entry,
    Form,
    Panel,
    Query,
    Row,
    Unit,
)
from dovetail.monitoring.rules import device_alerts

# Queues above others count what those hold too: only those without a parent add up to the whole.
TOP_QUEUES: Final = 'dovetail_queue_charged{resource="gpu"} * on (queue) group_left () dovetail_queue_info{parent=""}'
HELD: Final = (
    'max by (namespace, pod, UUID) (accelerator_active_ratio{namespace=~"$namespace", pod!=""})'
)
IDLE: Final = f"({HELD} < {device_alerts.IDLE_RATIO})"
PUBLISHED: Final = "sum(node:dovetail_gpus:count)"
ALLOCATED: Final = "(sum(node:dovetail_gpus_allocated:count) or vector(0))"
HOURS: Final = "$__range_s / 3600"


def _mean(expr: str) -> str:
    """The mean over the time that is shown."""
    return f"avg_over_time(({expr})[$__range:$__interval])"


def _figure(title: str, meaning: str, expr: str, unit: Unit) -> Panel:
    return Panel(
        title=title,
        meaning=meaning,
        queries=(Query(expr),),
        form=Form.FIGURE,
        unit=unit,
        width=4,
        height=4,
    )


DASHBOARD: Final = Dashboard(
    name="cost",
    title="Dovetail / Cost",
    meaning="GPU-hours and money over the time that is shown: used, held without use, not allocated.",
    since="now-7d",
    choices=(
        Choice(
            name="namespace",
            label="Namespace",
            query='label_values(accelerator_active_ratio{pod!=""}, namespace)',
        ),
    ),
    entries=(Entry(name="price", label="USD per GPU-hour", default="2.5"),),
    rows=(
        Row(
            "Over the time that is shown",
            (
                _figure(
                    "All GPUs",
                    "Every GPU that was published, at the price above.",
                    f"{_mean(PUBLISHED)} * {HOURS} * $price",
                    Unit.MONEY,
                ),
                _figure(
                    "Allocated",
                    "GPUs that a claim held, as a whole or in part.",
                    f"{_mean(ALLOCATED)} * {HOURS} * $price",
                    Unit.MONEY,
                ),
                _figure(
                    "Not allocated",
                    "GPUs that no claim held.",
                    f"{_mean(f'{PUBLISHED} - {ALLOCATED}')} * {HOURS} * $price",
                    Unit.MONEY,
                ),
                _figure(
                    "Held without use",
                    "GPUs that pods of the chosen namespaces held while they did nothing.",
                    f"{_mean(f'count({IDLE}) or vector(0)')} * {HOURS} * $price",
                    Unit.MONEY,
                ),
                _figure(
                    "GPU-hours",
                    "That claims held.",
                    f"{_mean(ALLOCATED)} * {HOURS}",
                    Unit.HOURS,
                ),
                _figure(
                    "Energy",
                    "Of all GPUs, without cooling.",
                    "sum(increase(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[$__range])) / 3.6e9",
                    Unit.KILOWATT_HOURS,
                ),
            ),
        ),
        Row(
            "Who",
            (
                Panel(
                    title="By queue",
                    meaning="What the work of each queue held; a queue includes those below it.",
                    queries=(
                        Query(
                            "sum by (queue) (avg_over_time(dovetail_queue_charged"
                            f'{{resource="gpu"}}[$__range])) * {HOURS} * $price',
                            "{{queue}}",
                        ),
                    ),
                    form=Form.BARS,
                    unit=Unit.MONEY,
                ),
                Panel(
                    title="Held without use, by namespace",
                    meaning="GPUs that did nothing while pods held them.",
                    queries=(
                        Query(
                            f"{_mean(f'count by (namespace) ({IDLE})')} * {HOURS} * $price",
                            "{{namespace}}",
                        ),
                    ),
                    form=Form.BARS,
                    unit=Unit.MONEY,
                ),
            ),
        ),
        Row(
            "Per hour",
            (
                Panel(
                    title="Queues",
                    meaning="What the queues without a parent held costs per hour.",
                    queries=(Query(f"sum by (queue) ({TOP_QUEUES}) * $price", "{{queue}}"),),
                    unit=Unit.MONEY,
                    is_stacked=True,
                ),
                Panel(
                    title="Used, held without use, not allocated",
                    meaning="What all GPUs cost per hour.",
                    queries=(
                        Query(
                            f"(count({HELD} >= {device_alerts.IDLE_RATIO}) or vector(0)) * $price",
                            "used",
                        ),
                        Query(f"(count({IDLE}) or vector(0)) * $price", "held without use"),
                        Query(f"({PUBLISHED} - {ALLOCATED}) * $price", "not allocated"),
                    ),
                    unit=Unit.MONEY,
                    is_stacked=True,
                ),
                Panel(
                    title="GPUs that pods wait for",
                    meaning="Asked for and not held: time that people lose, in GPUs.",
                    queries=(
                        Query(
                            'sum by (queue) (dovetail_queue_requested{resource="gpu"}'
                            " - on (queue, resource) dovetail_queue_charged)",
                            "{{queue}}",
                        ),
                    ),
                ),
                Panel(
                    title="Power",
                    meaning="Drawn by all GPUs.",
                    queries=(
                        Query(
                            "sum by (modelName) (accelerator_power_usage_watts)", "{{modelName}}"
                        ),
                    ),
                    unit=Unit.WATTS,
                    is_stacked=True,
                ),
            ),
        ),
    ),
)

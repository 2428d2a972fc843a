"""Queues: what each one holds, is due and asks for, and the gangs that wait in them."""

from __future__ import annotations

from typing import Final

from dovetail.monitoring.dashboards.panel import Choice, Dashboard, Form, Panel, Query, Row, Unit


def _figure_of(figure: str) -> str:
    return f'dovetail_queue_{figure}{{queue=~"$queue", resource="gpu"}}'


DASHBOARD: Final = Dashboard(
    name="queues",
    title="Dovetail / Queues",
    meaning="What queues hold, what they are due, what waits in them.",
    choices=(
        Choice(name="queue", label="Queue", query="label_values(dovetail_queue_info, queue)"),
    ),
    rows=(
        Row(
            "Shares",
            (
                Panel(
                    title="GPUs held",
                    meaning="By the work of each queue, with the queues below it.",
                    queries=(Query(f"sum by (queue) ({_figure_of('charged')})", "{{queue}}"),),
                ),
                Panel(
                    title="GPUs due",
                    meaning="The fair share of each queue.",
                    queries=(Query(f"sum by (queue) ({_figure_of('fair_share')})", "{{queue}}"),),
                ),
                Panel(
                    title="Held of what is due",
                    meaning="Below 1 the queue has less than its share; above it, it borrows.",
                    queries=(
                        Query(
                            f"sum by (queue) ({_figure_of('charged')})"
                            f" / (sum by (queue) ({_figure_of('fair_share')}) > 0)",
                            "{{queue}}",
                        ),
                    ),
                    unit=Unit.RATIO,
                ),
                Panel(
                    title="GPUs asked for",
                    meaning="Held and waiting together.",
                    queries=(Query(f"sum by (queue) ({_figure_of('requested')})", "{{queue}}"),),
                ),
                Panel(
                    title="Quota in use",
                    meaning="What is held of what is guaranteed; above 1 the queue borrows.",
                    queries=(
                        Query(
                            f"sum by (queue) ({_figure_of('charged')})"
                            f" / (sum by (queue) ({_figure_of('quota')}) > 0)",
                            "{{queue}}",
                        ),
                    ),
                    form=Form.BARS,
                    unit=Unit.RATIO,
                    top=1,
                    warns_at=0.9,
                ),
                Panel(
                    title="May not be evicted",
                    meaning="GPUs held by work that no other queue can reclaim.",
                    queries=(
                        Query(
                            f"sum by (queue) ({_figure_of('charged_non_preemptible')})", "{{queue}}"
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "Work",
            (
                Panel(
                    title="Pods that wait",
                    meaning="In each queue.",
                    queries=(Query('dovetail_queue_pending_pods{queue=~"$queue"}', "{{queue}}"),),
                    is_stacked=True,
                ),
                Panel(
                    title="Pods that run",
                    meaning="In each queue.",
                    queries=(Query('dovetail_queue_running_pods{queue=~"$queue"}', "{{queue}}"),),
                    is_stacked=True,
                ),
                Panel(
                    title="Gangs that wait",
                    meaning="How long, in seconds, gangs with pending pods have been there.",
                    queries=(
                        Query(
                            "(time() - dovetail_gang_created_timestamp_seconds)"
                            ' and on (namespace, gang) (dovetail_gang_pods{state="pending"} > 0)'
                        ),
                    ),
                    form=Form.TABLE,
                    unit=Unit.SECONDS,
                ),
                Panel(
                    title="Gangs in part",
                    meaning="Members that run, of gangs that need more of them.",
                    queries=(
                        Query(
                            'dovetail_gang_pods{state="running"} > 0 and on (namespace, gang)'
                            ' (dovetail_gang_pods{state="running"} < on (namespace, gang) dovetail_gang_min_pods)'
                        ),
                    ),
                    form=Form.TABLE,
                ),
                Panel(
                    title="Queues that are not ready",
                    meaning="Their pods do not start.",
                    queries=(
                        Query('count(dovetail_queue_ready{queue=~"$queue"} == 0) or vector(0)'),
                    ),
                    form=Form.FIGURE,
                    width=6,
                    warns_at=1,
                ),
            ),
        ),
    ),
)

"""Workloads: what the GPUs of a namespace's pods do, and which claims hold them."""

from __future__ import annotations

from typing import Final

from dovetail.monitoring.dashboards.panel import Choice, Dashboard, Form, Panel, Query, Row, Unit

MINE: Final = '{namespace=~"$namespace", pod=~"$pod", pod!=""}'


def _per_gpu(metric: str) -> Query:
    return Query(
        f"max by (namespace, pod, UUID) ({metric}{MINE})", "{{namespace}}/{{pod}} {{UUID}}"
    )


DASHBOARD: Final = Dashboard(
    name="workload",
    title="Dovetail / Workload",
    meaning="What the GPUs that pods hold are doing, for the owners of the work.",
    choices=(
        Choice(
            name="namespace",
            label="Namespace",
            query='label_values(accelerator_active_ratio{pod!=""}, namespace)',
        ),
        Choice(
            name="pod",
            label="Pod",
            query='label_values(accelerator_active_ratio{namespace=~"$namespace", pod!=""}, pod)',
        ),
    ),
    rows=(
        Row(
            "Use",
            (
                Panel(
                    title="Busy",
                    meaning="Share of time in which the engine worked, per GPU or slice.",
                    queries=(_per_gpu("accelerator_active_ratio"),),
                    unit=Unit.RATIO,
                    top=1,
                ),
                Panel(
                    title="Multiprocessors at work",
                    meaning="Mean share of those with work; far below Busy: the GPU is larger than the work.",
                    queries=(_per_gpu("accelerator_sm_active_ratio"),),
                    unit=Unit.RATIO,
                    top=1,
                ),
                Panel(
                    title="Memory in use",
                    meaning="Its highest value is what a smaller GPU or slice must have.",
                    queries=(_per_gpu("accelerator_memory_used_bytes"),),
                    unit=Unit.BYTES,
                ),
                Panel(
                    title="Memory in use, of all",
                    meaning="Of what the pod may use.",
                    queries=(
                        Query(
                            f"max by (namespace, pod, UUID) (accelerator_memory_used_bytes{MINE})"
                            f" / max by (namespace, pod, UUID) (accelerator_memory_total_bytes{MINE})",
                            "{{namespace}}/{{pod}} {{UUID}}",
                        ),
                    ),
                    unit=Unit.RATIO,
                    top=1,
                    warns_at=0.95,
                ),
                Panel(
                    title="Power",
                    meaning="Drawn by the GPUs that the pods hold alone.",
                    queries=(_per_gpu("accelerator_power_usage_watts"),),
                    unit=Unit.WATTS,
                ),
                Panel(
                    title="Clock",
                    meaning="Of the multiprocessors; a fall under load means heat or a power limit.",
                    queries=(_per_gpu("accelerator_sm_clock_hertz"),),
                    unit=Unit.HERTZ,
                ),
            ),
        ),
        Row(
            "Claims and gangs",
            (
                Panel(
                    title="Devices of claims",
                    meaning="What the claims of the namespaces hold.",
                    queries=(
                        Query('kube_resourceclaim_allocation_device_info{namespace=~"$namespace"}'),
                    ),
                    form=Form.TABLE,
                ),
                Panel(
                    title="Claims that no pod uses",
                    meaning="Allocated, and reserved by no pod.",
                    queries=(Query('dovetail_claim_unused{namespace=~"$namespace"} > 0'),),
                    form=Form.TABLE,
                ),
                Panel(
                    title="Pods of gangs",
                    meaning="Running and pending members.",
                    queries=(
                        Query(
                            'sum by (namespace, gang, state) (dovetail_gang_pods{namespace=~"$namespace"})',
                            "{{namespace}}/{{gang}} {{state}}",
                        ),
                    ),
                ),
                Panel(
                    title="Errors that programs cause",
                    meaning="XIDs of the last fifteen minutes on GPUs of these pods.",
                    queries=(Query(f"accelerator_recent_xid{MINE}"),),
                    form=Form.TABLE,
                ),
            ),
        ),
    ),
)

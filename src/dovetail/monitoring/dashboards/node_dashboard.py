"""Nodes: the GPUs of a node one by one, and the node agent that serves them."""

from __future__ import annotations

from typing import Final

from dovetail.monitoring.dashboards.panel import Choice, Dashboard, Form, Panel, Query, Row, Unit
from dovetail.monitoring.rules import device_alerts

HERE: Final = '{node=~"$node"}'


def _per_gpu(metric: str) -> Query:
    return Query(f"max by (node, gpu, GPU_I_ID) ({metric}{HERE})", "{{node}} {{gpu}} {{GPU_I_ID}}")


DASHBOARD: Final = Dashboard(
    name="node",
    title="Dovetail / Node",
    meaning="The GPUs of nodes one by one, their faults, and the node agent.",
    choices=(Choice(name="node", label="Node", query="label_values(dovetail_device_info, node)"),),
    rows=(
        Row(
            "GPUs",
            (
                Panel(
                    title="Published",
                    meaning="GPUs in the ResourceSlices of the nodes.",
                    queries=(Query(f"sum(node:dovetail_gpus:count{HERE})"),),
                    form=Form.FIGURE,
                    width=6,
                    height=4,
                ),
                Panel(
                    title="Allocated",
                    meaning="GPUs that a claim holds, as a whole or in part.",
                    queries=(Query(f"sum(node:dovetail_gpus_allocated:count{HERE}) or vector(0)"),),
                    form=Form.FIGURE,
                    width=6,
                    height=4,
                ),
                Panel(
                    title="Devices",
                    meaning="In the ResourceSlices, with the partitions that GPUs could have.",
                    queries=(Query('sum(kube_resourceslice_devices_total{node_name=~"$node"})'),),
                    form=Form.FIGURE,
                    width=6,
                    height=4,
                ),
                Panel(
                    title="Taints",
                    meaning="On devices of the nodes.",
                    queries=(
                        Query('count(dovetail_device_unhealthy{pool=~"$node"}) or vector(0)'),
                    ),
                    form=Form.FIGURE,
                    width=6,
                    height=4,
                    warns_at=1,
                ),
                Panel(
                    title="Busy",
                    meaning="Share of time in which the engine worked, per GPU or slice.",
                    queries=(_per_gpu("accelerator_active_ratio"),),
                    unit=Unit.RATIO,
                    top=1,
                ),
                Panel(
                    title="Memory in use",
                    meaning="Per GPU or slice.",
                    queries=(
                        Query(
                            f"sum by (node, gpu, GPU_I_ID) (accelerator_memory_used_bytes{HERE})",
                            "{{node}} {{gpu}} {{GPU_I_ID}}",
                        ),
                    ),
                    unit=Unit.BYTES,
                ),
                Panel(
                    title="Temperature",
                    meaning="Boards slow down between 87 and 95 degrees.",
                    queries=(_per_gpu("accelerator_temperature_celsius"),),
                    unit=Unit.CELSIUS,
                    warns_at=device_alerts.HOT_CELSIUS,
                ),
                Panel(
                    title="Power",
                    meaning="Per GPU.",
                    queries=(_per_gpu("accelerator_power_usage_watts"),),
                    unit=Unit.WATTS,
                ),
                Panel(
                    title="Clock",
                    meaning="Of the multiprocessors.",
                    queries=(_per_gpu("accelerator_sm_clock_hertz"),),
                    unit=Unit.HERTZ,
                ),
                Panel(
                    title="Holders",
                    meaning="Which pod holds which GPU or slice, and how busy it is.",
                    queries=(
                        Query(
                            "max by (node, gpu, GPU_I_PROFILE, namespace, pod)"
                            ' (accelerator_active_ratio{node=~"$node", pod!=""})'
                        ),
                    ),
                    form=Form.TABLE,
                    unit=Unit.RATIO,
                ),
            ),
        ),
        Row(
            "Faults",
            (
                Panel(
                    title="Errors of the driver",
                    meaning="The last XID of each GPU that had one since its exporter started.",
                    queries=(Query(f"accelerator_last_xid{HERE}"),),
                    form=Form.TABLE,
                ),
                Panel(
                    title="Taints of devices",
                    meaning="What keeps new work off a device, or only warns of it.",
                    queries=(Query('dovetail_device_unhealthy{pool=~"$node"}'),),
                    form=Form.TABLE,
                ),
            ),
        ),
        Row(
            "Node agents",
            (
                Panel(
                    title="Claims",
                    meaning="Prepared and unprepared for kubelets, per second, by result; all agents.",
                    queries=(
                        Query(
                            "sum by (operation, result)"
                            " (rate(dovetail_node_claims_total[$__rate_interval]))",
                            "{{operation}} {{result}}",
                        ),
                    ),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="Time to prepare",
                    meaning="From the kubelet's request to the response; it gives up after 45 seconds.",
                    queries=(
                        Query(
                            "histogram_quantile(0.95, sum by (le, operation)"
                            " (rate(dovetail_node_claim_seconds_bucket[$__rate_interval])))",
                            "{{operation}} 95 %",
                        ),
                    ),
                    unit=Unit.SECONDS,
                ),
                Panel(
                    title="GPUs that do not answer",
                    meaning="In the last reading of each agent.",
                    queries=(
                        Query(
                            'sum by (instance) (dovetail_node_gpus{state="unread"})', "{{instance}}"
                        ),
                    ),
                    warns_at=1,
                ),
                Panel(
                    title="Readings",
                    meaning="Of all GPUs of a node, per second, by result.",
                    queries=(
                        Query(
                            "sum by (result)"
                            " (rate(dovetail_node_device_readings_total[$__rate_interval]))",
                            "{{result}}",
                        ),
                    ),
                    unit=Unit.PER_SECOND,
                ),
            ),
        ),
    ),
)

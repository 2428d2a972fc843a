"""Puts together what exports the use of a node's GPUs: readings from the driver, claims, pods.

Given options, GPUs and an API. Loads nothing of it unless metrics are served. Starts nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from dovetail.boot import clocks
from dovetail.boot.node import node_agent, node_gpus
from dovetail.kube import client
from dovetail.node.claims import checkpoint
from dovetail.ports import meter


def device_metrics(
    options: node_agent.Options,
    gpus: node_gpus.NodeGpus,
    clock: clocks.SystemClock,
    *,
    api: client.KubeApi,
    claims: Callable[[], Sequence[checkpoint.Claim]],
    meter_: meter.Meter,
) -> Callable[[], Awaitable[str]] | None:
    """The text of the devices' metrics, read when it is asked for; None where none is exported."""
    if not options.metrics_address or not options.device_metrics:
        return None
    from dovetail.node.metering import claim_consumers, device_exporter
    from dovetail.node.nvml import read_use

    sources = device_exporter.Sources(
        inventory=gpus.inventory,
        read=read_use.NvmlUse(gpus.session).read,
        claims=claims,
        consumers=claim_consumers.ClaimConsumers(api, clock),
        last_xids=gpus.last_xids,
    )
    exporter = device_exporter.DeviceExporter(
        sources,
        node_name=options.node_name,
        fresh_seconds=options.device_metrics,
        clock=clock,
        meter_=meter_,
        proc_root=options.proc_root,
    )
    return exporter.text

"""Runs the node agent in its mode, with its connection to the cluster, health endpoint and metrics.

Given the options of the command line. What a mode does not need stays unimported: one such process runs on every node.
Never serves by itself: `boot/node/node_agent.py` does.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec

from dovetail.boot import clocks
from dovetail.boot.node import node_agent
from dovetail.kube import client
from dovetail.kube.auth import client_config
from dovetail.kube.http import transport
from dovetail.ports import meter


async def serve(options: node_agent.Options) -> None:
    """Runs the agent until it is stopped by a signal."""
    connection = client_config.load(options.kubeconfig, context=options.context)
    carrier = transport.Transport(connection, concurrency=4, user_agent="dovetail-node-agent")
    meter_, text = _metrics(options)
    async with carrier, open_work(options, carrier, meter_) as work:
        http = _http_server(options, work, _all_metrics(text, work), client.KubeApi(carrier))
        await node_agent.run(work, http=http, meter_=meter_)


def open_work(
    options: node_agent.Options, carrier: transport.Transport, meter_: meter.Meter
) -> AbstractAsyncContextManager[node_agent.Work]:
    """The work of the mode."""
    # Only the chosen mode is loaded.
    if options.mode == "device-plugin":
        from dovetail.boot.node import node_device_plugin

        return node_device_plugin.open_work(options, carrier, meter_)
    from dovetail.boot.node import node_dra

    return node_dra.open_work(options, carrier, meter_)


def _all_metrics(text: Callable[[], bytes], work: node_agent.Work) -> Any:
    """The agent's own metrics and those of the devices, which are read when they are asked for."""
    devices = work.device_metrics
    if devices is None:
        return text

    async def both() -> bytes:
        # Devices first: how the reading went is among the agent's own.
        measured = await devices()
        return text() + measured.encode()

    return both


def _metrics(options: node_agent.Options) -> tuple[meter.Meter, Any]:
    """A meter and its text; none of it is loaded unless metrics are served."""
    if not options.metrics_address:
        return meter.NoMeter(), bytes
    from dovetail.telemetry import metrics, node_metrics

    served = metrics.Metrics(node_metrics.DECLARED)
    return served, served.text


def _http_server(
    options: node_agent.Options, work: node_agent.Work, text: Any, api: client.KubeApi
) -> AbstractAsyncContextManager[object] | None:
    if not options.metrics_address:
        return None
    from dovetail.boot import http_server
    from dovetail.kube.auth import access_reviews

    host, _, port = options.metrics_address.rpartition(":")
    return http_server.Server(
        metrics=text,
        ready=work.ready,
        alive=lambda: True,
        configuration={name: str(value) for name, value in msgspec.structs.asdict(options).items()},
        authorise=access_reviews.Reviews(api, clocks.SystemClock()).authorise,
        address=host.strip("[]"),
        port=int(port),
        option="--metrics",
    )

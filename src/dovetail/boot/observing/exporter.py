"""The exporter as one process: watches claims, slices, classes, pods and queues, and serves their metrics.

Given a connection and an address. Reads only, by watches of its own, so that the scheduler's loop has no part in it.
Kinds that the cluster does not serve are left out, and join once they are installed. Never writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from typing import Final

from dovetail.boot import clocks, http_server
from dovetail.kube import client
from dovetail.kube.auth import access_reviews, client_config
from dovetail.kube.http import transport
from dovetail.kube.watching import wait_for_kind, watch
from dovetail.kubetypes import registry
from dovetail.telemetry import object_metrics

LOG = logging.getLogger("dovetail.exporter")
OPTION: Final = "--listen"


async def run(
    connection: client_config.Connection, *, address: str, port: int, has_partitions: bool = False
) -> None:
    """Serves until SIGTERM or SIGINT."""
    clock = clocks.SystemClock()
    metrics = object_metrics.ObjectMetrics(has_partitions=has_partitions)
    over = transport.Transport(connection, concurrency=8, user_agent="dovetail-exporter")
    async with over:
        server = http_server.Server(
            metrics=metrics.text,
            ready=metrics.synced_kinds,
            alive=lambda: True,
            configuration={"partitions": has_partitions},
            authorise=access_reviews.Reviews(client.KubeApi(over), clock).authorise,
            address=address,
            port=port,
            option=OPTION,
        )
        async with server:
            LOG.info("exporter.serving", extra={"address": address, "port": server.port})
            watching = asyncio.gather(
                *(_follow(over, kind, metrics, clock) for kind in object_metrics.KINDS)
            )
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, watching.cancel)
            with contextlib.suppress(asyncio.CancelledError):
                await watching
    LOG.info("exporter.stopped")


async def _follow(
    over: transport.Transport,
    kind: registry.Kind,
    metrics: object_metrics.ObjectMetrics,
    clock: clocks.SystemClock,
) -> None:
    feed = metrics.feed(kind)
    if kind is registry.QUEUE:
        await wait_for_kind.follow(
            over, kind, feed, clock=clock, arrived=lambda: None, restored=feed.restored
        )
    await watch.follow(over, kind, feed, clock=clock, restored=feed.restored)

"""The exporter as one process: watches claims, slices, classes, pods, queues and promises, and serves their metrics.

Given a connection and an address. Reads only, by watches of its own, so that the scheduler's loop has no part in it.
Kinds that the cluster does not serve are left out, and join once they are installed. What the engine has to be asked
about is measured beside, and a scrape shows the last measurement. Never writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Coroutine
from typing import Any, Final

from dovetail.boot import clocks, http_server
from dovetail.boot.observing import fragmentation_watch
from dovetail.kube import client, discovery
from dovetail.kube.auth import access_reviews, client_config
from dovetail.kube.http import transport
from dovetail.kube.watching import wait_for_kind, watch
from dovetail.kubetypes import registry
from dovetail.live.gangs import owner_watch
from dovetail.model import exposition
from dovetail.telemetry import fragmentation_series, gang_counts, object_metrics

LOG = logging.getLogger("dovetail.exporter")
OPTION: Final = "--listen"
# What is watched: what has series, and what the engine needs to know which GPUs are of use.
KINDS: Final = tuple(dict.fromkeys((*object_metrics.KINDS, *fragmentation_watch.KINDS)))
LOOK_SECONDS: Final = 1.0


async def run(
    connection: client_config.Connection, *, address: str, port: int, has_partitions: bool = False
) -> None:
    """Serves until SIGTERM or SIGINT."""
    exporter = Exporter(connection, has_partitions=has_partitions)
    async with exporter.transport:
        server = http_server.Server(
            metrics=exporter.text,
            ready=exporter.metrics.synced_kinds,
            alive=lambda: True,
            configuration={"partitions": has_partitions},
            authorise=access_reviews.Reviews(
                client.KubeApi(exporter.transport), exporter.clock
            ).authorise,
            address=address,
            port=port,
            option=OPTION,
        )
        async with server:
            LOG.info("exporter.serving", extra={"address": address, "port": server.port})
            watching = asyncio.ensure_future(exporter.watch())
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, watching.cancel)
            with contextlib.suppress(asyncio.CancelledError):
                await watching
    LOG.info("exporter.stopped")


class Exporter:
    """The watches, and the texts that a scrape joins."""

    def __init__(
        self,
        connection: client_config.Connection,
        *,
        has_partitions: bool = False,
        pause_seconds: float = fragmentation_watch.PAUSE_SECONDS,
    ) -> None:
        self.clock = clocks.SystemClock()
        self.metrics = object_metrics.ObjectMetrics(has_partitions=has_partitions)
        self.transport = transport.Transport(
            connection, concurrency=8, user_agent="dovetail-exporter"
        )
        self._fragmentation = fragmentation_watch.FragmentationWatch(
            self.clock, pause_seconds=pause_seconds
        )
        self._measured = b""

    def text(self) -> bytes:
        """All metrics. Never asks the engine."""
        return self.metrics.text() + self._measured

    async def watch(self) -> None:
        """Watches until cancelled."""
        try:
            await asyncio.gather(
                *(self._follow(kind) for kind in KINDS), self._owners().run(), self._measure()
            )
        finally:
            self._fragmentation.close()

    def _follow(self, kind: registry.Kind) -> Coroutine[Any, Any, None]:
        feed = self._feed(kind)
        if kind in (registry.QUEUE, registry.INTENT):
            return wait_for_kind.follow(
                self.transport,
                kind,
                feed,
                clock=self.clock,
                arrived=lambda: None,
                restored=feed.restored,
            )
        return watch.follow(self.transport, kind, feed, clock=self.clock, restored=feed.restored)

    def _feed(self, kind: registry.Kind) -> _Feeds:
        shown = [self.metrics.feed(kind)] if kind in object_metrics.KINDS else []
        measured = [self._fragmentation.feed(kind)] if kind in fragmentation_watch.KINDS else []
        return _Feeds(*shown, *measured)

    def _owners(self) -> owner_watch.OwnerWatch:
        """Which pods form a gang, by the objects that own them, as the scheduler reads it."""
        return owner_watch.OwnerWatch(
            gang_counts.GangReceiver(self.metrics.gangs),
            self.clock,
            served=lambda: discovery.present(
                self.transport, (*registry.OWNERS, *registry.PARENTS), registry.OLDER
            ),
            follow=lambda kind, feed: watch.follow(self.transport, kind, feed, clock=self.clock),
            trouble=lambda kind, why: LOG.debug(
                "watch.interrupted", extra={"kind": kind, "why": why}
            ),
        )

    async def _measure(self) -> None:
        while True:
            await self.clock.sleep(LOOK_SECONDS)
            if not self._fragmentation.is_due or not self._fragmentation.is_listed:
                continue
            try:
                measured = await self._fragmentation.measure()
            except Exception as error:  # of any kind: the other metrics are served all the same
                LOG.warning("exporter.fragmentation.failed", extra={"why": str(error)})
                continue
            self._measured = b""
            if measured is not None:
                at = self.clock.now().timestamp()
                lines = fragmentation_series.series(measured.groups, at)
                self._measured = exposition.text(fragmentation_series.FAMILIES, lines).encode()


class _Feeds:
    """Passes the events of one watch on to several feeds."""

    def __init__(
        self, *feeds: object_metrics.ObjectFeed | fragmentation_watch.FragmentationFeed
    ) -> None:
        self._feeds = feeds

    def replaced(self, objects: list[Any], resource_version: str, /) -> None:
        for feed in self._feeds:
            feed.replaced(objects, resource_version)

    def changed(self, item: Any, /) -> None:
        for feed in self._feeds:
            feed.changed(item)

    def deleted(self, item: Any, /) -> None:
        for feed in self._feeds:
            feed.deleted(item)

    def broken(self, reason: str, /) -> None:
        for feed in self._feeds:
            feed.broken(reason)

    def restored(self) -> None:
        for feed in self._feeds:
            feed.restored()

    def unreadable(self, name: str, problem: str, /) -> None:
        for feed in self._feeds:
            feed.unreadable(name, problem)

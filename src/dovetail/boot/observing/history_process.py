"""Wires the recorder of history: watches the API server, keeps a World, writes what the recorder makes of it.

One process, or a thread of the embedded cluster. What was recorded is stored each second, with the time until which
everything was watched; a store that fails for a while is tried again with the same records, which is safe. With an
election, replicas share a database and one of them records. Never writes to the cluster, but for the Lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar

from dovetail.boot import clocks, first_answer, http_server
from dovetail.boot.observing import (
    fragmentation_watch,
    intent_feeds,
    price_file_watch,
    recording_tenure,
    watch_outages,
)
from dovetail.history import compaction, history_recorder, stores
from dovetail.kube import client
from dovetail.kube.auth import access_reviews, client_config
from dovetail.kube.http import transport
from dovetail.kube.watching import wait_for_kind, watch
from dovetail.kubetypes import registry
from dovetail.live.cycle import restarts
from dovetail.live.election import leader_election
from dovetail.live.informer import informer
from dovetail.model.accounting.records import GapSource, Millis
from dovetail.ports import clock as clock_port
from dovetail.ports import usage_source
from dovetail.telemetry import history_metrics, metrics
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.history")
QUEUES: Final = registry.QUEUE
INTENTS: Final = registry.INTENT

_T = TypeVar("_T")


class Election(NamedTuple):
    """The Lease by which replicas choose the one that records."""

    namespace: str
    name: str


class Settings(NamedTuple):
    """What is recorded where."""

    store: str
    election: Election | None = None
    limits: compaction.Limits = compaction.DEFAULT
    usage: usage_source.UsageSource | None = None
    prices: price_file_watch.PriceFileWatch | None = None
    unusable_seconds: float = fragmentation_watch.PAUSE_SECONDS  # between two measurements


class HistoryProcess:
    """The recorder as a process."""

    def __init__(
        self,
        connection: client_config.Connection,
        settings: Settings,
        *,
        clock: clock_port.Clock | None = None,
    ) -> None:
        """Every time that is recorded, and every pause, is the clock's: the system's, unless another is given."""
        self.settings = settings
        self.clock = clock or clocks.SystemClock()
        # Restarts and elections count under the scheduler's names, which a recorder must not show.
        self.metrics = metrics.Metrics()
        self.shown = metrics.Metrics(history_metrics.DECLARED)
        self.is_recording = False
        self._transport = transport.Transport(
            connection, concurrency=8, user_agent="dovetail-history"
        )
        self._tenures = restarts.Restarts(self.clock, self.metrics)
        self._suspects: set[str] = set()
        self._superseded: stores.SupersededError | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="history-store")

    async def run(self, listen: tuple[str, int] | None = None) -> None:
        """Records until a signal, or until cancelled; serves metrics meanwhile if an address is given."""
        try:
            async with self._transport, self._serving(listen):
                work = asyncio.create_task(self._work())
                _stop_on_signals(work)
                try:
                    await work
                except asyncio.CancelledError:
                    LOG.info("history.stopped")
                    if (task := asyncio.current_task()) is not None and task.cancelling():
                        raise
        finally:
            self._thread.shutdown()

    @contextlib.asynccontextmanager
    async def _serving(self, listen: tuple[str, int] | None) -> AsyncIterator[None]:
        """Health and metrics. A replica that stands by is ready, too: it has nothing to catch up with."""
        if listen is None:
            yield
            return
        address, port = listen
        server = http_server.Server(
            metrics=self.shown.text,
            ready=lambda: {"history": True},
            alive=lambda: True,
            configuration={},
            authorise=access_reviews.Reviews(client.KubeApi(self._transport), self.clock).authorise,
            address=address,
            port=port,
            option="--listen",
        )
        async with server:
            LOG.info("history.serving", extra={"address": address, "port": server.port})
            yield

    async def _work(self) -> None:
        # Before anything else: a place that cannot be used is the user's to mend.
        opened = await self._in_thread(lambda: stores.open_store(self.settings.store, create=True))
        await self._in_thread(opened.close)
        if self.settings.election is None:
            await self._tenures.run(lambda: self._tenure(None))
            if self._superseded is not None:
                raise self._superseded
            return
        election = leader_election.Election(
            client.KubeApi(self._transport),
            self.clock,
            namespace=self.settings.election.namespace,
            name=self.settings.election.name,
            meter_=self.metrics,
        )
        await election.run(lambda fence: self._tenures.run(lambda: self._tenure(fence)))

    async def _tenure(self, fence: leader_election.Fence | None) -> None:
        """From a fresh list to the loss of the lease, or an error."""
        location = self.settings.store
        store = await self._in_thread(lambda: stores.open_store(location, create=True))
        try:
            await recording_tenure.RecordingTenure(self, store, fence).run()
        except stores.SupersededError as error:
            if fence is not None:
                raise  # the lease says who records
            self._superseded = error  # starting again would only take the store back
        finally:
            self.is_recording = False
            self.shown.gauge(history_metrics.RECORDING, 0)
            await self._in_thread(store.close)

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # What a tenure uses

    @contextlib.asynccontextmanager
    async def watching(
        self,
        world: World,
        outages: watch_outages.Outages,
        listeners: Iterable[informer.Listener],
        intent_feed: intent_feeds.IntentFeed,
    ) -> AsyncIterator[informer.Informer]:
        """An informer of all that the recorder reads, while the block lasts; synced, with all Intents listed."""
        ours = await first_answer.first_answer(
            lambda: wait_for_kind.served(self._transport, (QUEUES, INTENTS)),
            clock=self.clock,
            log=LOG,
        )
        kinds = history_recorder.KINDS
        listed = (*kinds, *(kind for kind in ours if kind is not INTENTS))
        informer_ = informer.Informer(world, self.clock, listed, suspects=self._suspects)
        for listener in listeners:
            informer_.listen(listener)
        tasks = [asyncio.create_task(informer_.pump())]
        for kind in kinds:
            sink = watch_outages.Sink(informer_, kind, outages)
            following = watch.follow(
                self._transport,
                kind,
                sink,
                clock=self.clock,
                restored=functools.partial(outages.ended, kind.name),
            )
            tasks.append(asyncio.create_task(following))
        queue_feed = informer.Feed(informer_, QUEUES, trouble=watch_outages.log_trouble)
        following = wait_for_kind.follow(
            self._transport,
            QUEUES,
            queue_feed,
            clock=self.clock,
            arrived=functools.partial(informer_.add_kind, QUEUES),
        )
        tasks.append(asyncio.create_task(following))
        following = wait_for_kind.follow(
            self._transport, INTENTS, intent_feed, clock=self.clock, arrived=lambda: None
        )
        tasks.append(asyncio.create_task(following))
        for task in tasks:
            task.add_done_callback(self._tenures.task_ended)
        try:
            await informer_.synced.wait()
            if INTENTS in ours:
                await intent_feed.wait_listed()
            yield informer_
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def count_gap(self, source: GapSource, start: Millis, end: Millis | None) -> None:
        """Counts a gap that was recorded."""
        self.shown.count(history_metrics.GAPS, source=source.value)
        seconds = 0.0 if end is None else (end - start) / 1000
        self.shown.count(history_metrics.GAP_SECONDS, seconds, source=source.value)

    def in_thread(self, work: Callable[[], _T]) -> Awaitable[_T]:
        """Runs work of the store in its own thread."""
        return self._in_thread(work)


def _stop_on_signals(work: asyncio.Task[None]) -> None:
    if threading.current_thread() is not threading.main_thread():
        return  # signals arrive in the main thread, whose owner cancels us
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, work.cancel)

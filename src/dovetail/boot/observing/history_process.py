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
from typing import Any, Final, NamedTuple, TypeVar

from dovetail import errors
from dovetail.boot import clocks, first_answer, http_server
from dovetail.boot.observing import (
    budget_figures,
    fragmentation_watch,
    intent_feeds,
    price_file_watch,
    watch_outages,
)
from dovetail.history import backfill, compaction, history_recorder, stores
from dovetail.kube import client
from dovetail.kube.auth import access_reviews, client_config
from dovetail.kube.http import transport
from dovetail.kube.watching import wait_for_kind, watch
from dovetail.kubetypes import registry
from dovetail.kubetypes.custom import intents
from dovetail.live.cycle import restarts
from dovetail.live.election import leader_election
from dovetail.live.informer import informer
from dovetail.model.accounting.records import GapSource, Millis, Records
from dovetail.ports import usage_source
from dovetail.telemetry import history_metrics, metrics
from dovetail.world import events
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.history")
FLUSH_SECONDS: Final = 1.0
CONFIRM_SECONDS: Final = 10.0  # how often the watched time is stored when nothing else is
COMPACT_SECONDS: Final = 600.0
USAGE_SECONDS: Final = 60.0
USAGE_LAG: Final = 120_000  # measurements are complete after this many milliseconds
MAX_PENDING: Final = 1_000_000  # records that wait for the store
PRICE_SECONDS: Final = 10.0
BUDGET_SECONDS: Final = 600.0
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

    def __init__(self, connection: client_config.Connection, settings: Settings) -> None:
        self.settings = settings
        self.clock = clocks.SystemClock()
        self.metrics = (
            metrics.Metrics()
        )  # of restarts and elections, which are the scheduler's names
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
            await _Tenure(self, store, fence).run()
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


class _Tenure:
    """One recorder on one store: what waits to be stored, and until when everything is known."""

    def __init__(
        self, process: HistoryProcess, store: stores.Store, fence: leader_election.Fence | None
    ) -> None:
        self._process = process
        self._store = store
        self._fence = fence
        self._clock = process.clock
        self._world = World()
        self._recorder = history_recorder.Recorder(self._world)
        self._intents = intent_feeds.IntentFeed(self._observe_intent, self._observe_intents)
        self._fragmentation = fragmentation_watch.FragmentationWatch(
            process.clock, pause_seconds=process.settings.unusable_seconds
        )
        self._measuring: asyncio.Task[None] | None = None
        self._outages = watch_outages.Outages(self._now)
        self._is_resumed = False
        self._pending: list[Records] = []
        self._latest = 0  # no time is earlier than one before it, whatever the clock does
        self._confirmed_at = 0.0
        self._compacted_at = self._clock.monotonic()
        self._measured_at = 0.0
        self._measured_until: Millis = 0
        self._priced_at = 0.0
        self._forecast_at = -BUDGET_SECONDS

    async def run(self) -> None:
        in_thread = self._process.in_thread
        number = await in_thread(self._store.take_over)
        opened = await in_thread(self._store.open_records)
        watched_until = await in_thread(self._store.watched_until)
        listeners = (self._observe, self._fragmentation.observe)
        async with self._process.watching(self._world, self._outages, listeners, self._intents):
            self._latest = max(self._latest, watched_until or 0)
            self._recorder.prime_intents(self._intents.listed())
            records = self._recorder.resume(opened, watched_until=watched_until, now=self._now())
            self._pending.append(records)
            self._is_resumed = True
            self._note_prices()
            try:
                await self._record(number)
            except asyncio.CancelledError:
                self._confirmed_at = 0.0
                await self._flush(number)  # stopped on purpose: nothing that was seen is lost
                raise
            finally:
                await self._end_measuring()

    async def _end_measuring(self) -> None:
        self._fragmentation.close()
        if self._measuring is not None:
            self._measuring.cancel()
            await asyncio.gather(self._measuring, return_exceptions=True)

    async def _record(self, number: int) -> None:
        while True:
            await self._flush(number)
            if not self._process.is_recording:
                self._process.is_recording = True
                self._process.shown.gauge(history_metrics.RECORDING, 1)
                LOG.info("history.recording", extra={"store": self._store.place})
            self._refresh_prices()
            self._measure_unusable()
            await self._keep_small()
            await self._forecast_budgets()
            await self._measure()
            await self._clock.sleep(FLUSH_SECONDS)

    def _observe(self, kind: registry.Kind, event: events.Event, before: Any) -> None:
        if not self._is_resumed:
            self._recorder.prime(event)
            return
        self._put(self._recorder.observe(event, times=self._times()))

    def _observe_intent(self, intent: intents.Intent, is_there: bool) -> None:
        if self._is_resumed:
            times = self._times()
            self._put(self._recorder.observe_intent(intent, is_there=is_there, times=times))

    def _observe_intents(self, listed: list[intents.Intent]) -> None:
        if self._is_resumed:
            self._put(self._recorder.observe_intents(listed, times=self._times()))

    def _put(self, records: Records) -> None:
        if records != Records():
            self._pending.append(records)

    def _refresh_prices(self) -> None:
        prices = self._process.settings.prices
        if prices is None or self._clock.monotonic() - self._priced_at < PRICE_SECONDS:
            return
        self._priced_at = self._clock.monotonic()
        if prices.refresh():
            self._note_prices()

    def _note_prices(self) -> None:
        prices = self._process.settings.prices
        document = None if prices is None else prices.document
        self._put(self._recorder.note_prices(document, times=self._times()))

    def _measure_unusable(self) -> None:
        """Begins a measurement if one is due. It runs beside the recording."""
        is_running = self._measuring is not None and not self._measuring.done()
        if self._fragmentation.is_due and not is_running:
            self._measuring = asyncio.create_task(self._note_unusable())

    async def _note_unusable(self) -> None:
        try:
            measured = await self._fragmentation.measure()
        except Exception as error:  # of any kind: recording goes on without this figure
            LOG.warning("history.unusable.failed: measured again later", extra={"why": str(error)})
            return
        if self._outages.since is None:  # else what is open may be long over
            fragmented = measured.micro_gpu_by_node if measured is not None else {}
            self._put(self._recorder.note_unusable(fragmented, times=self._times()))

    def _times(self) -> history_recorder.Times:
        now = self._now()
        since = self._outages.since
        return history_recorder.Times(now if since is None else min(since, now), now)

    def _now(self) -> Millis:
        self._latest = max(self._latest, int(self._clock.now().timestamp() * 1000))
        return self._latest

    async def _flush(self, number: int) -> None:
        """Stores what is pending. It stays pending if that fails: storing it twice changes nothing."""
        for outage in self._outages.take():
            self._pending.append(self._recorder.note_gap(outage, "the API server was not watched"))
        is_due = self._clock.monotonic() - self._confirmed_at >= CONFIRM_SECONDS
        if not self._pending and not is_due:
            return
        batches = len(self._pending)
        batch = joined(self._pending[:batches])
        watched_until = self._times().known_until
        if self._fence is not None:
            self._fence.check()
        try:
            await self._process.in_thread(
                lambda: self._store.append(batch, watched_until=watched_until, recorder=number)
            )
        except stores.SupersededError:
            raise
        except errors.StateError as error:
            if sum(map(_count, self._pending)) > MAX_PENDING:
                raise
            LOG.warning("history.store.failed: tried again", extra={"why": str(error)})
            self._process.shown.count(history_metrics.STORE_ERRORS)
            await self._reopen()
            return
        del self._pending[:batches]
        self._confirmed_at = self._clock.monotonic()
        self._report(batch, watched_until)

    def _report(self, stored: Records, watched_until: Millis) -> None:
        shown = self._process.shown
        shown.gauge(history_metrics.WATCHED_UNTIL, watched_until / 1000)
        shown.gauge(history_metrics.PENDING, sum(map(_count, self._pending)))
        for gap in stored.gaps:
            self._process.count_gap(gap.source, gap.start, gap.end)

    async def _reopen(self) -> None:
        """A connection that was lost is made again."""
        location = self._process.settings.store
        with contextlib.suppress(errors.DovetailError):
            store = await self._process.in_thread(lambda: stores.open_store(location, create=True))
            await self._process.in_thread(self._store.close)
            self._store = store

    async def _keep_small(self) -> None:
        if self._clock.monotonic() - self._compacted_at < COMPACT_SECONDS:
            return
        self._compacted_at = self._clock.monotonic()
        now, limits = self._now(), self._process.settings.limits
        try:
            await self._process.in_thread(lambda: self._store.compact(now, limits))
        except errors.StateError as error:
            LOG.warning("history.compaction.failed", extra={"why": str(error)})

    async def _forecast_budgets(self) -> None:
        """Shows how budgets stand, by a connection of its own: reading a month takes a while."""
        is_due = self._clock.monotonic() - self._forecast_at >= BUDGET_SECONDS
        prices = self._process.settings.prices
        if not is_due or prices is None or not prices.prices.budgets:
            return
        self._forecast_at = self._clock.monotonic()
        location, now = self._process.settings.store, self._now()
        try:
            states = await asyncio.to_thread(budget_figures.states, location, now)
        except errors.DovetailError as error:
            LOG.warning("history.budgets.failed", extra={"why": str(error)})
            return
        budget_figures.report(states, self._process.shown)

    async def _measure(self) -> None:
        """Fetches the measurements since the last ones. A source that fails is asked for the same time later."""
        source = self._process.settings.usage
        if source is None or self._clock.monotonic() - self._measured_at < USAGE_SECONDS:
            return
        self._measured_at = self._clock.monotonic()
        end = self._now() - USAGE_LAG
        try:
            summary = await self._process.in_thread(self._store.summary)
            start = max(_measured_until(summary) or 0, self._measured_until) or summary.first
            if start is None or start >= end:
                return
            progress = await backfill.backfill(
                self._store, source, start, end, in_thread=self._process.in_thread
            )
            self._measured_until = progress.done_until
            for begun, ended in progress.silences:
                self._process.count_gap(GapSource.METRICS, begun, ended)
        except Exception as error:  # of any kind: recording goes on without measurements
            LOG.warning("history.usage.failed: asked again later", extra={"why": str(error)})


def _measured_until(summary: stores.Summary) -> Millis | None:
    """Until when the source was asked: it had samples, or had none of any GPU."""
    silent = [
        gap.end for gap in summary.gaps if gap.source is GapSource.METRICS and not gap.subject
    ]
    times = [at for at in (summary.usage_until, *silent) if at is not None]
    return max(times, default=None)


def joined(batches: list[Records]) -> Records:
    """Several batches as one."""
    return Records(
        **{
            field: tuple(item for batch in batches for item in getattr(batch, field))
            for field in Records.__struct_fields__
        }
    )


def _count(batch: Records) -> int:
    return sum(len(getattr(batch, field)) for field in Records.__struct_fields__)


def _stop_on_signals(work: asyncio.Task[None]) -> None:
    if threading.current_thread() is not threading.main_thread():
        return  # signals arrive in the main thread, whose owner cancels us
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, work.cancel)

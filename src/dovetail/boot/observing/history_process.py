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
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar

from dovetail import errors
from dovetail.boot import clocks, first_answer
from dovetail.history import backfill, compaction, history_recorder, stores
from dovetail.kube import client
from dovetail.kube.auth import client_config
from dovetail.kube.http import transport
from dovetail.kube.watching import wait_for_kind, watch
from dovetail.kubetypes import registry
from dovetail.live.cycle import restarts
from dovetail.live.election import leader_election
from dovetail.live.informer import informer
from dovetail.model.accounting.records import Millis, Records
from dovetail.ports import clock as clock_port
from dovetail.ports import usage_source
from dovetail.telemetry import metrics
from dovetail.world import events
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.history")
FLUSH_SECONDS: Final = 1.0
CONFIRM_SECONDS: Final = 10.0  # how often the watched time is stored when nothing else is
COMPACT_SECONDS: Final = 600.0
USAGE_SECONDS: Final = 60.0
USAGE_LAG: Final = 120_000  # measurements are complete after this many milliseconds
OUTAGE: Final = (
    5_000  # a watch that is back within this many milliseconds missed nothing worth a gap
)
SETTLE_SECONDS: Final = 1.0  # after an outage: what was missed arrives
MAX_PENDING: Final = 1_000_000  # records that wait for the store
QUEUES: Final = registry.QUEUE

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
        self.metrics = metrics.Metrics()
        self.is_recording = False
        self._transport = transport.Transport(
            connection, concurrency=8, user_agent="dovetail-history"
        )
        self._tenures = restarts.Restarts(self.clock, self.metrics)
        self._suspects: set[str] = set()
        self._superseded: stores.SupersededError | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="history-store")

    async def run(self) -> None:
        """Records until a signal, or until cancelled."""
        try:
            async with self._transport:
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
            await self._in_thread(store.close)

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # What a tenure uses

    @contextlib.asynccontextmanager
    async def watching(
        self, world: World, outages: _Outages, listener: informer.Listener
    ) -> AsyncIterator[informer.Informer]:
        """An informer of all that the recorder reads, while the block lasts."""
        ours = await first_answer.first_answer(
            lambda: wait_for_kind.served(self._transport, (QUEUES,)), clock=self.clock, log=LOG
        )
        kinds = history_recorder.KINDS
        informer_ = informer.Informer(world, self.clock, (*kinds, *ours), suspects=self._suspects)
        informer_.listen(listener)
        tasks = [asyncio.create_task(informer_.pump())]
        for kind in kinds:
            sink = _Sink(informer_, kind, outages)
            following = watch.follow(
                self._transport,
                kind,
                sink,
                clock=self.clock,
                restored=functools.partial(outages.ended, kind.name),
            )
            tasks.append(asyncio.create_task(following))
        queue_feed = informer.Feed(informer_, QUEUES, trouble=_log_trouble)
        following = wait_for_kind.follow(
            self._transport,
            QUEUES,
            queue_feed,
            clock=self.clock,
            arrived=functools.partial(informer_.add_kind, QUEUES),
        )
        tasks.append(asyncio.create_task(following))
        for task in tasks:
            task.add_done_callback(self._tenures.task_ended)
        try:
            yield informer_
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

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
        self._outages = _Outages(self._now)
        self._is_resumed = False
        self._pending: list[Records] = []
        self._latest = 0  # no time is earlier than one before it, whatever the clock does
        self._confirmed_at = 0.0
        self._compacted_at = self._clock.monotonic()
        self._measured_at = 0.0

    async def run(self) -> None:
        in_thread = self._process.in_thread
        number = await in_thread(self._store.take_over)
        opened = await in_thread(self._store.open_records)
        watched_until = await in_thread(self._store.watched_until)
        async with self._process.watching(self._world, self._outages, self._observe) as informer_:
            await informer_.synced.wait()
            self._latest = max(self._latest, watched_until or 0)
            records = self._recorder.resume(opened, watched_until=watched_until, now=self._now())
            self._pending.append(records)
            self._is_resumed = True
            try:
                await self._record(number)
            except asyncio.CancelledError:
                self._confirmed_at = 0.0
                await self._flush(number)  # stopped on purpose: nothing that was seen is lost
                raise

    async def _record(self, number: int) -> None:
        while True:
            await self._flush(number)
            if not self._process.is_recording:
                self._process.is_recording = True
                LOG.info("history.recording", extra={"store": self._store.place})
            await self._keep_small()
            await self._measure()
            await self._clock.sleep(FLUSH_SECONDS)

    def _observe(self, kind: registry.Kind, event: events.Event, before: Any) -> None:
        if not self._is_resumed:
            self._recorder.prime(event)
            return
        records = self._recorder.observe(event, times=self._times())
        if records != Records():
            self._pending.append(records)

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
        began = self._clock.monotonic()  # before the time that is stored: writing it takes a while
        is_due = began - self._confirmed_at >= CONFIRM_SECONDS
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
            await self._reopen()
            return
        del self._pending[:batches]
        self._confirmed_at = began

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

    async def _measure(self) -> None:
        """Fetches the measurements since the last ones. A source that fails is asked for the same time later."""
        source = self._process.settings.usage
        if source is None or self._clock.monotonic() - self._measured_at < USAGE_SECONDS:
            return
        self._measured_at = self._clock.monotonic()
        end = self._now() - USAGE_LAG
        try:
            summary = await self._process.in_thread(self._store.summary)
            start = summary.usage_until or summary.first
            if start is None or start >= end:
                return
            await backfill.backfill(
                self._store, source, start, end, in_thread=self._process.in_thread
            )
        except Exception as error:  # of any kind: recording goes on without measurements
            LOG.warning("history.usage.failed: asked again later", extra={"why": str(error)})


class _Outages:
    """Since when which watch is interrupted, and which times were not watched."""

    def __init__(self, now: Callable[[], Millis]) -> None:
        self._now = now
        self._broken: set[str] = set()
        self._finished: list[history_recorder.Times] = []
        self._timer: asyncio.TimerHandle | None = None
        self.since: Millis | None = None  # set until everything that was missed has arrived

    def began(self, kind: str) -> None:
        """A watch is interrupted."""
        self._broken.add(kind)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.since is None:
            self.since = self._now()

    def ended(self, kind: str) -> None:
        """It is back; what was missed arrives within moments."""
        self._broken.discard(kind)
        if not self._broken and self.since is not None and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(SETTLE_SECONDS, self._finish)

    def _finish(self) -> None:
        self._timer = None
        if self.since is not None:
            outage = history_recorder.Times(self.since, self._now())
            if outage.now - outage.known_until >= OUTAGE:
                self._finished.append(outage)
        self.since = None

    def take(self) -> list[history_recorder.Times]:
        """The outages that are over and not yet recorded."""
        finished, self._finished = self._finished, []
        return finished


class _Sink:
    """Passes the events of one watch on to the informer, and its interruptions to the outages."""

    def __init__(
        self, informer_: informer.Informer, kind: registry.Kind, outages: _Outages
    ) -> None:
        self._feed = informer.Feed(informer_, kind, trouble=_log_trouble)
        self._name = kind.name
        self._outages = outages

    def replaced(self, objects: list[Any], resource_version: str, /) -> None:
        self._feed.replaced(objects, resource_version)
        self._outages.ended(self._name)

    def changed(self, item: Any, /) -> None:
        self._feed.changed(item)

    def deleted(self, item: Any, /) -> None:
        self._feed.deleted(item)

    def broken(self, reason: str, /) -> None:
        self._outages.began(self._name)
        self._feed.broken(reason)

    def unreadable(self, name: str, problem: str, /) -> None:
        self._feed.unreadable(name, problem)


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


def _log_trouble(kind: str, reason: str) -> None:
    LOG.info("watch.interrupted", extra={"kind": kind, "why": reason})


def _stop_on_signals(work: asyncio.Task[None]) -> None:
    if threading.current_thread() is not threading.main_thread():
        return  # signals arrive in the main thread, whose owner cancels us
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, work.cancel)

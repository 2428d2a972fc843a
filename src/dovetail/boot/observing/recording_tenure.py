"""One recorder on one store, from a fresh list to the loss of the lease, or an error.

Given the process it belongs to, a store and the fence of an election. Stores what is pending each second, with the time
until which everything was watched; begins measurements that are due beside that. A store that fails is tried again with
the same records, which is safe. Never writes to the cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

from dovetail import errors
from dovetail.boot.observing import (
    budget_figures,
    fragmentation_watch,
    intent_feeds,
    watch_outages,
)
from dovetail.history import backfill, history_recorder, stores
from dovetail.kubetypes import registry
from dovetail.kubetypes.custom import intents
from dovetail.live.election import leader_election
from dovetail.model.accounting.records import GapSource, Millis, Records
from dovetail.telemetry import history_metrics
from dovetail.world import events
from dovetail.world.world import World

if TYPE_CHECKING:
    from dovetail.boot.observing.history_process import HistoryProcess

LOG = logging.getLogger("dovetail.history")
FLUSH_SECONDS: Final = 1.0
CONFIRM_SECONDS: Final = 10.0  # how often the watched time is stored when nothing else is
COMPACT_SECONDS: Final = 600.0
USAGE_SECONDS: Final = 60.0
USAGE_LAG: Final = 120_000  # measurements are complete after this many milliseconds
MAX_PENDING: Final = 1_000_000  # records that wait for the store
PRICE_SECONDS: Final = 10.0
BUDGET_SECONDS: Final = 600.0


class RecordingTenure:
    """What waits to be stored, and until when everything is known."""

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
        """Records until it is cancelled. Raises SupersededError if another recorder took the store over."""
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
            self._process.shown.count(history_metrics.STORE_ERRORS)
            await self._reopen()
            return
        del self._pending[:batches]
        self._confirmed_at = began
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

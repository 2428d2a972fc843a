"""Chores of the scheduler, twice a second: backoffs that end, overdue pods, expired slots, metrics.

Given the parts whose state ages. Each chore is independent; one that fails does not keep the others from
running. Chores begin writes in the background and wait for none. Never decides about pods.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from dovetail.live import handle as handles
from dovetail.live import supervised_tasks
from dovetail.live.bind import group_claim_release, quarantine_store
from dovetail.live.cycle import cycle_runner, progress
from dovetail.live.evict import disruption_limits
from dovetail.live.intents import intent_store, takeover
from dovetail.live.queue import event_handlers

SECONDS: Final = 0.5  # between two rounds


class Aging(NamedTuple):
    """Parts that change with time alone."""

    returning: group_claim_release.GroupClaimRelease
    limits: disruption_limits.BudgetRefresher
    resuming: takeover.Takeover
    quarantine: quarantine_store.QuarantineStore
    intents: intent_store.IntentStore
    progress: progress.Progress


class Housekeeper:
    """Runs the chores."""

    def __init__(
        self,
        handle: handles.Handle,
        runner: cycle_runner.CycleRunner,
        notices: event_handlers.EventHandlers,
        actors: cycle_runner.CycleParts,
        aging: Aging,
    ) -> None:
        self._world = handle.world
        self._clock = handle.clock
        self._meter = handle.meter
        self._queue = handle.queue
        self._requeuer = handle.requeuer
        self._recorder = handle.recorder
        self._metrics = handle.metrics
        self._background = handle.background
        self._runner = runner
        self._event_handlers = notices
        self._actors = actors
        self._aging = aging

    async def run(self) -> None:
        """Round after round, until cancelled."""
        # The order matters: what earlier chores make ready is counted and wakes the cycle last.
        chores: tuple[Callable[[], object], ...] = (
            self._end_backoffs,
            self._event_handlers.consider_overdue,
            self._event_handlers.find_lost_pods,
            self._recorder.report_deferred,
            self._event_handlers.end_quarantines,
            self._aging.returning.release_unused,
            self._read_disruption_budgets,
            self._expire_slots,
            self._record_quarantine,
            self._drop_promises,
            self._count,
            self._flush_leftovers,
            self._wake_if_due,
        )
        while True:
            supervised_tasks.run_each(chores, self._meter)
            self._recorder.is_busy = self._runner.is_writing
            await self._clock.sleep(SECONDS)

    def _end_backoffs(self) -> None:
        self._queue.end_backoffs(self._clock.monotonic())

    def _read_disruption_budgets(self) -> None:
        if self._aging.limits.is_due:
            self._background.begin_guarded("budgets", self._aging.limits.refresh())

    def _expire_slots(self) -> None:
        slots = self._actors.slots
        if slots.expire(self._clock.monotonic()):
            self._requeuer.request()
        expired = [*slots.obsolete, *self._aging.resuming.overdue()]
        slots.obsolete.clear()
        for intent in expired:
            self._background.begin_guarded("intents", self._aging.intents.remove(intent))

    def _record_quarantine(self) -> None:
        for work in self._aging.quarantine.writes(self._aging.intents):
            self._background.begin_guarded("quarantine", work)

    def _drop_promises(self) -> None:
        if self._actors.promises.drop_finished():
            self._runner.write_promises()

    def _count(self) -> None:
        now = self._clock.monotonic()
        self._aging.progress.look(now, is_work_ready=len(self._queue) > 0)
        self._metrics.counts(
            self._queue.counts,
            assumed=len(self._world.assumed),
            quarantined=len(self._aging.quarantine),
        )

    def _flush_leftovers(self) -> None:
        """Retries all parked pods, but only while nothing else is about to.

        So a pod that starts by it would not have started otherwise, which is worth counting.
        """
        now = self._clock.monotonic()
        is_cycle_due = not self._requeuer.is_quiet or self._runner.pace.is_due(now)
        if is_cycle_due or self._actors.evictor.is_busy:
            return
        if self._requeuer.flush.is_due(now):
            self._requeuer.flush_leftovers()

    def _wake_if_due(self) -> None:
        is_pace_due = self._runner.pace.is_due(self._clock.monotonic())
        if len(self._queue) or not self._requeuer.is_quiet or is_pace_due:
            self._requeuer.wake.set()

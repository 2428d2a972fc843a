"""Runs scheduling cycles one after another: when the next one runs, and what follows from its plan.

With queues or gangs a cycle is about all waiting pods; the time between two such cycles grows with what
the last one took (`Pace`). Without them cycles are batches, one after another. What a plan says beyond
placements follows here: promises and nominations are written, victims evicted. No cycle runs while an
eviction is under way that the World does not show yet. A cycle that fails costs its pods a delay, and the
next cycle a pause. Never decides about pods.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from dovetail.kubetypes.custom import queues
from dovetail.live import handle as handles
from dovetail.live.bind import binding_cycle, share_template_writer
from dovetail.live.cycle import scheduling_cycle
from dovetail.live.evict import evictor, nominator, slot_reservations
from dovetail.live.intents import promise_store
from dovetail.live.queue import event_handlers, requeue, scheduling_queue
from dovetail.model import plan
from dovetail.ports import failures
from dovetail.schedule.gang import staleness

LOG = logging.getLogger("dovetail.schedule")
LONGEST_PAUSE_SECONDS: Final = 5.0  # after cycles that failed in a row
SHARE: Final = 0.25  # of the time may go into cycles about all waiting pods

QueueNumbers = Callable[[Mapping[str, queues.QueueStatus]], None]


class CycleParts(NamedTuple):
    """What carries a plan out."""

    binding_cycles: binding_cycle.BindingCycles
    evictor: evictor.Evictor
    nominator: nominator.Nominator
    slots: slot_reservations.SlotReservations
    promises: promise_store.PromiseStore
    share_templates: share_template_writer.ShareTemplateWriter


class CycleRunner:
    """Runs cycles until cancelled."""

    def __init__(
        self,
        handle: handles.Handle,
        turns: scheduling_cycle.SchedulingCycles,
        notices: event_handlers.EventHandlers,
        actors: CycleParts,
        *,
        publish: QueueNumbers,
    ) -> None:
        self._world = handle.world
        self._synced = handle.picture.synced
        self._clock = handle.clock
        self._meter = handle.meter
        self._queue = handle.queue
        self._requeuer = handle.requeuer
        self._recorder = handle.recorder
        self._metrics = handle.metrics
        self._background = handle.background
        self._scheduling_cycles = turns
        self._event_handlers = notices
        self._actors = actors
        self._publish = publish  # gets the numbers of every decision with queues
        self._failed_in_a_row = 0
        self.pace = CyclePacing(handle.settings.whole_pause_seconds)

    @property
    def is_writing(self) -> bool:
        """Whether bindings, nominations or promises are being written: reports can wait.

        A pod whose condition says that a node is reserved for it has its nomination by then.
        """
        actors = self._actors
        return actors.binding_cycles.is_writing or actors.evictor.is_busy or actors.promises.is_busy

    async def run(self) -> None:
        """Runs a cycle whenever something may be decided."""
        wake = self._requeuer.wake
        while True:
            await wake.wait()
            wake.clear()
            try:
                await self._run_cycle()
            except failures.Fenced:
                raise
            except Exception as error:  # our own fault costs this cycle, and no other
                await self._recover(error)
            else:
                self._failed_in_a_row = 0

    async def _run_cycle(self) -> None:
        are_together = requeue.are_decided_together(self._world)
        is_requeued = self._requeuer.requeue_if_due(is_whole=are_together)
        if are_together:
            if is_requeued or len(self._queue):
                self.pace.want()
            await self._run_whole()
        else:
            await self._run_batches()
        self._recorder.is_busy = self.is_writing

    async def _recover(self, error: Exception) -> None:
        """After a cycle that failed its pods back off, and the next cycle waits: longer each time."""
        self._failed_in_a_row += 1
        count = self._scheduling_cycles.back_off()
        self._event_handlers.expect_lost_pods()
        self._meter.count("dovetail_turn_errors_total", where="deciding")
        LOG.error(
            "cycle.failed: its pods back off",
            exc_info=error,
            extra={"put_back": count, "in_a_row": self._failed_in_a_row},
        )
        pause = scheduling_queue.FIRST_DELAY * float(1 << min(self._failed_in_a_row - 1, 16))
        await self._clock.sleep(min(pause, LONGEST_PAUSE_SECONDS))
        self.pace.want()
        self._requeuer.wake.set()

    async def _run_batches(self) -> None:
        """Batch after batch."""
        now = self._clock.monotonic()
        if self.pace.is_due(now):
            self.pace.took(now, now, wake_after=None)
            self._requeuer.request()  # time alone changed the answer
        while self._may_run_batch():
            room = self._actors.binding_cycles.room
            await self._synced.wait()  # decisions need a complete picture
            turn = self._scheduling_cycles.run_batch(room, self._actors.evictor.spared())
            if turn is not None:
                self.pace.wake_by(self._clock.monotonic(), wake_after=self._follow(turn))
            await self._scheduling_cycles.rest(turn)  # events and answers between batches

    def _may_run_batch(self) -> bool:
        if not len(self._queue) or requeue.are_decided_together(self._world):
            return False
        return not self._actors.evictor.is_busy and self._actors.binding_cycles.room > 0

    async def _run_whole(self) -> None:
        """One cycle about all waiting pods, if one is due."""
        if not self.pace.is_due(self._clock.monotonic()):
            return
        if rest_seconds := self.pace.rest(self._clock.monotonic()):
            await self._clock.sleep(rest_seconds)
        await self._synced.wait()
        if self._actors.evictor.is_busy:
            return
        began = self._clock.monotonic()
        staleness.note(self._world, self._clock.now())
        # Room that a pod could not be bound to must not be given to others now.
        self._actors.slots.recheck(began)
        turn = self._scheduling_cycles.run_whole(self._actors.evictor.spared())
        wake_after = self._follow(turn)
        ended, is_partial = self._clock.monotonic(), turn.decided.undecided > 0
        self.pace.took(began, ended, wake_after=wake_after, is_partial=is_partial)
        if turn.decided.queues:
            self._publish(turn.decided.queues)

    # What follows from a plan

    def _follow(self, turn: scheduling_cycle.Cycle) -> float | None:
        """Begins to write promises, nominations and evictions.

        Returns after how many seconds time alone would change the plan; None: it would not.
        """
        decided = turn.decided
        pod_ids = [pod.metadata.uid for pod in turn.pods]
        self._metrics.caught_by_flush(self._requeuer.flush.effect_of(decided, pod_ids))
        promises = (*self._actors.promises.starting(), *decided.promises)
        self._world.set_promises(promises)  # the next decision keeps them
        if self._actors.promises.replace(promises):
            self.write_promises()
        self._actors.share_templates.follow(decided.refusals, turn.pods)
        nominations = self._actors.nominator.changes(decided, turn.pods)
        if nominations or decided.evictions:
            self._begin_evictions(decided, nominations)
        delays = [self._actors.evictor.spared_for()]
        if decided.wake_at is not None:
            delays.append((decided.wake_at - self._clock.now()).total_seconds())
        return min((delay for delay in delays if delay is not None), default=None)

    def _begin_evictions(self, decided: plan.Plan, nominations: dict[str, str]) -> None:
        work = self._actors.evictor.execute(decided, nominations)  # it counts as busy from here on
        self._recorder.is_busy = True

        async def evict() -> None:
            try:
                await work
            finally:
                self.pace.want()
                self._requeuer.wake.set()

        self._background.begin_guarded("evictions", evict())

    def write_promises(self) -> None:
        """Begins to write promises. Owners hear of a promise only once it is written.

        Otherwise a new leader would not know what was promised.
        """
        self._background.begin_guarded("promises", self._actors.promises.write())
        self._actors.promises.is_busy = self._recorder.is_busy = True


class CyclePacing:
    """When a cycle about all waiting pods runs: after events, at a time, and not too often.

    State in, answers out; the time is given.
    """

    def __init__(self, pause_seconds: float) -> None:
        self._pause = pause_seconds
        self._wake_at = math.inf  # when time alone changes the answer
        self._not_before = 0.0
        self._is_wanted = False

    def want(self) -> None:
        """Something happened that a cycle should see."""
        self._is_wanted = True

    def is_due(self, now: float) -> bool:
        """Whether a cycle is wanted by now."""
        return self._is_wanted or now >= self._wake_at

    @property
    def wake_at(self) -> float:
        """When the next cycle is wanted: at once (0), at a time, or never (infinity)."""
        return 0.0 if self._is_wanted else self._wake_at

    def rest(self, now: float) -> float:
        """How long the next cycle has to wait."""
        return max(0.0, self._not_before - now)

    def wake_by(self, now: float, *, wake_after: float | None) -> None:
        """After so many seconds time alone may change the answer. An earlier time stays."""
        if wake_after is not None:
            self._wake_at = min(self._wake_at, now + max(wake_after, self._pause))

    def took(
        self, began: float, ended: float, *, wake_after: float | None, is_partial: bool = False
    ) -> None:
        """A cycle ran; after so many seconds time alone may change its answer.

        A cycle about a part of the pods does not know when the answer for the others changes.
        """
        self._is_wanted = False
        if not is_partial or self._wake_at <= ended:
            self._wake_at = math.inf
        self.wake_by(ended, wake_after=wake_after)
        self._not_before = ended + max(self._pause, (ended - began) * (1 / SHARE - 1))

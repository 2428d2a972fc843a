"""The live scheduler: builds its parts, and runs them for one tenure.

Given the informer's picture of the cluster and an API to write to. Events change the World
(`event_handlers`), cycles decide (`cycle_runner`, `scheduling_cycle`), placements are written
(`binding_cycle`, `binder`), chores run in between (`housekeeping`). What a previous leader began is
completed or undone first. Writes only while its fence is open. Never chooses a node itself:
`schedule.decide.decide` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Mapping

from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import queues
from dovetail.live import handle as handles
from dovetail.live import supervised_tasks
from dovetail.live.bind import (
    binder,
    binding_cycle,
    group_claim_release,
    quarantine_rules,
    quarantine_store,
    share_template_writer,
    volume_provisioning,
    write_limiter,
    write_retry,
)
from dovetail.live.cycle import (
    cycle_runner,
    fault_isolation,
    housekeeping,
    progress,
    scheduling_cycle,
)
from dovetail.live.cycle.settings import Settings as Settings
from dovetail.live.evict import (
    disruption_limits,
    evictor,
    nominator,
    slot_recorder,
    slot_reservations,
)
from dovetail.live.informer import informer
from dovetail.live.intents import intent_store, promise_store, takeover
from dovetail.live.queue import crash_backoff, event_handlers, requeue, scheduling_queue
from dovetail.live.report import autoscaler_reasons, overlap_audit, recorder, scheduler_metrics
from dovetail.ports import api as apis
from dovetail.ports import clock as clocks
from dovetail.ports import meter, tracing
from dovetail.schedule import decide
from dovetail.world import events
from dovetail.world.events import ObjectKey
from dovetail.world.world import World


class Scheduler:
    """One tenure of scheduling over one picture."""

    def __init__(
        self,
        picture_: informer.Informer,
        api: apis.Api,
        *,
        clock: clocks.Clock,
        meter_: meter.Meter,
        settings: Settings = Settings(),  # noqa: B008 (frozen)
        tracer: tracing.Tracer = tracing.NoTracer(),  # noqa: B008 (holds nothing)
        list_intents: intent_store.Listing = intent_store.no_intents,
        limits: disruption_limits.Listing = disruption_limits.no_budgets,
        decide: fault_isolation.Decide = decide.decide,
        backoff: crash_backoff.CrashBackoff | None = None,
        progress_: progress.Progress | None = None,
        numbers: Callable[[Mapping[str, queues.QueueStatus]], None] = lambda numbers: None,
    ) -> None:
        self.picture = picture_
        self.world = world = picture_.world
        self._clock = clock
        self._meter = meter_
        self._settings = settings
        self.progress = progress_ or progress.Progress()
        crash_backoffs = backoff or crash_backoff.CrashBackoff()

        # What all parts share.
        self.queue = scheduling_queue.SchedulingQueue()
        self._requeuer = requeue.Requeuer(
            world,
            self.queue,
            clock,
            pause_seconds=settings.stir_seconds,
            flush_seconds=settings.net_seconds,
        )
        self._background = supervised_tasks.Background(clock, crash_backoffs)
        self.recorder = _recorder(world, api, clock, meter_, settings)
        handle = handles.Handle(
            picture=picture_,
            clock=clock,
            meter=meter_,
            settings=settings,
            queue=self.queue,
            requeuer=self._requeuer,
            recorder=self.recorder,
            metrics=scheduler_metrics.SchedulerMetrics(clock, meter_, tracer, self.progress),
            background=self._background,
        )

        # Writing: intents, evictions, claims and bindings.
        limiter = write_limiter.WriteLimiter(
            settings.in_flight_pods, stepped=self._requeuer.wake.set
        )
        writer = write_retry.Writer(api, clock, meter_, pausing=limiter.pausing)
        self._intents = intent_store.IntentStore(
            writer,
            clock,
            listing=list_intents,
            seconds=settings.start_seconds,
            part_bytes=settings.intent_part_bytes,
        )
        self._promises = promise_store.PromiseStore(self._intents, world)
        self._slots = slot_reservations.SlotReservations(world, seconds=settings.slot_seconds)
        slots = slot_recorder.SlotRecorder(
            self._slots, self._intents, clock, slot_seconds=settings.slot_seconds
        )
        nominations = nominator.Nominator(writer, clock, world, saw=picture_.observe)
        self._evictor = evictor.Evictor(
            handle, writer, nominator=nominations, slots=slots, limits=limits
        )
        volumes = volume_provisioning.VolumeWriter(handle, writer)
        pod_binder = binder.Binder(handle, writer, limiter, volumes)
        self._binding_cycles = binding_cycle.BindingCycles(
            handle, pod_binder, limiter, intents=self._intents, evictor=self._evictor
        )
        self._group_claim_release = group_claim_release.GroupClaimRelease(
            handle, self._binding_cycles
        )

        # Reading: events, and what a previous leader left.
        self._quarantine = _quarantine(world, clock, settings)
        self._limits = disruption_limits.BudgetRefresher(
            limits, world, clock, loosened=self._requeuer.request
        )
        self._event_handlers = event_handlers.EventHandlers(
            handle,
            self._binding_cycles,
            self._group_claim_release,
            quarantine=self._quarantine if settings.is_quarantining else None,
            crash_backoffs=crash_backoffs,
        )
        parts = takeover.TakeoverParts(
            self._binding_cycles,
            self._slots,
            self._promises,
            self.recorder,
            crash_backoffs,
            self._quarantine,
        )
        self._takeover = takeover.Takeover(
            world, parts, clock=clock, meter_=meter_, longest_seconds=settings.start_seconds
        )

        # Deciding.
        decider = fault_isolation.Decider(
            world, clock, meter_, policy=settings.policy, budget=settings.budget, decide=decide
        )
        self._scheduling_cycles = scheduling_cycle.SchedulingCycles(
            handle, decider, self._binding_cycles, self._slots
        )
        actors = cycle_runner.CycleParts(
            self._binding_cycles,
            self._evictor,
            nominations,
            self._slots,
            self._promises,
            share_template_writer.ShareTemplateWriter(handle, writer),
        )
        self._runner = cycle_runner.CycleRunner(
            handle, self._scheduling_cycles, self._event_handlers, actors, publish=numbers
        )
        aging = housekeeping.Aging(
            self._group_claim_release,
            self._limits,
            self._takeover,
            self._quarantine,
            self._intents,
            self.progress,
        )
        self._housekeeper = housekeeping.Housekeeper(
            handle, self._runner, self._event_handlers, actors, aging
        )

    @property
    def in_flight(self) -> int:
        """Placements being written."""
        return len(self._binding_cycles)

    @property
    def cycles(self) -> int:
        """Scheduling cycles so far."""
        return self._scheduling_cycles.count

    @property
    def is_idle(self) -> bool:
        """Whether no pod is ready to be decided about and nothing is being written."""
        if len(self.queue) or not self._requeuer.is_quiet:
            return False
        return (
            self._binding_cycles.is_idle
            and not self._evictor.is_busy
            and not self._promises.is_busy
        )

    @property
    def quiet_until(self) -> float:
        """Until when nothing happens here by itself; 0 if something is under way."""
        if not self.is_idle or self.queue.backing_off or len(self._quarantine):
            return 0.0
        has_nothing_kept = self._slots.is_idle and self._takeover.is_idle
        return self._runner.pace.wake_at if has_nothing_kept else 0.0

    def is_ours(self, pod: pods.Pod) -> bool:
        """Whether the pod names us as its scheduler."""
        return self._settings.is_ours(pod.spec.scheduler_name)

    def release(self, key: ObjectKey, pod_uid: str, *, why: str) -> None:
        """Takes a claim's devices back from a pod that does not run."""
        self._binding_cycles.release(key, pod_uid, why=why)

    def retry_all(self) -> None:
        """Retries all pods: something changed that decisions read and no event shows, as idleness."""
        self._requeuer.request()

    async def run(self) -> None:
        """Schedules until cancelled, or until writing is no longer allowed (raises Fenced)."""
        await self.picture.synced.wait()
        failure = self._background.open()
        self.picture.listen(self._event_handlers.observe)
        try:
            self._takeover.resume(await self._intents.list_stored())
            await self._take_stock()
            await self._limits.refresh()
        except BaseException:
            self.picture.unlisten(self._event_handlers.observe)
            await supervised_tasks.cancel_all(self._background.tasks)
            raise
        recording = asyncio.create_task(
            supervised_tasks.run_supervised(
                "reporting", self.recorder.run, self._clock, self._meter
            )
        )
        workers = self._started_workers()
        try:
            await asyncio.wait([*workers, recording, failure], return_when=asyncio.FIRST_COMPLETED)
            for task in (*workers, recording, failure):
                if task.done():
                    task.result()
        except asyncio.CancelledError:
            await self._drain(workers, recording)
            raise
        finally:
            if failure.done():
                failure.exception()  # read, so that asyncio does not report it a second time
            self.picture.unlisten(self._event_handlers.observe)
            await supervised_tasks.cancel_all([*workers, recording, *self._background.tasks])

    def _started_workers(self) -> list[asyncio.Task[None]]:
        """What runs until the tenure ends, apart from the recorder."""
        workers = [
            asyncio.create_task(self._runner.run()),
            asyncio.create_task(self._housekeeper.run()),
        ]
        seconds = self._settings.audit_seconds
        if seconds:
            audit = functools.partial(
                overlap_audit.Auditor(self, self._meter).run, self._clock, seconds
            )
            lasting = supervised_tasks.run_supervised("audit", audit, self._clock, self._meter)
            workers.append(asyncio.create_task(lasting))
        return workers

    async def _drain(
        self, workers: list[asyncio.Task[None]], recording: asyncio.Task[None]
    ) -> None:
        """Decides nothing more, and waits for answers to the writes under way.

        A lease can be handed on at once only if no write is in doubt.
        """
        for worker in workers:
            worker.cancel()
        self.recorder.end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_seconds):
                while pending := self._pending_tasks(recording):
                    await asyncio.wait(pending)

    def _pending_tasks(self, recording: asyncio.Task[None]) -> list[asyncio.Task[None]]:
        return [task for task in (*self._background.tasks, recording) if not task.done()]

    async def _take_stock(self) -> None:
        """Handles what is there already, a portion at a time: claims, nodes, pending pods."""
        for claim in self.world.claims.values():
            self._group_claim_release.claim_changed(claim)
        until = self._clock.monotonic() + informer.PORTION_SECONDS
        for item in (*self.world.nodes, *self.world.pending()):
            if isinstance(item, pods.Pod):
                self._event_handlers.consider(self.world.pods.get(events.pod_id(item), item))
            elif item in self.world.nodes:
                self.world.view(item)  # builds the node's view before the first cycle needs it
            if self._clock.monotonic() > until:
                await asyncio.sleep(0)
                until = self._clock.monotonic() + informer.PORTION_SECONDS


def _recorder(
    world: World,
    api: apis.Api,
    clock: clocks.Clock,
    meter_: meter.Meter,
    settings: Settings,
) -> recorder.Recorder:
    reasons = autoscaler_reasons.AutoscalerReasons(
        world, settings.policy, clock, scales_from_zero=settings.scales_from_zero
    )
    return recorder.Recorder(
        api,
        clock,
        meter_,
        latest=world.pods.get,
        controller=settings.controller,
        instance=settings.instance,
        rate_per_second=settings.events_per_second,
        records_scheduled=settings.records_scheduled,
        transient_seconds=settings.transient_seconds,
        reason_of=reasons.reason_of,
    )


def _quarantine(
    world: World, clock: clocks.Clock, settings: Settings
) -> quarantine_store.QuarantineStore:
    rules = quarantine_rules.QuarantineRules(
        slack_seconds=settings.quarantine_slack_seconds,
        most_seconds=settings.quarantine_most_seconds,
    )
    return quarantine_store.QuarantineStore(world, clock, rules, is_on=settings.is_quarantining)

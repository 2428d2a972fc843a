"""The live scheduler: events change the World, `decide` is asked, the plan is carried out.

Given a picture of the cluster and an API to write to. Without queues and gangs it decides in batches small enough that
the event loop is never held long, with them about everybody who waits. What a predecessor began is ended first. Writes
only inside the tenure it was given. Never chooses a node itself: `schedule.cycle.decide` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any, Final

from dovetail.loops import (
    audit,
    budgets,
    carry,
    evicting,
    flights,
    gate,
    lasting,
    nominating,
    noticing,
    pace,
    picture,
    places,
    pledges,
    progress,
    provisioning,
    quarantine,
    relapses,
    report,
    resuming,
    returning,
    settle,
    slots,
    tell,
    turns,
    waiting,
    wanting,
    ward,
)
from dovetail.loops import intents as keeping
from dovetail.loops.settings import Settings as Settings
from dovetail.model import claims, gangs, kinds, plan, pods, queues
from dovetail.ports import api as apis
from dovetail.ports import clock as clocks
from dovetail.ports import failures, meter, tracing
from dovetail.schedule import cycle
from dovetail.schedule.gangs import staleness
from dovetail.world import events
from dovetail.world.events import ObjectKey

LOG = logging.getLogger("dovetail.schedule")
HOUSEKEEPING_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 5.0  # after turns that failed, one after the other


class Scheduler:
    """One tenure of scheduling over one picture."""

    _broken: asyncio.Future[None] | None = None  # while it runs

    def __init__(
        self,
        picture_: picture.Picture,
        api: apis.Api,
        *,
        clock: clocks.Clock,
        meter_: meter.Meter,
        settings: Settings = Settings(),  # noqa: B008 (frozen)
        tracer: tracing.Tracer = tracing.NoTracer(),  # noqa: B008 (holds nothing)
        begun: keeping.Listing = keeping.nothing,
        limits: budgets.Listing = budgets.none,
        decide: turns.Decide = cycle.decide,
        relapses_: relapses.Relapses | None = None,
        progress_: progress.Progress | None = None,
        numbers: Callable[[Mapping[str, queues.QueueStatus]], None] = lambda numbers: None,
    ) -> None:
        self.picture = picture_
        self.world = picture_.world
        self.waiting = waiting.Waiting()
        self._clock = clock
        self._meter = meter_
        self._settings = settings
        self.progress = progress_ or progress.Progress()
        self._report = report.Report(clock, meter_, tracer, self.progress)
        self._relapses = relapses_ or relapses.Relapses()
        self.teller = self._made_teller(api)
        self.quarantine = quarantine.Quarantine(
            slack_seconds=settings.quarantine_slack_seconds, most_seconds=settings.quarantine_most_seconds
        )
        self._ward = ward.Ward(self.world, clock, self.quarantine, is_on=settings.is_quarantining)
        self._notices = self._made_notices()
        self._decide = decide
        self._limits = budgets.Lookout(limits, self.world, clock, loosened=self._notices.ask_to_stir)
        self._failed_turns = 0  # in a row
        self._is_in_doubt = False  # whether a pod may be in no place, because noticing it failed
        self._numbers = numbers  # told those of every decision with queues
        self._gate = gate.Gate(settings.in_flight_pods, stepped=self._notices.wake.set)
        self._pace = pace.Pace(settings.whole_pause_seconds)
        self._slots = slots.Slots(self.world, seconds=settings.slot_seconds)
        settler = settle.Settler(api, clock, meter_, pausing=self._gate.pausing)
        self._keeper = self._made_keeper(settler, begun)
        self._pledges = pledges.Pledges(self._keeper, self.world)
        self._nominator = nominating.Nominator(settler, clock, self.world, saw=picture_.saw)
        self._evictor = self._made_evictor(settler, limits)
        self._flights = self._notices.flights = self._made_flights(settler)
        self._returning = self._notices.returning = returning.Returning(
            self.world, is_ours=self._notices.is_named, give_back=self._flights.give_back
        )
        self._resuming = self._made_resuming()
        self._turns = self._made_turns()

    def _made_turns(self) -> turns.Turns:
        """Who asks for plans and begins to carry them out."""
        settings = self._settings
        return turns.Turns(
            self.world,
            self.waiting,
            self._ask,
            clock=self._clock,
            flights_=self._flights,
            teller=self.teller,
            report_=self._report,
            slots_=self._slots,
            bounds=turns.Bounds(settings.loop_bound_seconds, settings.batch_pods),
            meter_=self._meter,
        )

    def _made_notices(self) -> noticing.Notices:
        """Who reads the news for the pods that wait."""
        settings = self._settings
        return noticing.Notices(
            self.world,
            self.waiting,
            clock=self._clock,
            teller=self.teller,
            report_=self._report,
            ward_=self._ward if settings.is_quarantining else None,
            scheduler_names=settings.policy.scheduler_names,
            stir_seconds=settings.stir_seconds,
            owner_seconds=settings.owner_seconds,
            relapses_=self._relapses,
            net_seconds=settings.net_seconds,
        )

    def _made_teller(self, api: apis.Api) -> tell.Teller:
        """Who tells owners how things stand."""
        settings = self._settings
        return tell.Teller(
            api,
            self._clock,
            self._meter,
            latest=self.world.pods.get,
            controller=settings.controller,
            instance=settings.instance,
            rate_per_second=settings.events_per_second,
            tells_scheduled=settings.tells_scheduled,
            reason_of=wanting.Wanting(
                self.world, settings.policy, self._clock, scales_from_zero=settings.scales_from_zero
            ).reason_of,
        )

    def _made_keeper(self, settler: settle.Settler, begun: keeping.Listing) -> keeping.Keeper:
        """Who keeps on the server what is meant."""
        seconds, part_bytes = self._settings.start_seconds, self._settings.intent_part_bytes
        return keeping.Keeper(settler, self._clock, listing=begun, seconds=seconds, part_bytes=part_bytes)

    def _made_resuming(self) -> resuming.Resuming:
        """Who goes on with what a predecessor left."""
        offices = resuming.Offices(self._flights, self._slots, self._pledges, self.teller, self._relapses, self._ward)
        seconds = self._settings.start_seconds
        return resuming.Resuming(self.world, offices, clock=self._clock, meter_=self._meter, longest_seconds=seconds)

    def _made_evictor(self, settler: settle.Settler, limits: budgets.Listing) -> evicting.Evictor:
        """Who makes pods yield."""
        return evicting.Evictor(
            settler,
            self._clock,
            self.world,
            teller=self.teller,
            nominator=self._nominator,
            meter_=self._meter,
            saw=self.picture.saw,
            limits=limits,
            going=self._going,
            went=lambda eviction, pod: self._slots.keep(eviction, pod, self._clock.monotonic()),
            stayed=lambda eviction: self._slots.stays(eviction.pod.uid, self._clock.monotonic()),
        )

    def _made_flights(self, settler: settle.Settler) -> flights.Flights:
        """Whoever writes, with what they need to know and whom they tell."""
        office = carry.Office(
            claim=self.world.claims.get,
            user=self._user,
            saw=self._saw,
            unsound=self._unsound,
            dropped=self._dropped,
            written=self._report.written,
            patience=self._gate.waiting,
        )
        volumes = provisioning.Volumes(
            settler,
            self._clock,
            self.world,
            saw=self.picture.saw,
            timeout_seconds=self._settings.volumes_timeout_seconds,
        )
        carrier = carry.Carrier(
            settler,
            self._clock,
            office,
            volumes=volumes,
            conditions_timeout=self._settings.conditions_timeout_seconds,
        )
        notices = self._notices
        return flights.Flights(
            self.world,
            carrier,
            settler,
            gate_=self._gate,
            clock=self._clock,
            queue=self.waiting,
            teller=self.teller,
            report_=self._report,
            signals=flights.Signals(notices.wake.set, notices.ask_to_stir, self._break, self._saw),
            keeper=self._keeper,
            evict=self._evictor.take_back,
        )

    @property
    def in_flight(self) -> int:
        """Placements being written."""
        return len(self._flights)

    @property
    def cycles(self) -> int:
        """Turns of deciding so far."""
        return self._turns.count

    @property
    def is_idle(self) -> bool:
        """Whether nothing is ready to be decided and nothing is being written."""
        is_still = self._flights.is_idle and not self._evictor.is_busy and not self._pledges.is_busy
        return not len(self.waiting) and is_still and self._notices.is_quiet

    @property
    def quiet_until(self) -> float:
        """Until when nothing happens here by itself; 0 where something is under way."""
        is_kept = self._slots.is_quiet and self._resuming.is_quiet
        is_still = self.is_idle and not self.waiting.resting and is_kept and not self.quarantine.held
        return self._pace.hour if is_still else 0.0

    def is_ours(self, pod: pods.Pod) -> bool:
        """Whether the pod names us as its scheduler."""
        return self._notices.is_ours(pod)

    def release(self, key: ObjectKey, pod_uid: str, *, why: str) -> None:
        """Takes a claim's devices back from a pod that does not run."""
        self._flights.release(key, pod_uid, why=why)

    def ask_again(self) -> None:
        """Something changed that decisions read and no object tells, such as who is idle."""
        self._notices.ask_to_stir()

    async def run(self) -> None:
        """Schedules until cancelled, or until writing is no longer allowed (raises Fenced)."""
        await self.picture.synced.wait()
        self._broken = asyncio.get_running_loop().create_future()
        self.picture.listen(self._observe)
        try:
            await self._resume()
            await self._look_around()
            await self._limits.look()
        except BaseException:
            self.picture.unlisten(self._observe)
            await lasting.cancelled(self._flights.tasks)
            raise
        telling = asyncio.create_task(lasting.lasting("telling", self.teller.run, self._clock, self._meter))
        workers = [asyncio.create_task(self._decide_for_ever()), asyncio.create_task(self._keep_house())]
        if self._settings.audit_seconds:
            auditor = audit.Auditor(self, self._meter)
            look = functools.partial(auditor.run, self._clock, self._settings.audit_seconds)
            workers.append(asyncio.create_task(lasting.lasting("audit", look, self._clock, self._meter)))
        try:
            await asyncio.wait([*workers, telling, self._broken], return_when=asyncio.FIRST_COMPLETED)
            for worker in (*workers, telling):
                if worker.done():
                    worker.result()
            if self._broken.done():
                self._broken.result()
        except asyncio.CancelledError:
            await self._drain(workers, telling)
            raise
        finally:
            if self._broken.done():
                self._broken.exception()  # told by whoever raised first
            self.picture.unlisten(self._observe)
            await lasting.cancelled([*workers, telling, *self._flights.tasks])

    async def _drain(self, workers: list[asyncio.Task[None]], telling: asyncio.Task[None]) -> None:
        """Decides nothing more and lets writes be answered: a lease is handed on at once only if none is in doubt."""
        for worker in workers:
            worker.cancel()
        self.teller.end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_seconds):
                while left := [task for task in (*self._flights.tasks, telling) if not task.done()]:
                    await asyncio.wait(left)

    async def _resume(self) -> None:
        """Completes or takes back what a predecessor began and did not end, before anything else is decided."""
        self._resuming.resume(await self._keeper.found())

    async def _look_around(self) -> None:
        """Takes notice of what is there already, a portion at a time: nodes as they look, pods that wait."""
        for claim in self.world.claims.values():
            self._returning.saw(claim)
        until = self._clock.monotonic() + picture.PORTION_SECONDS
        for item in (*self.world.nodes, *self.world.pending()):
            if isinstance(item, pods.Pod):
                self._notices.consider(self.world.pods.get(events.pod_id(item), item))
            elif item in self.world.nodes:
                self.world.view(item)
            if self._clock.monotonic() > until:
                await asyncio.sleep(0)
                until = self._clock.monotonic() + picture.PORTION_SECONDS

    # Deciding

    @property
    def is_batch(self) -> bool:
        """Whether there are queues or gangs: then everybody who waits is decided about as a whole."""
        return bool(self.world.queues) or not self.world.gangs.is_trivial

    async def _decide_for_ever(self) -> None:
        wake = self._notices.wake
        while True:
            await wake.wait()
            wake.clear()
            try:
                await self._decide_once()
            except failures.Fenced:
                raise
            except Exception as error:  # a fault of ours costs this turn, and no other
                await self._recover(error)
            else:
                self._failed_turns = 0

    async def _decide_once(self) -> None:
        is_stirred = self._notices.stir_if_due(is_whole=self.is_batch)
        if self.is_batch:
            if is_stirred or len(self.waiting):
                self._pace.want()
            await self._whole_turn()
        else:
            await self._batches()
        self.teller.is_busy = self._is_writing

    async def _recover(self, error: Exception) -> None:
        """After a turn that failed its pods wait for a time, and so does the next turn: each time longer."""
        self._failed_turns += 1
        count = self._turns.put_back()
        self._is_in_doubt = True
        self._meter.count("dovetail_turn_errors_total", where="deciding")
        LOG.error("a turn failed", exc_info=error, extra={"put_back": count, "in_a_row": self._failed_turns})
        pause = waiting.FIRST_DELAY * float(1 << min(self._failed_turns - 1, 16))
        await self._clock.sleep(min(pause, LONGEST_PAUSE_SECONDS))
        self._pace.want()
        self._notices.wake.set()

    async def _batches(self) -> None:
        """Batch after batch, unless somebody is yielding whose end the World does not show yet."""
        now = self._clock.monotonic()
        if self._pace.is_due(now):
            self._pace.took(now, now, wake_after=None)
            self._notices.ask_to_stir()  # time alone changed the answer
        while len(self.waiting) and not self.is_batch and not self._evictor.is_busy and (room := self._room()) > 0:
            await self.picture.synced.wait()  # an unsynced picture blocks deciding
            if (turn := self._turns.batch(room, self._evictor.spared())) is not None:
                self._pace.wake_by(self._clock.monotonic(), wake_after=self._follow(turn))
            await self._turns.rest(turn)  # events and answers between batches

    async def _whole_turn(self) -> None:
        """Everybody who waits, unless somebody is yielding whose end the World does not show yet."""
        if not self._pace.is_due(self._clock.monotonic()):
            return
        if rest := self._pace.rest(self._clock.monotonic()):
            await self._clock.sleep(rest)
        await self.picture.synced.wait()
        if self._evictor.is_busy:
            return
        began = self._clock.monotonic()
        staleness.note(self.world, self._clock.now())
        self._slots.review(began)  # what somebody could not be bound to is not given to others now
        turn = self._turns.whole(self._evictor.spared())
        wake_after = self._follow(turn)
        is_partial = turn.decided.undecided > 0
        self._pace.took(began, self._clock.monotonic(), wake_after=wake_after, is_partial=is_partial)
        if turn.decided.queues:
            self._numbers(turn.decided.queues)

    def _follow(self, turn: turns.Turn) -> float | None:
        """Who yields is asked to. After how many seconds time alone would change the answer; None: it does not."""
        decided = turn.decided
        asked = [pod.metadata.uid for pod in turn.asked]
        self._report.caught(self._notices.net.catch(decided, asked))
        promised = (*self._pledges.starting(), *decided.promises)
        self.world.promise(promised)  # the next decision keeps them
        if self._pledges.want(promised):
            self._write_promises()
        changes = self._nominator.changes(decided, turn.asked)
        if changes or decided.evictions:
            self._flights.begin(self._yielding(decided, changes))
        hours = [self._evictor.spared_for()]
        if decided.wake_at is not None:
            hours.append((decided.wake_at - self._clock.now()).total_seconds())
        return min((hour for hour in hours if hour is not None), default=None)

    def _yielding(self, decided: plan.Plan, changes: dict[str, str]) -> Coroutine[Any, Any, None]:
        work = self._evictor.carry(decided, changes)  # busy from here on

        async def carried() -> None:
            try:
                await work
            finally:
                self._pace.want()
                self._notices.wake.set()

        return self._flights.guarded("evictions", carried())

    async def _going(self, eviction: plan.Eviction, pod: pods.Pod) -> None:
        """A pod that moves: its place is put down before it is asked to end, and counts from when it does."""
        now, seconds = self._clock.now(), self._settings.slot_seconds
        note = places.noted(eviction, pod, now=now, seconds=seconds)
        if note is None:
            return
        is_kept = await self._keeper.tried(note, patience_seconds=nominating.PATIENCE_SECONDS)
        self._slots.ask(eviction, pod, note if is_kept else None)

    def _write_promises(self) -> None:
        """Nobody is told an hour before it is written: a new leader would know nothing of it."""
        work = self._flights.guarded("promises", self._pledges.carry())
        self._pledges.is_busy = self.teller.is_busy = True
        self._flights.begin(work)

    @property
    def _is_writing(self) -> bool:
        return bool(self._flights) or self._pledges.is_busy

    def _room(self) -> int:
        """How many more may be in flight; who waits for others to make something ready keeps nobody from writing."""
        return self._settings.in_flight_pods - len(self._flights) + self._gate.aside

    def _ask(
        self,
        among: Collection[str] | None,
        *,
        spared: Collection[str] = (),
        toward: Mapping[str, str] | None = None,
        aside: Collection[gangs.GangKey] = (),
    ) -> plan.Plan:
        settings, now = self._settings, self._clock.now()
        return self._decide(
            self.world,
            settings.policy,
            now,
            settings.budget,
            among=among,
            spared=spared,
            toward=toward or {},
            aside=aside,
        )

    def _observe(self, kind: kinds.Kind, event: events.Event, before: Any) -> None:
        """Takes notice of a change; a fault in that is no reason to hear of nothing else."""
        try:
            self._notices.observe(kind, event, before)
        except Exception:  # a fault of ours: whoever waits is looked for again
            self._is_in_doubt = True
            self._meter.count("dovetail_turn_errors_total", where="noticing")
            LOG.exception("a change was not taken notice of", extra={"kind": kind.name})

    # For those who write

    def _break(self, error: Exception, uids: Iterable[str]) -> None:
        self._relapses.failed(uids, self._clock.monotonic())
        if self._broken is not None and not self._broken.done():
            self._broken.set_exception(error)

    def _saw(self, claim: claims.ResourceClaim) -> None:
        self.picture.saw(kinds.CLAIM, claim)

    def _user(self, ref: plan.PodRef, key: ObjectKey) -> claims.ResourceClaimConsumerReference:
        pod = self.world.pods.get(ref.uid)
        if pod is not None:
            return self.world.user_of(pod, key)
        return claims.ResourceClaimConsumerReference(resource="pods", name=ref.name, uid=ref.uid)

    def _unsound(self, placement: plan.Placement) -> str | None:
        return self.world.sound(placement.node, carry.allocations_of(placement))

    def _dropped(self, pod: plan.PodRef, field: str) -> None:
        self._meter.count("dovetail_fields_dropped_total", field=field)
        LOG.error("the API server does not keep a field", extra={"pod": str(pod), "field": field})

    # Housekeeping

    def _look_at_budgets(self) -> None:
        if self._limits.is_due:
            self._flights.begin(self._flights.guarded("budgets", self._limits.look()))

    def _note_quarantine(self) -> None:
        for work in self._ward.writes(self._keeper):
            self._flights.begin(self._flights.guarded("quarantine", work))

    async def _keep_house(self) -> None:
        """Chore after chore, over and over; one that fails keeps none of the others from being done."""
        chores: tuple[Callable[[], object], ...] = (
            lambda: self.waiting.wake_due(self._clock.monotonic()),
            self._consider_overdue,
            self._consider_lost,
            self.teller.catch_up,
            self._notices.let_go,
            self._returning.look,
            self._look_at_budgets,
            self._expire_slots,
            self._note_quarantine,
            self._let_promises_go,
            self._count,
            self._cast_net,
            self._wake_if_due,
        )
        while True:
            lasting.do_each(chores, self._meter)
            self.teller.is_busy = self._is_writing
            await self._clock.sleep(HOUSEKEEPING_SECONDS)

    def _consider_overdue(self) -> None:
        for uid in self.teller.overdue():
            if uid in self.world.pods:
                self._notices.consider(self.world.pods[uid])

    def _consider_lost(self) -> None:
        """After a failure every pod that should wait somewhere and does not is taken notice of again."""
        if not self._is_in_doubt:
            return
        self._is_in_doubt = False
        for pod in [*self.world.pending()]:
            id_ = events.pod_id(pod)
            if id_ not in self.waiting and id_ not in self.world.assumed and self.is_ours(pod):
                self._notices.consider(pod)

    def _expire_slots(self) -> None:
        if self._slots.expire(self._clock.monotonic()):
            self._notices.ask_to_stir()
        over = [*self._slots.over, *self._resuming.overdue()]
        self._slots.over.clear()
        for note in over:
            self._flights.begin(self._flights.guarded("intents", self._keeper.remove(note)))

    def _let_promises_go(self) -> None:
        if self._pledges.let_go():
            self._write_promises()

    def _count(self) -> None:
        self.progress.look(self._clock.monotonic(), is_work_ready=len(self.waiting) > 0)
        self._report.counts(self.waiting.counts, assumed=len(self.world.assumed), quarantined=len(self.quarantine.held))

    def _cast_net(self) -> None:
        """Only where nothing is about to ask about waiting pods: what it catches, nothing else would have."""
        now = self._clock.monotonic()
        is_calm = self._notices.is_quiet and not self._pace.is_due(now) and not self._evictor.is_busy
        if is_calm and self._notices.net.is_due(now):
            self._notices.cast_net()

    def _wake_if_due(self) -> None:
        if len(self.waiting) or not self._notices.is_quiet or self._pace.is_due(self._clock.monotonic()):
            self._notices.wake.set()

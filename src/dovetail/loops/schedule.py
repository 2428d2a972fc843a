"""The live scheduler: events change the World, `decide` is asked, the plan is carried out.

Given a picture of the cluster and an API to write to. Decides in batches small enough that the event loop is never
held long; what is decided counts as done (assumed) until events confirm it or a write fails. Writes only inside the
tenure it was given. Never chooses a node itself: `schedule.cycle.decide` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection
from typing import Any, Final, NamedTuple

from dovetail.loops import (
    audit,
    awaited,
    carry,
    claiming,
    deciding,
    meaning,
    picture,
    provisioning,
    quarantine,
    report,
    settle,
    tell,
    waiting,
)
from dovetail.model import claims, kinds, nodes, plan, pods
from dovetail.model import policy as policies
from dovetail.model.reasons import ReasonCode
from dovetail.ports import api as apis
from dovetail.ports import clock as clocks
from dovetail.ports import failures, meter, tracing
from dovetail.schedule import cycle, order
from dovetail.world import events
from dovetail.world.events import ObjectKey

LOG = logging.getLogger("dovetail.schedule")
FIRST_BATCH: Final = 8
MOST_IN_BATCH: Final = 512
HOUSEKEEPING_SECONDS: Final = 0.5
TERMINAL: Final = ("Succeeded", "Failed")


class Settings(NamedTuple):
    """What an operator can set about the loop."""

    policy: policies.Policy = policies.DEFAULT
    budget: policies.Budget = policies.LIVE
    loop_bound_seconds: float = 0.05  # a batch is sized to hold the event loop no longer
    batch_pods: int = 0  # 0: sized by what the last ones took
    in_flight_pods: int = 64
    stir_seconds: float = 0.5  # parked pods are asked about again no more often
    conditions_timeout_seconds: float = 600.0
    volumes_timeout_seconds: float = 600.0  # as kube-scheduler's bindTimeoutSeconds
    quarantine_slack_seconds: float = 5.0
    is_quarantining: bool = True
    audit_seconds: float = 2.0  # 0: no audit
    tells_scheduled: bool = True
    events_per_second: float = 50.0
    controller: str = "dovetail"
    instance: str = "dovetail"
    drain_seconds: float = 0.0  # how long writes under way may take to be answered when told to stop


class Flight(NamedTuple):
    """A placement being written."""

    placement: plan.Placement
    ended: asyncio.Event


class Scheduler:
    """One tenure of scheduling over one picture."""

    def __init__(
        self,
        picture_: picture.Picture,
        api: apis.Api,
        *,
        clock: clocks.Clock,
        meter_: meter.Meter,
        settings: Settings = Settings(),  # noqa: B008 (frozen)
        tracer: tracing.Tracer = tracing.NoTracer(),  # noqa: B008 (holds nothing)
    ) -> None:
        self.picture = picture_
        self.world = picture_.world
        self.waiting = waiting.Waiting()
        self._clock = clock
        self._meter = meter_
        self._settings = settings
        self._report = report.Report(clock, meter_, tracer)
        self._settler = settle.Settler(api, clock, meter_)
        self._wake = asyncio.Event()
        self._patient = carry.Patience(self._wake.set)
        office = carry.Office(
            self.world.claims.get, self._saw, self._unsound, self._dropped, self._report.written, self._patient.of
        )
        volumes = provisioning.Volumes(
            self._settler, clock, self.world, saw=picture_.saw, timeout_seconds=settings.volumes_timeout_seconds
        )
        self._carrier = carry.Carrier(
            self._settler, clock, office, volumes=volumes, conditions_timeout=settings.conditions_timeout_seconds
        )
        self.teller = tell.Teller(
            api,
            clock,
            meter_,
            latest=self.world.pods.get,
            controller=settings.controller,
            instance=settings.instance,
            rate_per_second=settings.events_per_second,
            tells_scheduled=settings.tells_scheduled,
        )
        self.quarantine = quarantine.Quarantine(slack_seconds=settings.quarantine_slack_seconds)
        self._in_flight: dict[str, Flight] = {}
        self._allocating: dict[ObjectKey, Flight] = {}  # who gives a claim its devices right now
        self._tasks: set[asyncio.Task[None]] = set()
        self._releasing: set[ObjectKey] = set()
        self._batch = FIRST_BATCH
        self._stir_asked: set[ObjectKey] = set()  # to whom something happened that could help
        self._stir_at = 0.0
        self._broken: asyncio.Future[None] | None = None
        self._holds = 0
        self.cycles = 0

    @property
    def in_flight(self) -> int:
        """Placements being written."""
        return len(self._in_flight)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is ready to be decided and nothing is being written."""
        return not len(self.waiting) and not self._in_flight and not self._releasing and not self._stir_asked

    async def run(self) -> None:
        """Schedules until cancelled, or until writing is no longer allowed (raises Fenced)."""
        await self.picture.synced.wait()
        self._broken = asyncio.get_running_loop().create_future()
        self.picture.listen(self.observe)
        await self._look_around()
        telling = asyncio.create_task(self.teller.run())
        workers = [asyncio.create_task(self._decide_for_ever()), asyncio.create_task(self._keep_house())]
        if self._settings.audit_seconds:
            auditor = audit.Auditor(self, self._meter)
            workers.append(asyncio.create_task(auditor.run(self._clock, self._settings.audit_seconds)))
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
            self.picture.unlisten(self.observe)
            everything = [*workers, telling, *self._tasks]
            for task in everything:
                task.cancel()
            await asyncio.gather(*everything, return_exceptions=True)

    async def _drain(self, workers: list[asyncio.Task[None]], telling: asyncio.Task[None]) -> None:
        """Decides nothing more and lets writes be answered: a lease is handed on at once only if none is in doubt."""
        for worker in workers:
            worker.cancel()
        self.teller.end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_seconds):
                while left := [task for task in (*self._tasks, telling) if not task.done()]:
                    await asyncio.wait(left)

    async def _look_around(self) -> None:
        """Takes notice of what is there already, a portion at a time: nodes as they look, pods that wait."""
        until = self._clock.monotonic() + picture.PORTION_SECONDS
        for item in (*self.world.nodes, *self.world.pending()):
            if isinstance(item, pods.Pod):
                self._consider(self.world.pods.get(events.pod_id(item), item))
            elif item in self.world.nodes:
                self.world.view(item)
            if self._clock.monotonic() > until:
                await asyncio.sleep(0)
                until = self._clock.monotonic() + picture.PORTION_SECONDS

    # What happens

    def observe(self, kind: kinds.Kind, event: events.Event, before: Any) -> None:
        """Takes notice of a change the World already shows."""
        found = event.object
        is_there = isinstance(event, events.Changed)
        match found:
            case pods.Pod():
                self._pod_changed(found, before, is_there=is_there)
            case claims.ResourceClaim():
                self._claim_changed(found, before, is_there=is_there)
            case nodes.Node():
                if not is_there or before is None or meaning.offers_more(before, found):
                    self._ask_to_stir()
            case _:
                self._ask_to_stir(awaited.concerned_by(kind, events.key_of(found)))

    def _pod_changed(self, pod: pods.Pod, before: pods.Pod | None, *, is_there: bool) -> None:
        id_ = events.pod_id(pod)
        if is_there and meaning.moves_neighbours(before, pod):
            self._ask_to_stir(awaited.NEIGHBOURS)
        if is_there and not pod.spec.node_name and pod.status.phase not in TERMINAL:
            if before is None or meaning.asks_otherwise(before, pod):
                self._consider(pod)
            return
        self.waiting.drop(id_)
        if pod.status.phase in TERMINAL and self.quarantine.ended(id_):
            self._end_quarantine(id_)
        if not is_there:
            self._pod_gone(pod if pod.spec.containers or before is None else before)  # the end may be all we heard
        if before is not None and before.spec.node_name and (not is_there or pod.status.phase in TERMINAL):
            self._ask_to_stir()

    def _pod_gone(self, pod: pods.Pod) -> None:
        uid = events.pod_id(pod)
        self.teller.forget(uid)
        self._report.gone(uid)
        flight = self._in_flight.get(uid)
        if flight is not None:  # its writes may still arrive: the devices stay taken until they are answered
            for key, result in carry.allocations_of(flight.placement).items():
                self.world.hold(f"in-flight/{uid}/{key[1]}", result)
        self._isolate(pod, [held for key in awaited.claims_of(pod) if (held := self.world.allocation(key)) is not None])

    def _isolate(self, pod: pods.Pod, used: list[claims.AllocationResult]) -> None:
        """Keeps devices out of use that a removed pod may still be using."""
        if not self._settings.is_quarantining:
            return
        held = self.quarantine.lost(pod, used, self._clock.monotonic())
        if held is None:
            return
        LOG.warning("devices quarantined", extra={"pod": held.pod, "node": held.node, "seconds": held.grace})
        for allocation in held.allocations:
            self._holds += 1
            self.world.hold(f"quarantine/{events.pod_id(pod)}/{self._holds}", allocation)

    def _end_quarantine(self, uid: str) -> None:
        for name in [name for name in self.world.held if name.startswith(f"quarantine/{uid}/")]:
            self.world.release(name)

    def _claim_changed(
        self, claim: claims.ResourceClaim, before: claims.ResourceClaim | None, *, is_there: bool
    ) -> None:
        self.waiting.claim_changed(events.key_of(claim))
        had = before.status.allocation if before is not None else None
        if before is not None and had is not None and (not is_there or claim.status.allocation is None):
            for user in before.status.reserved_for:  # feeds of two kinds overtake each other: the pod may be gone
                pod = self.world.pods.get(user.uid)
                if pod is not None:
                    self._isolate(pod, [had])
            self._ask_to_stir()
        self._wake.set()

    def is_ours(self, pod: pods.Pod) -> bool:
        """Whether the pod names us as its scheduler."""
        names = self._settings.policy.scheduler_names
        return not names or pod.spec.scheduler_name in names

    def _consider(self, pod: pods.Pod) -> None:
        id_ = events.pod_id(pod)
        if pod.metadata.deletion_timestamp is not None or not self.is_ours(pod):
            self.waiting.drop(id_)
            return
        if id_ in self._in_flight:
            return
        self.waiting.ready(id_, order.rank(pod))
        self._report.queued(id_, "active", "PodAdd")
        self._wake.set()

    def _ask_to_stir(self, whom: ObjectKey = awaited.ANYBODY) -> None:
        self._stir_asked.add(whom)
        self._wake.set()

    # Deciding

    async def _decide_for_ever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._stir_if_due()
            while len(self.waiting) and (room := self._room()) > 0:
                await self.picture.synced.wait()  # an unsynced picture blocks deciding
                self._turn(room)
                await asyncio.sleep(0)  # events and answers between batches
            self.teller.is_busy = bool(self._in_flight)

    def _room(self) -> int:
        """How many more may be in flight; who waits for others to make something ready keeps nobody from writing."""
        return self._settings.in_flight_pods - len(self._in_flight) + len(self._patient)

    def _turn(self, room: int) -> None:
        """One batch: decide, assume, start writing."""
        size = self._settings.batch_pods or self._batch
        taken = [id_ for id_ in self.waiting.take(min(size, room)) if self._can_ask_about(id_)]
        if not taken:
            return
        began = self._clock.monotonic()
        self.cycles += 1
        self._report.begin(self.cycles)
        known = {id_: self.world.pods[id_] for id_ in taken}
        decided, faults = deciding.decided(self._ask, known.keys())
        for id_, fault in faults.items():
            deciding.set_aside(known.pop(id_), fault, teller=self.teller, queue=self.waiting, now=began)
        for placement in decided.placements:
            self._start(known.pop(placement.pod.uid), placement)
        for refusal in decided.refusals:
            self._refuse(known.pop(refusal.pod.uid), refusal)
        for id_, pod in known.items():  # not decided about: no longer waiting in the World's eyes
            self.waiting.drop(id_)
            LOG.debug("left out", extra={"pod": pod.metadata.name})
        self._measure(taken, decided, self._clock.monotonic() - began)

    def _ask(self, ids: Collection[str]) -> plan.Plan:
        return cycle.decide(self.world, self._settings.policy, self._clock.now(), self._settings.budget, among=ids)

    def _can_ask_about(self, id_: str) -> bool:
        """Whether the pod is there, and none of its claims is about to lose its devices."""
        pod = self.world.pods.get(id_)
        if pod is None:
            return False
        uses = awaited.claims_of(pod)
        if self._releasing.isdisjoint(uses):
            return True
        self.waiting.park(id_, order.rank(pod), uses)
        return False

    def _start(self, pod: pods.Pod, placement: plan.Placement) -> None:
        uid = placement.pod.uid
        allocations = carry.allocations_of(placement)
        self.world.assume(pod, placement.node, allocations, volumes=placement.volumes)
        self._in_flight[uid] = flight = Flight(placement, asyncio.Event())
        uses = awaited.claims_of(pod)
        before = [self._allocating[key] for key in uses if key in self._allocating]
        self._allocating.update(dict.fromkeys(allocations, flight))
        task = asyncio.create_task(self._carry(pod, flight, uses, before))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _refuse(self, pod: pods.Pod, refusal: plan.Refusal) -> None:
        id_ = events.pod_id(pod)
        if refusal.is_undecided and all(one.reason.code is ReasonCode.TO_BE_CONTINUED for one in refusal.obstacles):
            self.waiting.ready(id_, order.rank(pod))
            return
        self.teller.refused(pod, refusal)
        if refusal.is_undecided:
            self.waiting.delay(id_, order.rank(pod), self._clock.monotonic())
        else:
            tied = (awaited.NEIGHBOURS,) if meaning.is_tied(refusal) else ()
            self.waiting.park(id_, order.rank(pod), (*awaited.names_for(pod), *tied))
            self._report.queued(id_, "unschedulable", "ScheduleAttemptFailure")
        for ref in refusal.holding:  # devices where the pod cannot start keep it from starting elsewhere
            self.release((ref.namespace, ref.name), pod.metadata.uid, why="held where the pod cannot start")

    def _measure(self, taken: list[str], decided: plan.Plan, seconds: float) -> None:
        per_pod = max(seconds / len(taken), 1e-6)
        fitting = int(self._settings.loop_bound_seconds / per_pod)
        self._batch = max(1, min(MOST_IN_BATCH, fitting, len(taken) * 2))
        self._report.decided(taken, decided, seconds)

    def _stir_if_due(self) -> None:
        now = self._clock.monotonic()
        if not self._stir_asked or now < self._stir_at:
            return
        asked, self._stir_asked = self._stir_asked, set()
        stirred = self.waiting.stir() if awaited.ANYBODY in asked else sum(map(self.waiting.claim_changed, asked))
        self._stir_at = now + self._settings.stir_seconds + stirred * 1e-3  # many parked pods cost many decisions

    # Writing

    async def _carry(self, pod: pods.Pod, flight: Flight, uses: tuple[ObjectKey, ...], before: list[Flight]) -> None:
        placement, began = flight.placement, self._clock.monotonic()
        try:
            for other in before:  # who shares a claim waits until it has its devices
                await other.ended.wait()
            ending = await self._carrier.carry(placement, uses)
        except failures.Fenced as fenced:
            self._break(fenced)
            return
        except Exception as error:
            LOG.exception("carrying out failed", extra={"pod": str(placement.pod)})
            self._break(error)
            return
        self._landed(flight)
        if isinstance(ending, carry.Bound):
            self._bound(pod, placement, self._clock.monotonic() - began)
        else:
            self._report.abandoned(self._clock.monotonic() - began)
            self._abandoned(pod, ending)
        self._wake.set()

    def _landed(self, flight: Flight) -> None:
        uid = flight.placement.pod.uid
        flight.ended.set()
        del self._in_flight[uid]
        for key in carry.allocations_of(flight.placement):
            if self._allocating.get(key) is flight:
                del self._allocating[key]
            name = f"in-flight/{uid}/{key[1]}"
            if name in self.world.held:
                self.world.release(name)

    def _bound(self, pod: pods.Pod, placement: plan.Placement, seconds: float) -> None:
        self._report.bound(placement.pod.uid, seconds)
        self.teller.bound(pod, placement.node)
        LOG.debug("bound", extra={"pod": str(placement.pod), "node": placement.node})

    def _abandoned(self, pod: pods.Pod, ending: carry.Abandoned) -> None:
        uid = events.pod_id(pod)
        self.world.forget(pod)
        self._ask_to_stir(awaited.VOLUMES)  # what was promised to it is free again
        LOG.info("abandoned", extra={"pod": f"{pod.metadata.namespace}/{pod.metadata.name}", "why": ending.reason})
        for key in ending.release:
            self.release(key, uid, why=ending.reason)
        latest = self.world.pods.get(uid)
        if latest is None or latest.spec.node_name:
            return
        if ending.is_refused:
            self.teller.failed(latest, ending.reason)
        self.waiting.delay(uid, order.rank(latest), self._clock.monotonic())
        self._report.queued(uid, "backoff", "ScheduleAttemptFailure")

    def release(self, key: ObjectKey, user_uid: str, *, why: str) -> None:
        """Takes a claim's devices back from a user that does not run."""
        claim = self.world.claims.get(key)
        if claim is None or key in self._releasing:
            return
        if user_uid in self._in_flight or user_uid in self.world.assumed:
            return  # it is being bound, or was and we have not heard of it yet
        self._releasing.add(key)
        LOG.info("releasing", extra={"claim": f"{key[0]}/{key[1]}", "why": why})
        pod = self.world.pods.get(user_uid)
        task = asyncio.create_task(self._release(claim, user_uid, pod))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _release(self, claim: claims.ResourceClaim, user_uid: str, pod: pods.Pod | None) -> None:
        key = events.key_of(claim)
        try:
            if pod is not None and await self._carrier.is_bound(pod):
                return  # what we saw was old
            step = claiming.release(claim.metadata.uid, user_uid)
            ending = await self._settler.brought_about(apis.Target(kinds.CLAIM, *key), claim, step)
            if isinstance(ending, settle.Done):
                self._saw(ending.found)
        except failures.Fenced as fenced:
            self._break(fenced)
        except failures.ApiFailure as failure:
            LOG.warning("not released", extra={"claim": f"{key[0]}/{key[1]}", "why": str(failure)})
        finally:
            self._releasing.discard(key)
            self.waiting.claim_changed(key)
            self._wake.set()

    def _break(self, error: Exception) -> None:
        if self._broken is not None and not self._broken.done():
            self._broken.set_exception(error)

    # For those who write

    def _saw(self, claim: claims.ResourceClaim) -> None:
        self.picture.saw(kinds.CLAIM, claim)

    def _unsound(self, placement: plan.Placement) -> str | None:
        return self.world.sound(placement.node, carry.allocations_of(placement))

    def _dropped(self, pod: plan.PodRef, field: str) -> None:
        self._meter.count("dovetail_fields_dropped_total", field=field)
        LOG.error("the API server does not keep a field", extra={"pod": str(pod), "field": field})

    # Housekeeping

    async def _keep_house(self) -> None:
        while True:
            now = self._clock.monotonic()
            self.waiting.wake_due(now)
            for uid in self.teller.overdue():
                if uid in self.world.pods:
                    self._consider(self.world.pods[uid])
            for uid in self.quarantine.let_go(self.world.nodes, now):
                self._end_quarantine(uid)
                self._ask_to_stir()
            self._report.counts(
                self.waiting.counts, assumed=len(self.world.assumed), quarantined=len(self.quarantine.held)
            )
            if len(self.waiting) or self._stir_asked:
                self._wake.set()
            self.teller.is_busy = bool(self._in_flight)
            await self._clock.sleep(HOUSEKEEPING_SECONDS)

"""Placements under way: each is assumed in the World, written, and ends with its pod bound or everything given back.

Given placements that were decided. Who shares a claim with one that is being written waits for it; so many write at
once, and who waits for others to make something ready keeps nobody from writing. Never decides a placement.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, NamedTuple

from dovetail.loops import (
    awaited,
    carry,
    claiming,
    gate,
    parts,
    recovery,
    report,
    settle,
    tell,
    together,
    waiting,
)
from dovetail.loops import intents as keeping
from dovetail.model import claims, kinds, plan, pods, reservations
from dovetail.ports import api as apis
from dovetail.ports import clock as clocks
from dovetail.ports import failures
from dovetail.schedule import claims as pod_claims
from dovetail.schedule import order
from dovetail.schedule.gangs import minimum
from dovetail.world import events
from dovetail.world.events import ObjectKey
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.schedule")


Members = Sequence[tuple[pods.Pod, plan.Placement]]
Evict = Callable[[plan.GangRef, Sequence[pods.Pod], str], Awaitable[None]]  # these, because of that


class Flight(NamedTuple):
    """A placement being written."""

    placement: plan.Placement
    ended: asyncio.Event


class Held(NamedTuple):
    """A claim that is held for nothing: by whom, and the pods that must not have a node by now."""

    claim: claims.ResourceClaim
    users: tuple[str, ...]
    pods: tuple[pods.Pod, ...]


class Signals(NamedTuple):
    """Whom a flight tells."""

    wake: Callable[[], None]  # something may be decided now
    stir: Callable[[ObjectKey], None]  # something happened that could help these
    broke: Callable[[Exception, Iterable[str]], None]  # writing must end; over these pods, by uid
    saw: Callable[[claims.ResourceClaim], None]  # what a write answered is news too


class Flights:
    """What is being written, by the uid of its pod."""

    def __init__(
        self,
        world: World,
        carrier: carry.Carrier,
        settler: settle.Settler,
        *,
        gate_: gate.Gate,
        clock: clocks.Clock,
        queue: waiting.Waiting,
        teller: tell.Teller,
        report_: report.Report,
        signals: Signals,
        keeper: keeping.Keeper,
        evict: Evict,
    ) -> None:
        self._world = world
        self._carrier = carrier
        self._settler = settler
        self._gate = gate_
        self._clock = clock
        self._queue = queue
        self._teller = teller
        self._report = report_
        self._signals = signals
        self._keeper = keeper
        self._evict = evict
        self._unwinding: set[str] = set()  # pods of gangs that are being taken back
        self._in_flight: dict[str, Flight] = {}
        self._allocating: dict[ObjectKey, Flight] = {}  # who gives a claim its devices right now
        self.releasing: set[ObjectKey] = set()
        self.tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._in_flight)

    def __contains__(self, uid: str) -> bool:
        return uid in self._in_flight

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being written or given back."""
        return not self._in_flight and not self.releasing and not self._unwinding

    def pod_gone(self, uid: str) -> None:
        """Its writes may still arrive: the devices stay taken until they are answered."""
        flight = self._in_flight.get(uid)
        if flight is not None:
            for key, result in carry.allocations_of(flight.placement).items():
                self._world.hold(f"in-flight/{uid}/{key[1]}", result)

    def start(self, pod: pods.Pod, placement: plan.Placement) -> None:
        """Takes a decision as done and begins to write it."""
        uses, before = awaited.claims_of(pod), self._others(pod)
        flight = self._depart(pod, placement, asyncio.Event())
        work = self._carry(pod, flight, uses, before)
        self.begin(self.guarded(str(placement.pod), work, uids=(placement.pod.uid,)))

    def start_together(self, gang: plan.GangRef, members: Members, *, begun: parts.Begun | None = None) -> None:
        """Takes a decision about a gang as done and begins to write it; `begun` if somebody else began before."""
        before = [other for pod, _ in members for other in self._others(pod)]
        ended = asyncio.Event()
        crew: list[tuple[pods.Pod, Flight]] = []
        try:
            for pod, placement in members:
                crew.append((pod, self._depart(pod, placement, ended)))
        except Exception:  # nothing of it is written yet: no part of the gang stays behind
            for pod, flight in crew:
                self._land(flight)
                self._world.forget(pod)
            raise
        work = self._carry_together(gang, crew, before, begun)
        self.begin(self.guarded(str(gang), work, uids=[pod.metadata.uid for pod, _ in crew]))

    def take_back(self, begun: parts.Begun, members: Iterable[pods.Pod], *, why: str) -> None:
        """What somebody began for these is given back; what runs of the gang too, unless that is enough of it."""
        held = [(pod, carry.Abandoned(why, release=recovery.held_by(pod, self._world))) for pod in members]
        self._unwinding.update(pod.metadata.uid for pod, _ in held)
        uids = [one.uid for one in begun.members]
        if not begun.is_whole:  # who else was to start is not known: whoever is of the gang counts
            uids += sorted(self._world.gangs.members((begun.gang.namespace, begun.gang.name)))
        self.begin(self.guarded(str(begun.gang), self._unwind(begun.gang, held, begun, uids=uids), uids=uids))

    @property
    def is_unwinding_any(self) -> bool:
        """Whether something of any pod is being given back."""
        return bool(self._unwinding or self.releasing)

    def is_unwinding(self, pod: pods.Pod) -> bool:
        """Whether something of the pod is being given back: it is not decided about meanwhile."""
        uses = awaited.claims_of(pod)
        return pod.metadata.uid in self._unwinding or not self.releasing.isdisjoint(uses)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Goes on beside everything else, until it ends or scheduling does."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _others(self, pod: pods.Pod) -> list[Flight]:
        """Who has to end first: they give a claim of the pod its devices."""
        return [self._allocating[key] for key in awaited.claims_of(pod) if key in self._allocating]

    def _depart(self, pod: pods.Pod, placement: plan.Placement, ended: asyncio.Event) -> Flight:
        allocations = carry.allocations_of(placement)
        try:
            self._world.assume(pod, placement.node, allocations, volumes=placement.volumes)
        except Exception:
            self._world.forget(pod)
            raise
        self._in_flight[placement.pod.uid] = flight = Flight(placement, ended)
        self._allocating.update(dict.fromkeys(allocations, flight))
        return flight

    async def guarded(self, what: str, work: Coroutine[Any, Any, None], *, uids: Iterable[str] = ()) -> None:
        """A failure ends scheduling: whoever leads next begins from what is written."""
        try:
            await work
        except failures.Fenced as fenced:
            self._signals.broke(fenced, ())
        except Exception as error:  # nobody knows what is written: whoever leads next begins from that
            LOG.exception("carrying out failed", extra={"what": what})
            self._signals.broke(error, uids)

    async def _carry(self, pod: pods.Pod, flight: Flight, uses: tuple[ObjectKey, ...], before: list[Flight]) -> None:
        placement, began = flight.placement, self._clock.monotonic()
        await _ended(before)  # who shares a claim waits until it has its devices
        async with self._gate.entered(placement.pod.uid):
            ending = await self._carrier.carry(placement, uses)
        self._land(flight)
        if isinstance(ending, carry.Bound):
            self._bound(pod, placement, self._clock.monotonic() - began)
        else:
            self._report.abandoned(self._clock.monotonic() - began)
            self._abandoned(pod, ending)
        self._signals.wake()

    # Gangs

    async def _carry_together(
        self,
        gang: plan.GangRef,
        crew: list[tuple[pods.Pod, Flight]],
        before: list[Flight],
        begun: parts.Begun | None,
    ) -> None:
        began = self._clock.monotonic()
        await _ended(before)
        loads = [carry.Load(flight.placement, awaited.claims_of(pod), []) for pod, flight in crew]
        endings: tuple[carry.Ending, ...]
        try:
            begun = begun or await self._keeper.write(gang, loads)  # before the first of its writes
            endings = await together.Together(self._carrier, self._gate, loads).endings()
        except failures.Fenced:
            raise
        except failures.ApiFailure as refused:
            said = f"the API server refuses: {refused}"
            is_futile = isinstance(refused, failures.Futile)
            endings = tuple(carry.Abandoned(said, is_refused=True, is_futile=is_futile) for _ in loads)
        seconds = self._clock.monotonic() - began
        left: list[tuple[pods.Pod, carry.Abandoned]] = []
        for (pod, flight), ending in zip(crew, endings, strict=True):
            self._land(flight)
            if isinstance(ending, carry.Bound):
                self._bound(pod, flight.placement, seconds)
            else:
                self._report.abandoned(seconds)
                self._world.forget(pod)
                self._unwinding.add(pod.metadata.uid)
                left.append((pod, ending))
        self._report.gang(len(crew) - len(left), of=len(crew))
        LOG.info("gang", extra={"gang": str(gang), "bound": len(crew) - len(left), "abandoned": len(left)})
        members = [one.uid for one in begun.members] if begun else [pod.metadata.uid for pod, _ in crew]
        await self._unwind(gang, left, begun, uids=members if left else [])

    async def _unwind(
        self,
        gang: plan.GangRef,
        left: list[tuple[pods.Pod, carry.Abandoned]],
        begun: parts.Begun | None,
        *,
        uids: list[str],
    ) -> None:
        """Gives back what the others of a gang hold, takes back those that run if they are too few; then it is over."""
        for pod, ending in left:
            self._put_off(pod.metadata.uid, ending)
        held = self._held_by([(key, pod) for pod, ending in left for key in ending.release])
        self.releasing.update(events.key_of(claim) for claim, _, _ in held)
        await asyncio.gather(*(self._release(*one) for one in held))
        if uids:
            await self._retreat(gang, uids, left[0][1].reason if left else "some of its pods are gone")
        await self._keeper.end(begun)
        if not left:
            self._keeper.is_complete(gang)
        else:
            self._signals.stir(awaited.ANYBODY)  # what was promised to them is free again
        self._unwinding.difference_update(pod.metadata.uid for pod, _ in left)
        self._signals.wake()

    async def _retreat(self, gang: plan.GangRef, uids: list[str], why: str) -> None:
        """Those that got their nodes lose them again, unless they are enough of the gang to run."""
        if not minimum.is_short(gang, self._world):
            return
        started = [
            pod
            for uid in dict.fromkeys(uids)
            if (pod := self._world.pods.get(uid)) is not None and self._is_placed(pod)
        ]
        if started:
            await self._evict(gang, started, why)

    def _is_placed(self, pod: pods.Pod) -> bool:
        return bool(pod.spec.node_name) or pod.metadata.uid in self._world.assumed

    def _land(self, flight: Flight) -> None:
        uid = flight.placement.pod.uid
        flight.ended.set()
        del self._in_flight[uid]
        for key in carry.allocations_of(flight.placement):
            if self._allocating.get(key) is flight:
                del self._allocating[key]
            name = f"in-flight/{uid}/{key[1]}"
            if name in self._world.held:
                self._world.release(name)

    def _bound(self, pod: pods.Pod, placement: plan.Placement, seconds: float) -> None:
        self._report.bound(placement.pod.uid, seconds)
        self._teller.bound(pod, placement.node)
        LOG.debug("bound", extra={"pod": str(placement.pod), "node": placement.node})

    def _abandoned(self, pod: pods.Pod, ending: carry.Abandoned) -> None:
        uid = events.pod_id(pod)
        self._world.forget(pod)
        self._signals.stir(awaited.VOLUMES)  # what was promised to it is free again
        LOG.info("abandoned", extra={"pod": f"{pod.metadata.namespace}/{pod.metadata.name}", "why": ending.reason})
        for key in ending.release:
            self.release(key, uid, why=ending.reason)
        self._put_off(uid, ending)

    def _put_off(self, uid: str, ending: carry.Abandoned) -> None:
        latest = self._world.pods.get(uid)
        if latest is None or latest.spec.node_name:
            return
        if ending.is_refused:
            self._teller.failed(latest, ending.reason)
        if ending.is_futile:
            self._report.gave_up("binding")
        self._queue.delay(uid, order.rank(latest), self._clock.monotonic(), is_futile=ending.is_futile)
        self._report.queued(uid, "backoff", "ScheduleAttemptFailure")

    # Giving back

    def release(self, key: ObjectKey, pod_uid: str, *, why: str) -> None:
        """Takes a claim's devices back from a pod that does not run; its group keeps them while any of it does."""
        if pod_uid in self._in_flight or pod_uid in self._world.assumed:
            return  # it is being bound, or was and we have not heard of it yet
        pod = self._world.pods.get(pod_uid)
        claim = self._world.claims.get(key)
        if claim is not None and pod is None:
            self._begin_release(claim, (pod_uid,), (), why)
        elif claim is not None and pod is not None:
            for one in self._held_by([(key, pod)]):
                self._begin_release(*one, why)

    def give_back(self, key: ObjectKey, why: str) -> None:
        """Takes a claim's devices back from all its users: nobody of them is anywhere."""
        claim = self._world.claims.get(key)
        if claim is not None:
            members = (self._world.pods.get(id_) for id_ in pod_claims.users_of(claim, self._world))
            waiting_ = tuple(pod for pod in members if pod is not None and not pod.spec.node_name)
            self._begin_release(claim, tuple(user.uid for user in claim.status.reserved_for), waiting_, why)

    def _held_by(self, held: Iterable[tuple[ObjectKey, pods.Pod]]) -> list[Held]:
        """What pods that do not run hold, each claim once for each user; a group's only if nobody of it runs."""
        found: dict[tuple[ObjectKey, str], Held] = {}
        for key, pod in held:
            claim, user = self._world.claims.get(key), self._world.user_of(pod, key)
            is_used = reservations.is_group(user) and not pod_claims.is_deserted(self._world, user, key[0])
            if claim is None or is_used:
                continue
            before = found.get((key, user.uid))
            checked = (*(before.pods if before is not None else ()), pod)
            found[key, user.uid] = Held(claim, (user.uid,), checked)
        return [*found.values()]

    def _begin_release(
        self, claim: claims.ResourceClaim, user_uids: tuple[str, ...], checked: tuple[pods.Pod, ...], why: str
    ) -> None:
        key = events.key_of(claim)
        if key in self.releasing:
            return
        self.releasing.add(key)
        LOG.info("releasing", extra={"claim": f"{key[0]}/{key[1]}", "why": why})
        self.begin(self._release(claim, user_uids, checked))

    async def _release(
        self, claim: claims.ResourceClaim, user_uids: tuple[str, ...], checked: tuple[pods.Pod, ...]
    ) -> None:
        key = events.key_of(claim)
        try:
            for pod in checked:
                if await self._carrier.is_bound(pod):
                    return  # what we saw was old
            step = claiming.release(claim.metadata.uid, *user_uids)
            ending = await self._settler.brought_about(apis.Target(kinds.CLAIM, *key), claim, step)
            if isinstance(ending, settle.Done):
                self._signals.saw(ending.found)
        except failures.Fenced as fenced:
            self._signals.broke(fenced, ())
        except failures.ApiFailure as failure:
            # Its devices stay allocated, and count as such, until its pod is asked about again or is gone.
            LOG.warning("not released", extra={"claim": f"{key[0]}/{key[1]}", "why": str(failure)})
            self._report.gave_up("release")
            note = f"its devices are held for nothing: the API server does not take their release: {failure}"
            self._teller.about_claim(key, claim.metadata.uid, reason="NotReleased", note=note)
        finally:
            self.releasing.discard(key)
            self._queue.claim_changed(key)
            self._signals.wake()


async def _ended(before: Iterable[Flight]) -> None:
    for other in before:
        await other.ended.wait()

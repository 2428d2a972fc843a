"""Binding cycles: each placement is assumed in the World, written, and ends bound or released.

Given placements that were decided. A pod that shares a claim with one being written waits for it. Only
so many write at once, and a pod that waits for another controller does not count. Never decides a
placement.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.live import handle as handles
from dovetail.live.bind import binder, gang_binder, write_limiter
from dovetail.live.evict import evictor as evictors
from dovetail.live.intents import intent_parts, intent_store, recovery
from dovetail.live.queue import awaited_objects
from dovetail.model import plan, reservations
from dovetail.ports import failures
from dovetail.schedule import pod_order
from dovetail.schedule.gang import staleness
from dovetail.schedule.node import pod_claims
from dovetail.world import events
from dovetail.world.events import ObjectKey

LOG = logging.getLogger("dovetail.schedule")


Members = Sequence[tuple[pods.Pod, plan.Placement]]


class BindingPod(NamedTuple):
    """A placement being written."""

    placement: plan.Placement
    ended: asyncio.Event


class UnusedClaim(NamedTuple):
    """A claim that no pod uses: its users, and the pods that must turn out to have no node."""

    claim: claims.ResourceClaim
    users: tuple[str, ...]
    pods: tuple[pods.Pod, ...]


class BindingCycles:
    """Placements being written, by pod uid."""

    def __init__(
        self,
        handle: handles.Handle,
        pod_binder: binder.Binder,
        limiter: write_limiter.WriteLimiter,
        *,
        intents: intent_store.IntentStore,
        evictor: evictors.Evictor,
    ) -> None:
        self._world = handle.world
        self._clock = handle.clock
        self._queue = handle.queue
        self._requeuer = handle.requeuer
        self._recorder = handle.recorder
        self._metrics = handle.metrics
        self._background = handle.background
        self._most_pods = handle.settings.in_flight_pods
        self._binder = pod_binder
        self._limiter = limiter
        self._intents = intents
        self._evictor = evictor
        self._unwinding: set[str] = set()  # pods of gangs whose start is being undone
        self._in_flight: dict[str, BindingPod] = {}
        self._allocating: dict[ObjectKey, BindingPod] = {}  # which flight gives a claim its devices
        self.releasing: set[ObjectKey] = set()

    def __len__(self) -> int:
        return len(self._in_flight)

    def __contains__(self, uid: str) -> bool:
        return uid in self._in_flight

    @property
    def room(self) -> int:
        """How many more pods may be written; pods that wait for other controllers do not count."""
        return self._most_pods - len(self._in_flight) + self._limiter.aside

    @property
    def is_writing(self) -> bool:
        """Whether a pod is being written now: not if all of them wait for other controllers."""
        return len(self._in_flight) > self._limiter.aside

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being written or released."""
        return not self._in_flight and not self.releasing and not self._unwinding

    def pod_gone(self, uid: str) -> None:
        """A pod is gone whose writes may still arrive: its devices stay taken until then."""
        binding = self._in_flight.get(uid)
        if binding is not None:
            for key, result in binder.allocations_of(binding.placement).items():
                self._world.hold(_hold_name(uid, key), result)

    # One pod

    def start(self, pod: pods.Pod, placement: plan.Placement) -> None:
        """Assumes a placement and begins to write it."""
        load = binder.PodBinding(placement, reservations.used_claims(pod), [])
        before = self._sharing_claims(pod)
        binding = self._assume(pod, placement, asyncio.Event())
        work = self._write(pod, binding, load, before)
        self._background.begin_guarded(str(placement.pod), work, uids=(placement.pod.uid,))

    async def _write(
        self, pod: pods.Pod, binding: BindingPod, load: binder.PodBinding, before: list[BindingPod]
    ) -> None:
        placement, began = binding.placement, self._clock.monotonic()
        await _ended(before)
        async with self._limiter.writing(placement.pod.uid):
            ending = await self._binder.bind_pod(load)
        self._finish(binding)
        seconds = self._clock.monotonic() - began
        if isinstance(ending, binder.Bound):
            self._bound(pod, placement, seconds)
        else:
            self._metrics.abandoned(seconds)
            self._abandoned(pod, ending)
        self._requeuer.wake.set()

    def _sharing_claims(self, pod: pods.Pod) -> list[BindingPod]:
        """The flights that have to end first: they give a claim of the pod its devices."""
        keys = reservations.used_claims(pod)
        return [self._allocating[key] for key in keys if key in self._allocating]

    def _assume(self, pod: pods.Pod, placement: plan.Placement, ended: asyncio.Event) -> BindingPod:
        allocations = binder.allocations_of(placement)
        try:
            self._world.assume(pod, placement.node, allocations, volumes=placement.volumes)
        except Exception:
            self._world.forget(pod)
            raise
        self._in_flight[placement.pod.uid] = binding = BindingPod(placement, ended)
        self._allocating.update(dict.fromkeys(allocations, binding))
        return binding

    def _finish(self, binding: BindingPod) -> None:
        """No write of the placement is under way any more."""
        uid = binding.placement.pod.uid
        binding.ended.set()
        del self._in_flight[uid]
        for key in binder.allocations_of(binding.placement):
            if self._allocating.get(key) is binding:
                del self._allocating[key]
            if _hold_name(uid, key) in self._world.held:
                self._world.release(_hold_name(uid, key))

    def _bound(self, pod: pods.Pod, placement: plan.Placement, seconds: float) -> None:
        self._metrics.bound(placement.pod.uid, seconds)
        self._recorder.bound(pod, placement.node)
        for warning in placement.warnings:
            note = f"node {placement.node}: {warning}"
            self._recorder.record_pod_event(pod, reason=warning.code, note=note, kind="Warning")
        LOG.debug("pod.bound", extra={"pod": str(placement.pod), "node": placement.node})

    def _abandoned(self, pod: pods.Pod, ending: binder.Abandoned) -> None:
        uid = events.pod_id(pod)
        self._world.forget(pod)
        self._requeuer.request(awaited_objects.VOLUMES)  # volumes assumed for it are free again
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        LOG.info("pod.abandoned", extra={"pod": name, "why": ending.reason})
        for key in ending.release:
            self.release(key, uid, why=ending.reason)
        self._back_off(uid, ending)

    def _back_off(self, uid: str, ending: binder.Abandoned) -> None:
        pod = self._world.pods.get(uid)
        if pod is None or pod.spec.node_name:
            return
        if ending.is_refused:
            self._recorder.failed(pod, ending.reason)
        if ending.is_futile:
            self._metrics.gave_up("binding")
        now = self._clock.monotonic()
        self._queue.delay(uid, pod_order.rank(pod), now, is_futile=ending.is_futile)
        self._metrics.queued(uid, "backoff", "ScheduleAttemptFailure")

    # Gangs

    def start_gang(
        self, gang: plan.GangRef, members: Members, *, intent: intent_parts.GangStart | None = None
    ) -> None:
        """Assumes the placements of a gang and begins to write them.

        `intent` is that of a previous leader whose writes are completed.
        """
        before = [binding for pod, _ in members for binding in self._sharing_claims(pod)]
        ended = asyncio.Event()
        binding_cycles: list[tuple[pods.Pod, BindingPod]] = []
        try:
            for pod, placement in members:
                binding_cycles.append((pod, self._assume(pod, placement, ended)))
        except Exception:  # nothing of it is written yet: no part of the gang stays assumed
            for pod, flight in binding_cycles:
                self._finish(flight)
                self._world.forget(pod)
            raise
        work = self._write_gang(gang, binding_cycles, before, intent)
        uids = [pod.metadata.uid for pod, _ in binding_cycles]
        self._background.begin_guarded(str(gang), work, uids=uids)

    async def _write_gang(
        self,
        gang: plan.GangRef,
        binding_cycles: list[tuple[pods.Pod, BindingPod]],
        before: list[BindingPod],
        intent: intent_parts.GangStart | None,
    ) -> None:
        began = self._clock.monotonic()
        await _ended(before)
        loads = [
            binder.PodBinding(binding.placement, reservations.used_claims(pod), [])
            for pod, binding in binding_cycles
        ]
        endings: tuple[binder.Ending, ...]
        try:
            intent = intent or await self._intents.write(gang, loads)  # before the first write
            endings = await gang_binder.GangBinder(self._binder, self._limiter, loads).endings()
        except failures.Fenced:
            raise
        except failures.ApiFailure as refused:
            reason = f"the API server refuses: {refused}"
            is_futile = isinstance(refused, failures.Futile)
            refusal = binder.Abandoned(reason, is_refused=True, is_futile=is_futile)
            endings = (refusal,) * len(loads)
        abandoned = self._finish_gang(binding_cycles, endings, self._clock.monotonic() - began)
        bound_count = len(binding_cycles) - len(abandoned)
        self._metrics.gang(bound_count, of=len(binding_cycles))
        LOG.info(
            "gang.written",
            extra={"gang": str(gang), "bound": bound_count, "abandoned": len(abandoned)},
        )
        uids = [pod.metadata.uid for pod, _ in binding_cycles]
        if intent is not None:
            uids = [member.uid for member in intent.members]
        await self._unwind(gang, abandoned, intent, uids=uids if abandoned else [])

    def _finish_gang(
        self,
        binding_cycles: list[tuple[pods.Pod, BindingPod]],
        endings: tuple[binder.Ending, ...],
        seconds: float,
    ) -> list[tuple[pods.Pod, binder.Abandoned]]:
        """Ends all flights of a gang. Returns the pods that got no node."""
        abandoned: list[tuple[pods.Pod, binder.Abandoned]] = []
        for (pod, binding), ending in zip(binding_cycles, endings, strict=True):
            self._finish(binding)
            if isinstance(ending, binder.Bound):
                self._bound(pod, binding.placement, seconds)
            else:
                self._metrics.abandoned(seconds)
                self._world.forget(pod)
                self._unwinding.add(pod.metadata.uid)
                abandoned.append((pod, ending))
        return abandoned

    def undo_start(
        self, intent: intent_parts.GangStart, members: Iterable[pods.Pod], *, why: str
    ) -> None:
        """Undoes the start that a previous leader began for these pods.

        Pods of the gang that run are evicted too, unless they are enough of it.
        """
        abandoned = [
            (pod, binder.Abandoned(why, release=recovery.reserved_claims(pod, self._world)))
            for pod in members
        ]
        self._unwinding.update(pod.metadata.uid for pod, _ in abandoned)
        gang = intent.gang
        uids = [member.uid for member in intent.members]
        if not intent.is_whole:  # the other members are unknown: every pod of the gang counts
            uids += sorted(self._world.gangs.members((gang.namespace, gang.name)))
        work = self._unwind(gang, abandoned, intent, uids=uids)
        self._background.begin_guarded(str(gang), work, uids=uids)

    @property
    def is_undoing_any(self) -> bool:
        """Whether anything of any pod is being released."""
        return bool(self._unwinding or self.releasing)

    def is_being_undone(self, pod: pods.Pod) -> bool:
        """Whether something of the pod is being released: it is not decided about meanwhile."""
        uses = reservations.used_claims(pod)
        return pod.metadata.uid in self._unwinding or not self.releasing.isdisjoint(uses)

    async def _unwind(
        self,
        gang: plan.GangRef,
        abandoned: list[tuple[pods.Pod, binder.Abandoned]],
        intent: intent_parts.GangStart | None,
        *,
        uids: list[str],
    ) -> None:
        """Releases what abandoned members hold, evicts those that run if they are too few.

        The intent goes last: a crash before that makes the next leader do this again.
        """
        for pod, ending in abandoned:
            self._back_off(pod.metadata.uid, ending)
        releases = [(key, pod) for pod, ending in abandoned for key in ending.release]
        unused = self._unused_claims(releases)
        self.releasing.update(events.key_of(unused_claim.claim) for unused_claim in unused)
        await asyncio.gather(*(self._release(*claim) for claim in unused))
        if uids:
            why = abandoned[0][1].reason if abandoned else "some of its pods are gone"
            await self._evict_if_short(gang, uids, why)
        await self._intents.remove_all(intent)
        if abandoned:
            self._requeuer.request()  # what was assumed for them is free again
        else:
            self._intents.reset_attempts(gang)
        self._unwinding.difference_update(pod.metadata.uid for pod, _ in abandoned)
        self._requeuer.wake.set()

    async def _evict_if_short(self, gang: plan.GangRef, uids: list[str], why: str) -> None:
        """Evicts the members that got their nodes, unless they are enough of the gang to run."""
        if not staleness.is_short(gang, self._world):
            return
        members = [self._world.pods.get(uid) for uid in dict.fromkeys(uids)]
        started = [pod for pod in members if pod is not None and self._is_placed(pod)]
        if started:
            await self._evictor.evict_gang(gang, started, why)

    def _is_placed(self, pod: pods.Pod) -> bool:
        return bool(pod.spec.node_name) or pod.metadata.uid in self._world.assumed

    # Releasing claims

    def release(self, key: ObjectKey, pod_uid: str, *, why: str) -> None:
        """Takes a claim's devices back from a pod that does not run; a group keeps its own."""
        if pod_uid in self._in_flight or pod_uid in self._world.assumed:
            return  # it is being bound, or was bound and the watch has not shown it yet
        pod = self._world.pods.get(pod_uid)
        claim = self._world.claims.get(key)
        if claim is None:
            return
        if pod is None:
            self._begin_release(UnusedClaim(claim, (pod_uid,), ()), why)
            return
        for unused in self._unused_claims([(key, pod)]):
            self._begin_release(unused, why)

    def release_unused(self, key: ObjectKey, why: str) -> None:
        """Takes a claim's devices back from all its users: none of them has a node."""
        claim = self._world.claims.get(key)
        if claim is None:
            return
        user_ids = pod_claims.users_of(claim, self._world)
        members = [self._world.pods.get(pod_id) for pod_id in user_ids]
        waiting = tuple(pod for pod in members if pod is not None and not pod.spec.node_name)
        user_uids = tuple(user.uid for user in claim.status.reserved_for)
        self._begin_release(UnusedClaim(claim, user_uids, waiting), why)

    def _unused_claims(self, releases: Iterable[tuple[ObjectKey, pods.Pod]]) -> list[UnusedClaim]:
        """What pods without a node hold, each claim once per user.

        A claim of a PodGroup is unused only if no pod of the group runs.
        """
        unused: dict[tuple[ObjectKey, str], UnusedClaim] = {}
        for key, pod in releases:
            claim, user = self._world.claims.get(key), self._world.user_of(pod, key)
            is_group = reservations.is_group(user)
            is_used = is_group and not pod_claims.is_deserted(self._world, user, key[0])
            if claim is None or is_used:
                continue
            before = unused.get((key, user.uid))
            unbound = (*before.pods, pod) if before is not None else (pod,)
            unused[key, user.uid] = UnusedClaim(claim, (user.uid,), unbound)
        return [*unused.values()]

    def _begin_release(self, unused: UnusedClaim, why: str) -> None:
        key = events.key_of(unused.claim)
        if key in self.releasing:
            return
        self.releasing.add(key)
        LOG.info("claim.releasing", extra={"claim": f"{key[0]}/{key[1]}", "why": why})
        self._background.begin(self._release(*unused))

    async def _release(
        self, claim: claims.ResourceClaim, user_uids: tuple[str, ...], unbound: tuple[pods.Pod, ...]
    ) -> None:
        key = events.key_of(claim)
        try:
            await self._binder.release(claim, user_uids, unbound=unbound)
        except failures.Fenced as fenced:
            self._background.end_tenure(fenced)
        except failures.ApiFailure as failure:
            # Its devices stay allocated, and count as such, until its pod is tried again or gone.
            why = str(failure)
            LOG.warning("claim.not_released", extra={"claim": f"{key[0]}/{key[1]}", "why": why})
            self._metrics.gave_up("release")
            note = (
                "its devices are held but no pod uses them: "
                f"the API server does not take their release: {failure}"
            )
            self._recorder.record_claim_event(
                key, claim.metadata.uid, reason="NotReleased", note=note
            )
        finally:
            self.releasing.discard(key)
            self._queue.requeue(key)
            self._requeuer.wake.set()


def _hold_name(uid: str, key: ObjectKey) -> str:
    """The name under which the World holds the devices of a pod that went during its writes."""
    return f"in-flight/{uid}/{key[1]}"


async def _ended(before: Iterable[BindingPod]) -> None:
    """A pod that shares a claim waits until the claim has its devices."""
    for binding in before:
        await binding.ended.wait()

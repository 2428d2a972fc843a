"""Decides beside the scheduler in charge and writes nothing: where would we differ?

Given the same picture. A pod is decided about when it could first be placed; when the other scheduler has bound it,
its node and devices are compared with ours. Assumes nothing, so the World is always what the other scheduler made it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from dovetail.loops import awaited, claiming, picture, schedule, tell
from dovetail.model import claims, kinds, plan, pods, policy
from dovetail.ports import clock as clocks
from dovetail.ports import meter
from dovetail.schedule import cycle
from dovetail.world import events

BATCH: Final = 64
PAUSE_SECONDS: Final = 0.02

Device = tuple[str, str, str]  # driver, pool, device


class Comparison(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One pod, as the scheduler in charge placed it and as we would have."""

    pod: str
    result: str  # same | other-devices | other-node | we-refuse | late
    theirs: str
    ours: str = ""
    their_devices: tuple[str, ...] = ()
    our_devices: tuple[str, ...] = ()
    score: float | None = None
    why: str = ""


class Shadow:
    """Opinions about pods that have no node yet, and what became of them."""

    def __init__(
        self,
        picture_: picture.Picture,
        *,
        clock: clocks.Clock,
        meter_: meter.Meter,
        settings: schedule.Settings,
        report: Callable[[Comparison], None],
    ) -> None:
        self._picture = picture_
        self._clock = clock
        self._meter = meter_
        self._policy: policy.Policy = settings.policy
        self._budget = settings.budget
        self._report = report
        self._opinions: dict[str, plan.Placement | plan.Refusal] = {}
        self._to_ask: dict[str, None] = {}
        self._bound: dict[str, pods.Pod] = {}  # their claims' devices are not heard of yet: feeds overtake each other
        self._wake = asyncio.Event()
        self.totals: dict[str, int] = {}

    async def run(self) -> None:
        """Compares until cancelled."""
        await self._picture.synced.wait()
        self._picture.listen(self.observe)
        self._to_ask.update(dict.fromkeys(events.pod_id(pod) for pod in self._picture.world.pending()))
        self._wake.set()
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._to_ask:
                    self._ask()
                    await self._clock.sleep(PAUSE_SECONDS)
        finally:
            self._picture.unlisten(self.observe)

    def observe(self, kind: kinds.Kind, event: events.Event, before: Any) -> None:
        """Takes notice of a change the World already shows."""
        found = event.object
        if isinstance(found, pods.Pod):
            self._pod_changed(found, before, is_there=isinstance(event, events.Changed))
        elif isinstance(found, claims.ResourceClaim):
            for pod in [pod for pod in self._bound.values() if self._is_heard(pod)]:
                del self._bound[events.pod_id(pod)]
                self._compare(pod)
            for uid in [uid for uid, said in self._opinions.items() if isinstance(said, plan.Refusal)]:
                self._to_ask.setdefault(uid)
            self._wake.set()

    def _pod_changed(self, pod: pods.Pod, before: pods.Pod | None, *, is_there: bool) -> None:
        uid = events.pod_id(pod)
        if not is_there:
            self._opinions.pop(uid, None)
            self._to_ask.pop(uid, None)
            self._bound.pop(uid, None)
        elif pod.spec.node_name:
            if before is not None and not before.spec.node_name and self._is_watched(pod):
                if self._is_heard(pod):
                    self._compare(pod)
                else:
                    self._bound[uid] = pod
            self._to_ask.pop(uid, None)
        elif self._is_watched(pod):
            self._to_ask.setdefault(uid)
            self._wake.set()

    def _is_heard(self, pod: pods.Pod) -> bool:
        """Whether the devices of all its claims are known."""
        known = (self._picture.world.claims.get(key) for key in awaited.claims_of(pod))
        return all(claim is not None and claim.status.allocation is not None for claim in known)

    def _is_watched(self, pod: pods.Pod) -> bool:
        names = self._policy.scheduler_names
        return not names or pod.spec.scheduler_name in names

    def _ask(self) -> None:
        taken = [self._to_ask.popitem()[0] for _ in range(min(BATCH, len(self._to_ask)))]
        asked = [uid for uid in taken if not self._is_settled(uid)]
        decided = cycle.decide(self._picture.world, self._policy, self._clock.now(), self._budget, among=asked)
        for placement in decided.placements:
            self._opinions[placement.pod.uid] = placement
        for refusal in decided.refusals:
            self._opinions[refusal.pod.uid] = refusal

    def _is_settled(self, uid: str) -> bool:
        """Whether the other scheduler has decided: an opinion formed after that would only repeat its own."""
        pod = self._picture.world.pods.get(uid)
        held = (self._picture.world.claims.get(key) for key in awaited.claims_of(pod)) if pod is not None else ()
        return pod is None or any(claim is not None and claiming.is_user(claim, uid) for claim in held)

    def _compare(self, pod: pods.Pod) -> None:
        opinion = self._opinions.pop(events.pod_id(pod), None)
        if isinstance(opinion, plan.Refusal) and tell.is_passing(opinion):
            opinion = None  # its claims were not made yet: that was no opinion about where it should go
        made = compared(pod, opinion, self._devices(pod))
        self.totals[made.result] = self.totals.get(made.result, 0) + 1
        self._meter.count("dovetail_shadow_comparisons_total", result=made.result)
        self._report(made)

    def _devices(self, pod: pods.Pod) -> set[Device]:
        found: set[Device] = set()
        for key in awaited.claims_of(pod):
            claim = self._picture.world.claims.get(key)
            if claim is not None and claim.status.allocation is not None:
                found |= _devices_of(claim.status.allocation)
        return found


def compared(pod: pods.Pod, opinion: plan.Placement | plan.Refusal | None, theirs: set[Device]) -> Comparison:
    """How our opinion about a pod relates to where it went."""
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    node, listed = pod.spec.node_name, _texts(theirs)
    if opinion is None:
        return Comparison(pod=name, result="late", theirs=node, their_devices=listed, why="bound before we had decided")
    if isinstance(opinion, plan.Refusal):
        return Comparison(pod=name, result="we-refuse", theirs=node, their_devices=listed, why=opinion.summary)
    ours: set[Device] = set()
    for given in opinion.allocations:
        ours |= _devices_of(given.result)
    if opinion.made is not None:
        ours |= _devices_of(opinion.made.result)
    result = "other-node" if opinion.node != node else "same" if not ours or ours == theirs else "other-devices"
    return Comparison(
        pod=name,
        result=result,
        theirs=node,
        ours=opinion.node,
        their_devices=listed,
        our_devices=_texts(ours),
        score=opinion.score,
        why="; ".join(term.sentence for term in opinion.terms),
    )


def _devices_of(allocation: claims.AllocationResult) -> set[Device]:
    return {(one.driver, one.pool, one.device) for one in allocation.devices.results}


def _texts(devices: set[Device]) -> tuple[str, ...]:
    return tuple(sorted("/".join(one) for one in devices))

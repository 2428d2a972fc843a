"""Shadow mode: decides next to the scheduler in charge, writes nothing, and compares the results.

Given the informer's picture. A pod is decided about when it could first be placed; once the other
scheduler has bound it, its node and devices are compared with ours. Assumes nothing, so the World always
shows what the other scheduler did. Never writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from dovetail.kubetypes import registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.live.bind import claim_patches
from dovetail.live.cycle import scheduler_loop
from dovetail.live.informer import informer
from dovetail.live.report import recorder
from dovetail.model import plan, policy, reservations
from dovetail.ports import clock as clocks
from dovetail.ports import meter
from dovetail.schedule import decide
from dovetail.world import events

BATCH: Final = 64
PAUSE_SECONDS: Final = 0.02

Device = tuple[str, str, str]  # driver, pool, device


class Comparison(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One pod, as the scheduler in charge placed it and as we would have placed it."""

    pod: str
    result: str  # same | other-devices | other-node | we-refuse | late
    theirs: str
    ours: str = ""
    their_devices: tuple[str, ...] = ()
    our_devices: tuple[str, ...] = ()
    score: float | None = None
    why: str = ""


class Shadow:
    """Our decisions about pods without a node, and how they compare with the other scheduler's."""

    def __init__(
        self,
        picture_: informer.Informer,
        *,
        clock: clocks.Clock,
        meter_: meter.Meter,
        settings: scheduler_loop.Settings,
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
        # Bound pods whose claims' devices the watch has not shown yet: kinds are watched separately.
        self._bound: dict[str, pods.Pod] = {}
        self._wake = asyncio.Event()
        self.totals: dict[str, int] = {}

    async def run(self) -> None:
        """Compares until cancelled."""
        await self._picture.synced.wait()
        self._picture.listen(self.observe)
        self._to_ask.update(
            dict.fromkeys(events.pod_id(pod) for pod in self._picture.world.pending())
        )
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

    def observe(self, kind: registry.Kind, event: events.Event, before: Any) -> None:
        """Handles a change that the World already shows."""
        changed = event.object
        if isinstance(changed, pods.Pod):
            self._pod_changed(changed, before, is_there=isinstance(event, events.Changed))
        elif isinstance(changed, claims.ResourceClaim):
            self._claim_changed()

    def _claim_changed(self) -> None:
        comparable = [pod for pod in self._bound.values() if self._has_devices(pod)]
        for pod in comparable:
            del self._bound[events.pod_id(pod)]
            self._compare(pod)
        for uid, opinion in self._opinions.items():
            if isinstance(opinion, plan.Refusal):
                self._to_ask.setdefault(uid)
        self._wake.set()

    def _pod_changed(self, pod: pods.Pod, before: pods.Pod | None, *, is_there: bool) -> None:
        uid = events.pod_id(pod)
        if not is_there:
            self._opinions.pop(uid, None)
            self._to_ask.pop(uid, None)
            self._bound.pop(uid, None)
        elif pod.spec.node_name:
            was_pending = before is not None and not before.spec.node_name
            if was_pending and self._is_watched(pod):
                self._pod_bound(pod)
            self._to_ask.pop(uid, None)
        elif self._is_watched(pod):
            self._to_ask.setdefault(uid)
            self._wake.set()

    def _pod_bound(self, pod: pods.Pod) -> None:
        if self._has_devices(pod):
            self._compare(pod)
        else:
            self._bound[events.pod_id(pod)] = pod

    def _claims_of(self, pod: pods.Pod) -> list[claims.ResourceClaim | None]:
        return [self._picture.world.claims.get(key) for key in reservations.used_claims(pod)]

    def _has_devices(self, pod: pods.Pod) -> bool:
        """Whether the devices of all its claims are known."""
        return all(
            claim is not None and claim.status.allocation is not None
            for claim in self._claims_of(pod)
        )

    def _is_watched(self, pod: pods.Pod) -> bool:
        names = self._policy.scheduler_names
        return not names or pod.spec.scheduler_name in names

    def _ask(self) -> None:
        batch = [self._to_ask.popitem()[0] for _ in range(min(BATCH, len(self._to_ask)))]
        undecided = [uid for uid in batch if not self._is_settled(uid)]
        decided = decide.decide(
            self._picture.world, self._policy, self._clock.now(), self._budget, among=undecided
        )
        for placement in decided.placements:
            self._opinions[placement.pod.uid] = placement
        for refusal in decided.refusals:
            self._opinions[refusal.pod.uid] = refusal

    def _is_settled(self, uid: str) -> bool:
        """Whether the other scheduler has decided: deciding after that would only repeat its choice."""
        pod = self._picture.world.pods.get(uid)
        if pod is None:
            return True
        return any(
            claim is not None and claim_patches.is_user(claim, uid)
            for claim in self._claims_of(pod)
        )

    def _compare(self, pod: pods.Pod) -> None:
        opinion = self._opinions.pop(events.pod_id(pod), None)
        if isinstance(opinion, plan.Refusal) and recorder.is_transient(opinion):
            opinion = (
                None  # its claims or its gang were not there yet: that says nothing about its node
            )
        comparison = compared(pod, opinion, self._devices(pod))
        self.totals[comparison.result] = self.totals.get(comparison.result, 0) + 1
        self._meter.count("dovetail_shadow_comparisons_total", result=comparison.result)
        self._report(comparison)

    def _devices(self, pod: pods.Pod) -> set[Device]:
        devices: set[Device] = set()
        for claim in self._claims_of(pod):
            if claim is not None and claim.status.allocation is not None:
                devices |= _devices_of(claim.status.allocation)
        return devices


def compared(
    pod: pods.Pod, opinion: plan.Placement | plan.Refusal | None, theirs: set[Device]
) -> Comparison:
    """How our decision about a pod compares with where it went."""
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    node, their_devices = pod.spec.node_name, _texts(theirs)
    if opinion is None:
        return Comparison(
            pod=name,
            result="late",
            theirs=node,
            their_devices=their_devices,
            why="bound before we had decided",
        )
    if isinstance(opinion, plan.Refusal):
        return Comparison(
            pod=name,
            result="we-refuse",
            theirs=node,
            their_devices=their_devices,
            why=opinion.summary,
        )
    ours: set[Device] = set()
    for allocation in opinion.allocations:
        ours |= _devices_of(allocation.result)
    if opinion.made is not None:
        ours |= _devices_of(opinion.made.result)
    return Comparison(
        pod=name,
        result=_result(opinion.node == node, not ours or ours == theirs),
        theirs=node,
        ours=opinion.node,
        their_devices=their_devices,
        our_devices=_texts(ours),
        score=opinion.score,
        why="; ".join(term.sentence for term in opinion.terms),
    )


def _result(is_same_node: bool, are_same_devices: bool) -> str:
    if not is_same_node:
        return "other-node"
    return "same" if are_same_devices else "other-devices"


def _devices_of(allocation: claims.AllocationResult) -> set[Device]:
    results = allocation.devices.results
    return {(result.driver, result.pool, result.device) for result in results}


def _texts(devices: set[Device]) -> tuple[str, ...]:
    return tuple(sorted("/".join(device) for device in devices))

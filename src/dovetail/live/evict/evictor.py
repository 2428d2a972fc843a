"""Evicts victims: nominates the beneficiaries' nodes first, then writes each victim's condition and evicts it.

Given the evictions of a plan, each with rule, beneficiary and numbers. All victims for one beneficiary are tried as a
dry run before the first is evicted: where a disruption budget refuses one, none of them is evicted and the refused pod
is spared for a while. Victims under a budget are evicted first, one after the other; after the first refusal no more
are. Never chooses victims; never forces an eviction.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dovetail import timestamps
from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import pods
from dovetail.live import handle as handles
from dovetail.live.bind import write_retry
from dovetail.live.evict import disruption_limits, nominator, slot_recorder
from dovetail.model import plan
from dovetail.ports import api as apis
from dovetail.ports import failures

LOG = logging.getLogger("dovetail.evict")
DISRUPTION_TARGET: Final = "DisruptionTarget"
REASON: Final = "PreemptionByScheduler"  # core/v1: a reason of that condition
FIRST_SPARE: Final = 10.0
LONGEST_SPARE: Final = 120.0
AT_ONCE: Final = 16  # beneficiaries with a single victim, evicted for concurrently
SEEN_SECONDS: Final = 10.0  # longest wait for the watch to show an eviction before deciding again

Nominations = Mapping[str, str]


class _Spared(NamedTuple):
    until: float
    times: int


class Evictor:
    """Evictions in progress, and the pods that are spared after a refusal."""

    def __init__(
        self,
        handle: handles.Handle,
        writer: write_retry.Writer,
        *,
        nominator: nominator.Nominator,
        slots: slot_recorder.SlotRecorder,
        limits: disruption_limits.Listing = disruption_limits.no_budgets,
    ) -> None:
        self._writer = writer
        self._clock = handle.clock
        self._world = handle.world
        self._recorder = handle.recorder
        self._nominator = nominator
        self._meter = handle.meter
        self._saw = handle.picture.observe
        self._limits = limits
        self._slots = slots
        self._spared: dict[str, _Spared] = {}
        # Evicted, not yet seen ending in the World: uid, and until when to wait for the watch.
        self._unseen: dict[str, float] = {}
        self._busy = 0

    @property
    def is_busy(self) -> bool:
        """Whether the World does not show every victim yet: deciding now could evict others as well."""
        now = self._clock.monotonic()
        for uid, until in list(self._unseen.items()):
            if now >= until or self._is_ending(uid):
                del self._unseen[uid]
        return bool(self._busy or self._unseen)

    def _is_ending(self, uid: str) -> bool:
        pod = self._world.pods.get(uid)
        return pod is None or pod.metadata.deletion_timestamp is not None

    def spared(self) -> frozenset[str]:
        """Pods that may not be evicted for now."""
        now = self._clock.monotonic()
        return frozenset(uid for uid, spared in self._spared.items() if spared.until > now)

    def spared_for(self) -> float | None:
        """Seconds until the next pod is no longer spared; None where none is."""
        now = self._clock.monotonic()
        for uid in [uid for uid in self._spared if uid not in self._world.pods]:
            del self._spared[uid]

        ends = [spared.until for spared in self._spared.values()]
        future = [end for end in ends if end > now]
        return min(future) - now if future else None

    def execute(self, plan_: plan.Plan, changes: Nominations) -> Coroutine[Any, Any, None]:
        """Writes nominations, then evicts for the nominated pods. Busy as soon as it is called."""
        self._busy += 1
        return self._carry(plan_, changes)

    async def _carry(self, plan_: plan.Plan, changes: Nominations) -> None:
        try:
            failed = await self._nominator.write(changes, _gained(plan_.evictions))
            groups = {
                beneficiary: evictions
                for beneficiary, evictions in by_beneficiary(plan_.evictions).items()
                if not self._is_gone(beneficiary, plan_, failed)
            }
            await self._evict_groups(groups)
        finally:
            self._busy -= 1

    async def _evict_groups(
        self, groups: Mapping[plan.GangRef | None, Sequence[plan.Eviction]]
    ) -> None:
        """Single victims concurrently, then each set of victims by itself.

        A single victim cannot be evicted in part. Of several some could, if this process ended meanwhile.
        """
        namespaces = [
            eviction.pod.namespace for evictions in groups.values() for eviction in evictions
        ]
        limits = await disruption_limits.read(self._limits, namespaces)
        slots = asyncio.Semaphore(AT_ONCE)

        single = {gang: evictions for gang, evictions in groups.items() if len(evictions) == 1}
        await asyncio.gather(
            *(self._try_for(gang, evictions, limits, slots) for gang, evictions in single.items())
        )
        for gang, evictions in groups.items():
            if gang not in single:
                await self._try_for(gang, evictions, limits, slots)

    def _is_gone(
        self, beneficiary: plan.GangRef | None, plan_: plan.Plan, failed: Collection[str]
    ) -> bool:
        """Whether none of the beneficiary's pods could be nominated."""
        if beneficiary is None:
            return False

        nominated = nominator.nominated_uids(plan_.nominations, beneficiary)
        if not nominated or not all(uid in failed for uid in nominated):
            return False

        LOG.info(
            "evict.dropped: the beneficiary is gone",
            extra={"gang": str(beneficiary), "why": "it is gone"},
        )
        return True

    async def evict_gang(self, gang: plan.GangRef, members: Sequence[pods.Pod], why: str) -> None:
        """Evicts the running pods of a gang that could not start as a whole."""
        detail = f"its gang {gang} could not start as a whole: {why}"
        evictions = tuple(
            plan.Eviction(pod=plan.pod_ref(pod), gang=gang, rule=plan.Rule.STALE, detail=detail)
            for pod in members
        )
        await self.execute(plan.Plan(evictions=evictions), {})

    async def _try_for(
        self,
        beneficiary: plan.GangRef | None,
        evictions: Sequence[plan.Eviction],
        limits: disruption_limits.Budgets,
        slots: asyncio.Semaphore,
    ) -> None:
        """Evicts for one beneficiary; a bug costs this beneficiary its attempt and no other anything.

        Victims that were evicted before the error show in the World; the others are spared as if refused.
        """
        try:
            await self._evict_for(beneficiary, evictions, limits, slots)
        except failures.Fenced:
            raise
        except Exception as error:
            self._meter.count("dovetail_turn_errors_total", where="evicting")
            LOG.exception(
                "evict.failed: unexpected error; the victims are spared for a while",
                extra={"gang": str(beneficiary), "pods": len(evictions)},
            )
            for eviction in evictions:
                self._spare(eviction.pod, repr(error))
                self._slots.not_evicted(eviction)

    async def _evict_for(
        self,
        beneficiary: plan.GangRef | None,
        evictions: Sequence[plan.Eviction],
        limits: disruption_limits.Budgets,
        slots: asyncio.Semaphore,
    ) -> None:
        """All of them, or none where a dry run shows that one would be refused."""
        victims = [
            pod
            for eviction in evictions
            if (pod := self._world.pods.get(eviction.pod.uid)) is not None
        ]
        # Budgets before the slot: a task that waits for a budget must not hold one of the slots.
        async with limits.exclusive(victims), slots:
            is_set = beneficiary is not None
            if is_set and not await self._may_go(evictions, limits.over_limit(victims)):
                self._count_dropped(evictions[0].rule, len(evictions))
                return
            evicted = await self._evict_all(evictions, limits, is_set=is_set)

        if beneficiary is not None and evicted:
            self._report_to_beneficiary(beneficiary, evicted)

    async def _may_go(self, evictions: Sequence[plan.Eviction], excess: Sequence[pods.Pod]) -> bool:
        """Whether the budgets allow all of them together, and a dry run of each succeeds."""
        for pod in excess:
            self._spare(
                plan.pod_ref(pod), "its disruption budget does not allow so many pods to end now"
            )
        if excess:
            return False
        return all(await asyncio.gather(*map(self._rehearse, evictions)))

    async def _evict_all(
        self, evictions: Sequence[plan.Eviction], limits: disruption_limits.Budgets, *, is_set: bool
    ) -> list[plan.Eviction]:
        """Victims under budgets first, one by one per budget. A set stops at the first refusal."""
        by_budget: dict[disruption_limits.Name | None, list[plan.Eviction]] = {}
        for eviction in evictions:
            pod = self._world.pods.get(eviction.pod.uid)
            budget = limits.budget_of(pod) if pod is not None else None
            by_budget.setdefault(budget, []).append(eviction)

        unlimited = by_budget.pop(None, [])
        outcomes: dict[str, bool] = {}

        def is_stopped() -> bool:
            return is_set and not all(outcomes.values())

        async def evict_in_order(lane: Sequence[plan.Eviction]) -> None:
            for eviction in lane:
                if is_stopped():
                    return
                pod = self._world.pods.get(eviction.pod.uid)
                outcomes[eviction.pod.uid] = is_evicted = await self._evict(eviction)
                if is_evicted and pod is not None:
                    limits.record_eviction(pod)

        await asyncio.gather(*map(evict_in_order, by_budget.values()))
        if not is_stopped():
            await asyncio.gather(*(evict_in_order([eviction]) for eviction in unlimited))

        if dropped := len(evictions) - len(outcomes):
            self._count_dropped(evictions[0].rule, dropped)
        return [eviction for eviction in evictions if outcomes.get(eviction.pod.uid)]

    def _count_dropped(self, rule: plan.Rule, count: int) -> None:
        self._meter.count("dovetail_evictions_total", count, rule=rule, result="dropped")

    async def _rehearse(self, eviction: plan.Eviction) -> bool:
        return await self._request(eviction, is_rehearsal=True)

    async def _evict(self, eviction: plan.Eviction) -> bool:
        """Marks the pod, evicts it and records the outcome; whether it is evicted."""
        pod = self._world.pods.get(eviction.pod.uid)
        if pod is None:
            return True
        condition = _condition(eviction, self._clock.now())
        await self._mark(pod, condition)

        is_evicted = await self._announce(eviction, pod)
        is_evicted = is_evicted and await self._request(eviction, is_rehearsal=False)
        result = "evicted" if is_evicted else "refused"
        self._meter.count("dovetail_evictions_total", rule=eviction.rule, result=result)
        if not is_evicted:
            self._slots.not_evicted(eviction)
            await self._mark(pod, _condition(eviction, self._clock.now(), is_true=False))
            return False

        self._unseen[eviction.pod.uid] = self._clock.monotonic() + SEEN_SECONDS
        LOG.info(
            "evict.done",
            extra={
                "pod": str(eviction.pod),
                "rule": eviction.rule,
                "why": eviction_message(eviction),
            },
        )
        self._recorder.record_pod_event(
            pod, reason=eviction.rule, note=eviction_message(eviction), kind="Warning"
        )
        self._slots.evicted(eviction, pod)
        await self._mark(pod, condition)  # the eviction replaced our message with the server's
        return True

    async def _announce(self, eviction: plan.Eviction, pod: pods.Pod) -> bool:
        """Records the slot the pod moves to; False, and the pod is spared, where that fails."""
        try:
            await self._slots.before_eviction(eviction, pod)
        except failures.Fenced:
            raise
        except failures.ApiFailure as failure:
            self._spare(eviction.pod, str(failure))
            return False
        return True

    async def _request(self, eviction: plan.Eviction, *, is_rehearsal: bool) -> bool:
        """Whether the server grants the eviction, or its dry run. A pod that is gone counts as granted."""
        ref = eviction.pod
        target = apis.Target(registry.POD, ref.namespace, ref.name)
        operation = "eviction_rehearsal" if is_rehearsal else "eviction"
        try:
            await self._writer.with_retry(
                operation,
                lambda: self._writer.api.evict(target, uid=ref.uid, is_rehearsal=is_rehearsal),
                patience_seconds=nominator.PATIENCE_SECONDS,
            )
        except (failures.Missing, failures.Conflict):
            return True
        except failures.Fenced:
            raise
        except failures.ApiFailure as failure:
            self._spare(ref, str(failure))
            return False
        return True

    def _spare(self, ref: plan.PodRef, why: str) -> None:
        times = self._spared[ref.uid].times + 1 if ref.uid in self._spared else 1
        seconds = min(FIRST_SPARE * 2.0 ** (times - 1), LONGEST_SPARE)
        self._spared[ref.uid] = _Spared(self._clock.monotonic() + seconds, times)
        LOG.info(
            "evict.refused: the pod is spared for a while",
            extra={"pod": str(ref), "spared_seconds": seconds, "why": why},
        )

    async def _mark(self, pod: pods.Pod, condition: Mapping[str, str]) -> None:
        """Writes into the pod's status why it ends. The eviction goes on where that fails."""
        target = apis.Target(registry.POD, pod.metadata.namespace, pod.metadata.name, "status")
        body = codec.encode_tree(
            {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
        )
        try:
            answer = await self._writer.with_retry(
                "pod_status",
                lambda: self._writer.api.patch(target, body, adds=True),
                patience_seconds=nominator.PATIENCE_SECONDS,
            )
        except (failures.Missing, failures.Conflict):
            return
        except failures.Fenced:
            raise
        except failures.ApiFailure as failure:
            LOG.warning(
                "evict.condition.failed: the pod's DisruptionTarget condition is not written",
                extra={"pod": pod.metadata.name, "why": str(failure)},
            )
            return
        self._saw(registry.POD, codec.decode_struct(pods.Pod, answer))

    def _report_to_beneficiary(
        self, gang: plan.GangRef, evictions: Sequence[plan.Eviction]
    ) -> None:
        """An event on the first pending pod of the gang."""
        pod = self._first_pending(gang)
        if pod is None:
            return

        first = evictions[0]
        names = ", ".join(str(eviction.pod) for eviction in evictions[:3])
        if len(evictions) > 3:
            names += ", ..."
        note = f"{_yielding(evictions)} to {gang} ({names}); {first.detail}"
        self._recorder.record_pod_event(pod, reason=first.rule, note=note)

    def _first_pending(self, gang: plan.GangRef) -> pods.Pod | None:
        for pod_id in sorted(self._world.gangs.members((gang.namespace, gang.name))):
            pod = self._world.pods.get(pod_id)
            if pod is not None and not pod.spec.node_name:
                return pod
        return None


def by_beneficiary(
    evictions: Iterable[plan.Eviction],
) -> dict[plan.GangRef | None, list[plan.Eviction]]:
    """The evictions of each beneficiary."""
    groups: dict[plan.GangRef | None, list[plan.Eviction]] = {}
    for eviction in evictions:
        groups.setdefault(eviction.beneficiary, []).append(eviction)
    return groups


def eviction_message(eviction: plan.Eviction) -> str:
    """Why the pod is evicted, for its owner."""
    cause = "is taken back"
    if eviction.beneficiary is not None:
        cause = f"yields to {eviction.beneficiary}"
    detail = f": {eviction.detail}" if eviction.detail else ""
    reserved = ""
    if eviction.moves_to:
        reserved = f"; node {eviction.moves_to} is reserved for its replacement"
    return f"{cause} ({eviction.rule}){detail}{reserved}"


def _gained(evictions: Sequence[plan.Eviction]) -> str:
    return _yielding(evictions) if evictions else "others are ending there"


def _yielding(evictions: Sequence[plan.Eviction]) -> str:
    return "1 pod yields" if len(evictions) == 1 else f"{len(evictions)} pods yield"


def _condition(
    eviction: plan.Eviction, now: datetime.datetime, *, is_true: bool = True
) -> dict[str, str]:
    timestamp = timestamps.to_text(now)
    return {
        "type": DISRUPTION_TARGET,
        "status": "True" if is_true else "False",
        "reason": REASON,
        "message": eviction_message(eviction)
        if is_true
        else "the eviction was refused; the pod stays",
        "lastTransitionTime": timestamp,
    }

"""Makes pods yield: those that gain are nominated first, then each victim is told why and asked to end.

Given evictions that were decided, with rule, beneficiary and numbers. All victims for one beneficiary are rehearsed
before the first is asked: where a disruption budget says no, none of them goes and that pod is spared for a while.
Those under a budget are asked first, one after the other; once one is refused, no more of them are. Never chooses
victims; never insists.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dovetail.loops import budgets, nominating, settle, tell
from dovetail.model import kinds, objects, plan, pods
from dovetail.ports import api as apis
from dovetail.ports import clock as clocks
from dovetail.ports import failures, meter
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.evict")
TARGET: Final = "DisruptionTarget"
REASON: Final = "PreemptionByScheduler"  # core/v1's reasons of that condition
FIRST_SPARE: Final = 10.0
LONGEST_SPARE: Final = 120.0
AT_ONCE: Final = 16  # gangs that gain by one victim each
SEEN_SECONDS: Final = 10.0  # for so long news of a pod's end are waited for before anything else is decided

Nominations = Mapping[str, str]
Going = Callable[[plan.Eviction, pods.Pod], Awaitable[None]]


class _Spared(NamedTuple):
    until: float
    times: int


class Evictor:
    """Evictions under way, and pods that may not be evicted for now."""

    def __init__(
        self,
        settler: settle.Settler,
        clock: clocks.Clock,
        world: World,
        *,
        teller: tell.Teller,
        nominator: nominating.Nominator,
        meter_: meter.Meter,
        saw: Callable[[kinds.Kind, Any], None],
        limits: budgets.Listing = budgets.none,
        going: Going | None = None,
        went: Callable[[plan.Eviction, pods.Pod], None] = lambda eviction, pod: None,
        stayed: Callable[[plan.Eviction], None] = lambda eviction: None,
    ) -> None:
        self._settler = settler
        self._clock = clock
        self._world = world
        self._teller = teller
        self._nominator = nominator
        self._meter = meter_
        self._saw = saw
        self._limits = limits
        self._going = going  # told before a pod is asked to end; then one of the others is, in any case
        self._went = went
        self._stayed = stayed
        self._spared: dict[str, _Spared] = {}
        self._unseen: dict[str, float] = {}  # asked to end, not heard of yet; until when that is waited for
        self._busy = 0

    @property
    def is_busy(self) -> bool:
        """Whether the World does not show yet who yields: deciding now could take others as well."""
        now = self._clock.monotonic()
        for uid, until in list(self._unseen.items()):
            pod = self._world.pods.get(uid)
            if pod is None or pod.metadata.deletion_timestamp is not None or now >= until:
                del self._unseen[uid]
        return bool(self._busy or self._unseen)

    def spared(self) -> frozenset[str]:
        """Pods that may not be evicted for now."""
        now = self._clock.monotonic()
        return frozenset(uid for uid, one in self._spared.items() if one.until > now)

    def spared_for(self) -> float | None:
        """After how many seconds somebody is no longer spared; None where nobody is."""
        now = self._clock.monotonic()
        for uid in [uid for uid in self._spared if uid not in self._world.pods]:
            del self._spared[uid]
        return min((one.until - now for one in self._spared.values() if one.until > now), default=None)

    def carry(self, made: plan.Plan, changes: Nominations) -> Coroutine[Any, Any, None]:
        """Writes nominations, then evicts for whoever was nominated. Busy from the moment it is called."""
        self._busy += 1
        return self._carry(made, changes)

    async def _carry(self, made: plan.Plan, changes: Nominations) -> None:
        try:
            failed = await self._nominator.write(changes, _gained(made.evictions))
            found = {
                beneficiary: evictions
                for beneficiary, evictions in by_beneficiary(made.evictions).items()
                if not self._is_gone(beneficiary, made, failed)
            }
            spaces = [one.pod.namespace for evictions in found.values() for one in evictions]
            limits = await budgets.read(self._limits, spaces)
            # A single victim cannot be taken in part. Of several some could, should we end meanwhile.
            single = [(who, evictions) for who, evictions in found.items() if len(evictions) == 1]
            places = asyncio.Semaphore(AT_ONCE)
            await asyncio.gather(*(self._try_for(who, evictions, limits, places) for who, evictions in single))
            for who, evictions in found.items():
                if len(evictions) > 1:
                    await self._try_for(who, evictions, limits, places)
        finally:
            self._busy -= 1

    def _is_gone(self, beneficiary: plan.GangRef | None, made: plan.Plan, failed: Collection[str]) -> bool:
        """Whether none of those who would gain could be nominated."""
        gaining = () if beneficiary is None else nominating.uids_of(made.nominations, beneficiary)
        if not gaining or not all(uid in failed for uid in gaining):
            return False
        LOG.info("nobody is evicted", extra={"gang": str(beneficiary), "why": "it is gone"})
        return True

    async def take_back(self, gang: plan.GangRef, members: Sequence[pods.Pod], why: str) -> None:
        """Evicts what runs of a gang that could not start as a whole."""
        detail = f"its gang {gang} could not start as a whole: {why}"
        await self.carry(
            plan.Plan(
                evictions=tuple(
                    plan.Eviction(pod=plan.pod_ref(pod), gang=gang, rule=plan.Rule.STALE, detail=detail)
                    for pod in members
                )
            ),
            {},
        )

    async def _try_for(
        self,
        beneficiary: plan.GangRef | None,
        evictions: Sequence[plan.Eviction],
        limits: budgets.Budgets,
        places: asyncio.Semaphore,
    ) -> None:
        """A fault of ours costs those who would gain this try, and nobody else anything.

        Who was asked to end all the same is seen to go; the others are spared for a time, as if they had been refused.
        """
        try:
            await self._evict_for(beneficiary, evictions, limits, places)
        except failures.Fenced:
            raise
        except Exception as error:
            self._meter.count("dovetail_turn_errors_total", where="evicting")
            LOG.exception("evicting failed", extra={"gang": str(beneficiary), "pods": len(evictions)})
            for eviction in evictions:
                self._spare(eviction.pod, repr(error))
                self._stayed(eviction)

    async def _evict_for(
        self,
        beneficiary: plan.GangRef | None,
        evictions: Sequence[plan.Eviction],
        limits: budgets.Budgets,
        places: asyncio.Semaphore,
    ) -> None:
        """All of them or, as far as can be known beforehand, none."""
        there = [pod for one in evictions if (pod := self._world.pods.get(one.pod.uid)) is not None]
        async with limits.turn(there), places:  # who waits for a budget's turn takes nobody's place
            is_set = beneficiary is not None
            if is_set and not await self._may_go(evictions, limits.beyond(there)):
                self._meter.count("dovetail_evictions_total", len(evictions), rule=evictions[0].rule, result="dropped")
                return
            taken = await self._evict_all(evictions, limits, is_set=is_set)
        if beneficiary is not None and taken:
            self._tell_beneficiary(beneficiary, taken)

    async def _may_go(self, evictions: Sequence[plan.Eviction], beyond: Sequence[pods.Pod]) -> bool:
        """Whether nobody objects, each asked alone, and budgets allow for all of them together."""
        for pod in beyond:
            self._spare(plan.pod_ref(pod), "its disruption budget does not allow so many pods to end now")
        return not beyond and all(await asyncio.gather(*map(self._rehearsed, evictions)))

    async def _evict_all(
        self, evictions: Sequence[plan.Eviction], limits: budgets.Budgets, *, is_set: bool
    ) -> list[plan.Eviction]:
        """Those under budgets first, one by one each. Of a set nobody else is asked once somebody was refused."""
        lanes: dict[budgets.Name | None, list[plan.Eviction]] = {}
        for one in evictions:
            pod = self._world.pods.get(one.pod.uid)
            lanes.setdefault(limits.over(pod) if pod is not None else None, []).append(one)
        free = lanes.pop(None, [])
        asked: dict[str, bool] = {}

        async def ask(lane: Sequence[plan.Eviction]) -> None:
            for one in lane:
                if not is_set or all(asked.values()):
                    pod = self._world.pods.get(one.pod.uid)
                    asked[one.pod.uid] = await self._evict(one)
                    if pod is not None and asked[one.pod.uid]:
                        limits.went(pod)

        await asyncio.gather(*map(ask, lanes.values()))
        if not is_set or all(asked.values()):
            await asyncio.gather(*(ask([one]) for one in free))
        if left := len(evictions) - len(asked):
            self._meter.count("dovetail_evictions_total", left, rule=evictions[0].rule, result="dropped")
        return [one for one in evictions if asked.get(one.pod.uid)]

    async def _rehearsed(self, eviction: plan.Eviction) -> bool:
        return await self._asked(eviction, is_rehearsal=True)

    async def _evict(self, eviction: plan.Eviction) -> bool:
        """Whether the pod yields."""
        pod = self._world.pods.get(eviction.pod.uid)
        if pod is None:
            return True
        condition = _condition(eviction, self._clock.now())
        await self._marked(pod, condition)
        is_gone = await self._announced(eviction, pod) and await self._asked(eviction, is_rehearsal=False)
        result = "evicted" if is_gone else "refused"
        self._meter.count("dovetail_evictions_total", rule=eviction.rule, result=result)
        if not is_gone:
            self._stayed(eviction)
            await self._marked(pod, _condition(eviction, self._clock.now(), is_so=False))
            return False
        self._unseen[eviction.pod.uid] = self._clock.monotonic() + SEEN_SECONDS
        LOG.info("evicted", extra={"pod": str(eviction.pod), "rule": eviction.rule, "why": sentence(eviction)})
        self._teller.about_pod(pod, reason=eviction.rule, note=sentence(eviction), kind="Warning")
        self._went(eviction, pod)
        await self._marked(pod, condition)  # the server wrote its own words over ours
        return True

    async def _announced(self, eviction: plan.Eviction, pod: pods.Pod) -> bool:
        """Whether everybody knows who has to before the pod is asked; else it is not."""
        try:
            if self._going is not None:
                await self._going(eviction, pod)
        except failures.Fenced:
            raise
        except failures.ApiFailure as failure:
            self._spare(eviction.pod, str(failure))
            return False
        return True

    async def _asked(self, eviction: plan.Eviction, *, is_rehearsal: bool) -> bool:
        """Whether the pod may go, or goes. One that is gone already counts as going."""
        ref = eviction.pod
        target = apis.Target(kinds.POD, ref.namespace, ref.name)
        what = "eviction_rehearsal" if is_rehearsal else "eviction"
        try:
            await self._settler.answered(
                what,
                lambda: self._settler.api.evict(target, uid=ref.uid, is_rehearsal=is_rehearsal),
                patience_seconds=nominating.PATIENCE_SECONDS,
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
        LOG.info("not evicted", extra={"pod": str(ref), "spared_seconds": seconds, "why": why})

    async def _marked(self, pod: pods.Pod, condition: Mapping[str, str]) -> None:
        """Says in the pod's status why it ends. Whoever may not write it evicts all the same."""
        target = apis.Target(kinds.POD, pod.metadata.namespace, pod.metadata.name, "status")
        body = objects.encode_tree({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}})
        try:
            answer = await self._settler.answered(
                "pod_status",
                lambda: self._settler.api.patch(target, body, adds=True),
                patience_seconds=nominating.PATIENCE_SECONDS,
            )
        except (failures.Missing, failures.Conflict):
            return
        except failures.Fenced:
            raise
        except failures.ApiFailure as failure:
            LOG.warning("not told", extra={"pod": pod.metadata.name, "why": str(failure)})
            return
        self._saw(kinds.POD, objects.decode_struct(pods.Pod, answer))

    def _tell_beneficiary(self, gang: plan.GangRef, evictions: Sequence[plan.Eviction]) -> None:
        members = self._world.gangs.members((gang.namespace, gang.name))
        waiting = [pod for id_ in sorted(members) if (pod := self._world.pods.get(id_)) and not pod.spec.node_name]
        if waiting:
            first = evictions[0]
            names = ", ".join(str(one.pod) for one in evictions[:3]) + (", ..." if len(evictions) > 3 else "")
            note = f"{len(evictions)} pods yield to {gang} ({names}); {first.detail}"
            self._teller.about_pod(waiting[0], reason=first.rule, note=note)


def by_beneficiary(evictions: Iterable[plan.Eviction]) -> dict[plan.GangRef | None, list[plan.Eviction]]:
    """Who yields, by who gains."""
    found: dict[plan.GangRef | None, list[plan.Eviction]] = {}
    for one in evictions:
        found.setdefault(one.beneficiary, []).append(one)
    return found


def sentence(eviction: plan.Eviction) -> str:
    """Why the pod ends, for its owner."""
    who = f"yields to {eviction.beneficiary}" if eviction.beneficiary is not None else "is taken back"
    where = f"; node {eviction.moves_to} is kept for what takes its place" if eviction.moves_to else ""
    return f"{who} ({eviction.rule}){': ' if eviction.detail else ''}{eviction.detail}{where}"


def _gained(evictions: Sequence[plan.Eviction]) -> str:
    return f"{len(evictions)} pods yield" if evictions else "others are ending there"


def _condition(eviction: plan.Eviction, now: datetime.datetime, *, is_so: bool = True) -> dict[str, str]:
    moment = now.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "type": TARGET,
        "status": "True" if is_so else "False",
        "reason": REASON,
        "message": sentence(eviction) if is_so else "it was refused, so the pod stays",
        "lastTransitionTime": moment,
    }

"""Runs the live scheduler on an in-memory cluster in virtual time: days take seconds, and runs are reproducible.

The same loops as on a real server, hollow nodes that run pods for their full time, controllers for claims. Time jumps
from one event to the next; idle rounds of the scheduler are skipped. Given a fleet, queues and jobs; records a history.
Never reads a real clock, never decides.
"""

from __future__ import annotations

import asyncio
import datetime
import heapq
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from dovetail.hollow import hollow_kubelets
from dovetail.kubetypes import registry
from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.custom import intents, queues
from dovetail.live.cycle import scheduler_loop
from dovetail.live.informer import informer
from dovetail.model import gangs, plan, policy
from dovetail.ports import api as apis
from dovetail.ports import meter
from dovetail.schedule import decide
from dovetail.sim import virtual_clock
from dovetail.sim.fleet import fleet_objects, fleet_spec
from dovetail.sim.server.api_server import SimApi
from dovetail.sim.timed_jobs import SCHEDULER, Work, Works
from dovetail.world.world import World

FOLLOWED: Final = (*registry.WATCHED, *registry.OURS)
NO_LEASES: Final = 10.0**9  # hollow nodes never fail, so their leases are not renewed
MOMENT: Final = 1e-6  # seconds; absorbs rounding of wake-up times

Decided = Callable[[World, plan.Plan, datetime.datetime], None]
# Builds further loops that run next to the scheduler.
MoreLoops = Callable[[scheduler_loop.Scheduler], Iterable[Coroutine[Any, Any, None]]]
Tree = dict[str, Any]


class LazyClock:
    """A clock whose sleepers may wake late, so that idle rounds of the scheduler can be skipped."""

    def __init__(self, base: virtual_clock.VirtualClock) -> None:
        self._base = base
        self._serial = 0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> datetime.datetime:
        """The time of day, with its zone."""
        return self._base.now()

    def monotonic(self) -> float:
        """Seconds since the beginning."""
        return self._base.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleeps until woken, at that time or later."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._serial += 1
        heapq.heappush(self._sleepers, (self._base.monotonic() + seconds, self._serial, future))
        await future

    def next_wake_up(self) -> float | None:
        """The earliest wake-up time of a sleeper."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    async def wake(self) -> None:
        """Wakes every sleeper that is due, earliest first."""
        while True:
            wake_at = self.next_wake_up()
            if wake_at is None or wake_at > self._base.monotonic() + MOMENT:
                return
            heapq.heappop(self._sleepers)[2].set_result(None)
            await virtual_clock.rest()


class VirtualRun:
    """One cluster and its scheduler in virtual time."""

    def __init__(
        self,
        fleet: fleet_spec.Fleet,
        *,
        objects: Iterable[Tree] = (),
        policy_: policy.Policy = policy.DEFAULT,
        decided: Decided | None = None,
        grace_seconds: int = 30,
        more_loops: MoreLoops | None = None,
        kinds: Sequence[registry.Kind] = FOLLOWED,
    ) -> None:
        self.clock = virtual_clock.VirtualClock()
        self.api = SimApi(self.clock)
        for tree in (*fleet_objects.objects_of(fleet), *objects):
            name = tree["metadata"]["name"]
            if tree["kind"] != "Namespace" or not self.api.find(registry.NAMESPACE, name):
                self.api.put(tree)
        self.works = Works(self.api, grace_seconds=grace_seconds)
        self.plans = 0
        self.evictions: list[tuple[float, plan.Eviction]] = []
        self._policy = policy_
        self._decided = decided
        self._more_loops = more_loops
        self._kinds = tuple(kinds)  # that the scheduler follows
        # Receives the queues' statuses after every decision.
        self.numbers: Callable[[Mapping[str, queues.QueueStatus]], None] = _ignore
        self._lazy_clock = LazyClock(self.clock)
        self._settled = 0
        self.scheduler: scheduler_loop.Scheduler | None = None

    def run(self, works: Sequence[Work], *, until: float | None = None) -> Works:
        """Submits the jobs and lets time pass until then, or until all jobs have ended or nothing is due any more."""
        asyncio.run(self._run(sorted(works, key=lambda work: (work.at, work.name)), until))
        return self.works

    async def _run(self, works: list[Work], until: float | None) -> None:
        picture = informer.Informer(World(), self._lazy_clock, self._kinds)
        player = hollow_kubelets.HollowKubelets(
            self.api,
            self.clock,
            let_go=self._let_go,
            plays=_every_node,
            renew_seconds=NO_LEASES,
            concurrency=1,
        )
        feeds = [
            self.api.follow(kind, informer.Feed(picture, kind, trouble=lambda kind, why: None))
            for kind in self._kinds
        ]
        feeds += [self.api.follow(kind, player.feed(kind)) for kind in hollow_kubelets.WATCHED]
        self.scheduler = scheduler_loop.Scheduler(
            picture,
            self.api,
            clock=self._lazy_clock,
            meter_=meter.NoMeter(),
            settings=scheduler_loop.Settings(
                policy=_for_us(self._policy),
                audit_seconds=0.0,
                records_scheduled=False,
                controller=SCHEDULER,
            ),
            list_intents=self._begun,
            decide=self._decide,
            numbers=lambda statuses: self.numbers(statuses),
        )
        more_loops = self._more_loops(self.scheduler) if self._more_loops is not None else ()
        running = (picture.pump(), player.run(), self.scheduler.run(), *more_loops)
        tasks = [asyncio.create_task(coroutine) for coroutine in running]
        try:
            await self._advance(works, until)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for feed in feeds:
                feed.end()

    async def _advance(self, works: list[Work], until: float | None) -> None:
        """Jumps from one due time to the next and submits the jobs as they arrive."""
        arrivals = list(reversed(works))
        while True:
            await self._submit_due(arrivals)
            if until is None and not arrivals and self.works.is_done:
                return

            wake_at = self._next_due_time(arrivals, until)
            if wake_at >= NO_LEASES / 2:
                return  # nothing is due any more

            await self.clock.advance(max(wake_at - self.clock.monotonic(), 0.0))
            await self._lazy_clock.wake()
            if until is not None and self.clock.monotonic() >= until:
                return

    def _next_due_time(self, arrivals: list[Work], until: float | None) -> float:
        next_arrival = arrivals[-1].at if arrivals else None
        due_times = (self.clock.next_wake_up(), self._quiet_until(), next_arrival, until)
        return min((time for time in due_times if time is not None), default=NO_LEASES)

    async def _submit_due(self, arrivals: list[Work]) -> None:
        await self._come_to_rest()
        while arrivals and arrivals[-1].at <= self.clock.monotonic() + MOMENT:
            self.works.arrive(arrivals.pop())
            await self._come_to_rest()

    def _quiet_until(self) -> float | None:
        """The time by which the scheduler has to be woken."""
        assert self.scheduler is not None
        quiet = self.scheduler.quiet_until
        if quiet > self.clock.monotonic():
            return quiet
        return self._lazy_clock.next_wake_up()

    async def _come_to_rest(self) -> None:
        """Runs tasks and controllers until none has anything left to do."""
        while True:
            await virtual_clock.rest()
            self.works.sweep()
            if self.api.shelf.revision == self._settled:
                return
            self.api.settle()
            self._settled = self.api.shelf.revision

    def _decide(
        self,
        world: World,
        policy: policy.Policy,
        now: plan.Instant,
        budget: policy.Budget,
        *,
        among: Collection[str] | None,
        spared: Collection[str],
        toward: Mapping[str, str],
        aside: Collection[gangs.GangKey],
    ) -> plan.Plan:
        decision = decide.decide(
            world, policy, now, budget, among=among, spared=spared, toward=toward, aside=aside
        )
        self.plans += 1
        self.evictions += [(self.clock.monotonic(), eviction) for eviction in decision.evictions]
        if self._decided is not None:
            self._decided(world, decision, now)
        return decision

    async def _begun(self) -> list[intents.Intent]:
        return list(self.api.all(registry.INTENT))

    async def _let_go(self, target: apis.Target, uid: str) -> None:
        await self.api.delete(target, uid=uid, grace_seconds=0)


def _every_node(node: nodes.Node) -> bool:
    return True


def _ignore(statuses: Mapping[str, queues.QueueStatus]) -> None:
    pass


def _for_us(base: policy.Policy) -> policy.Policy:
    """The policy with a scheduler name."""
    if base.scheduler_names:
        return base
    return msgspec.structs.replace(base, scheduler_names=(SCHEDULER,))

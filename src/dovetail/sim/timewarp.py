"""Runs the live scheduler on a cluster in memory in simulated time: days pass in seconds, and always the same way.

The same loops as on a real server, hollow nodes that run pods for their true time, controllers for claims. Time goes
from one moment at which something happens to the next; while the scheduler has nothing to do its idle rounds are left
out. Given a fleet, queues and works; leaves a history. Never looks at a real clock, never decides.
"""

from __future__ import annotations

import asyncio
import datetime
import heapq
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from dovetail.loops import picture, play, schedule
from dovetail.model import gangs, intents, kinds, nodes, plan, policy, queues
from dovetail.ports import api as apis
from dovetail.ports import meter
from dovetail.schedule import cycle
from dovetail.sim import clock as clocks
from dovetail.sim import fleet as fleets
from dovetail.sim import inventory
from dovetail.sim.api import SimApi
from dovetail.sim.works import SCHEDULER, Work, Works
from dovetail.world.world import World

FOLLOWED: Final = (*kinds.WATCHED, *kinds.OURS)
NO_LEASES: Final = 10.0**9  # nodes here never fall silent, so nobody needs their leases
MOMENT: Final = 1e-6

Decided = Callable[[World, plan.Plan, datetime.datetime], None]
Beside = Callable[[schedule.Scheduler], Iterable[Coroutine[Any, Any, None]]]  # loops that run beside the scheduler
Tree = dict[str, Any]


class Drowsy:
    """The clock of somebody whose idle rounds may be left out: its sleepers wake late where that changes nothing."""

    def __init__(self, base: clocks.VirtualClock) -> None:
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
        """Until woken at that time or later."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._serial += 1
        heapq.heappush(self._sleepers, (self._base.monotonic() + seconds, self._serial, future))
        await future

    def next_hour(self) -> float | None:
        """When the first sleeper wants to wake."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    async def wake(self) -> None:
        """Wakes everybody whose time has come, earliest first."""
        while (hour := self.next_hour()) is not None and hour <= self._base.monotonic() + MOMENT:
            heapq.heappop(self._sleepers)[2].set_result(None)
            await clocks.rest()


class Timewarp:
    """One cluster and its scheduler in simulated time."""

    def __init__(
        self,
        fleet: fleets.Fleet,
        *,
        objects: Iterable[Tree] = (),
        policy_: policy.Policy = policy.DEFAULT,
        decided: Decided | None = None,
        grace_seconds: int = 30,
        beside: Beside | None = None,
    ) -> None:
        self.clock = clocks.VirtualClock()
        self.api = SimApi(self.clock)
        for tree in (*inventory.objects_of(fleet), *objects):
            is_known = tree["kind"] == "Namespace" and self.api.find(kinds.NAMESPACE, tree["metadata"]["name"])
            if not is_known:
                self.api.put(tree)
        self.works = Works(self.api, grace_seconds=grace_seconds)
        self.plans = 0
        self.evictions: list[tuple[float, plan.Eviction]] = []
        self._policy = policy_
        self._decided = decided
        self._beside = beside
        self.numbers: Callable[[Mapping[str, queues.QueueStatus]], None] = lambda told: None  # of every decision
        self._drowsy = Drowsy(self.clock)
        self._settled = 0
        self.scheduler: schedule.Scheduler | None = None

    def run(self, works: Sequence[Work], *, until: float | None = None) -> Works:
        """Lets the works arrive and time pass: until then, or until all have ended or nothing happens any more."""
        asyncio.run(self._run(sorted(works, key=lambda work: (work.at, work.name)), until))
        return self.works

    async def _run(self, works: list[Work], until: float | None) -> None:
        seen = picture.Picture(World(), self._drowsy, FOLLOWED)
        player = play.Player(
            self.api, self.clock, let_go=self._let_go, plays=_every_node, renew_seconds=NO_LEASES, concurrency=1
        )
        feeds = [
            self.api.follow(kind, picture.Feed(seen, kind, trouble=lambda kind, why: None)) for kind in FOLLOWED
        ] + [self.api.follow(kind, player.feed(kind)) for kind in play.WATCHED]
        self.scheduler = schedule.Scheduler(
            seen,
            self.api,
            clock=self._drowsy,
            meter_=meter.NoMeter(),
            settings=schedule.Settings(
                policy=_for_us(self._policy), audit_seconds=0.0, tells_scheduled=False, controller=SCHEDULER
            ),
            begun=self._begun,
            decide=self._decide,
            numbers=lambda told: self.numbers(told),
        )
        beside = self._beside(self.scheduler) if self._beside is not None else ()
        running = (seen.pump(), player.run(), self.scheduler.run(), *beside)
        tasks = [asyncio.create_task(one) for one in running]
        try:
            await self._pass(works, until)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for feed in feeds:
                feed.end()

    async def _pass(self, works: list[Work], until: float | None) -> None:
        waiting = list(reversed(works))
        while True:
            await self._come_to_rest()
            while waiting and waiting[-1].at <= self.clock.monotonic() + MOMENT:
                self.works.arrive(waiting.pop())
                await self._come_to_rest()
            if until is None and not waiting and self.works.is_done:
                return
            hours = [hour for hour in (self.clock.next_hour(), self._quiet_until()) if hour is not None]
            if waiting:
                hours.append(waiting[-1].at)
            if until is not None:
                hours.append(until)
            hour = min(hours, default=None)
            if hour is None or hour >= NO_LEASES / 2:  # nothing ever happens again
                return
            await self.clock.advance(max(hour - self.clock.monotonic(), 0.0))
            await self._drowsy.wake()
            if until is not None and self.clock.monotonic() >= until:
                return

    def _quiet_until(self) -> float | None:
        """When the scheduler has to be woken at the latest."""
        assert self.scheduler is not None
        quiet = self.scheduler.quiet_until
        if quiet > self.clock.monotonic():
            return quiet
        return self._drowsy.next_hour()

    async def _come_to_rest(self) -> None:
        """Lets everything that can go on by itself do so, controllers in between."""
        while True:
            await clocks.rest()
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
        made = cycle.decide(world, policy, now, budget, among=among, spared=spared, toward=toward, aside=aside)
        self.plans += 1
        self.evictions += [(self.clock.monotonic(), one) for one in made.evictions]
        if self._decided is not None:
            self._decided(world, made, now)
        return made

    async def _begun(self) -> list[intents.Intent]:
        return list(self.api.all(kinds.INTENT))

    async def _let_go(self, target: apis.Target, uid: str) -> None:
        await self.api.delete(target, uid=uid, grace_seconds=0)


def _every_node(node: nodes.Node) -> bool:
    return True


def _for_us(given: policy.Policy) -> policy.Policy:
    return given if given.scheduler_names else msgspec.structs.replace(given, scheduler_names=(SCHEDULER,))

"""Runs the scheduler against a real control plane while everything around it breaks, then has the history judged.

Phases: a storm of broken requests; processes killed between two writes; the store restarted; two replicas, the leader
of which is stopped past its lease or killed; the same with gangs, some of which make others yield; a rival that
allocates the same devices; a wall clock that jumps. After each phase the faults cease and the field must come to rest.
All choices follow from a seed, except what the machine's own timing decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent import futures
from pathlib import Path
from typing import Any, Final, NamedTuple

from dovetail.devcluster import control_plane, kube_binaries
from tests.faults import (
    campaign_cluster,
    checker,
    checker_scene,
    gangs,
    objects,
    plans,
    records,
    signatures,
    slowness,
    workload,
)
from tests.faults.campaign_cluster import (
    KILLED_AFTER,
    KILLED_BEFORE,
    NODE_LOST,
    REPUBLISHED,
    TAINTED,
    USERS,
)
from tests.faults.checker_scene import Judge, Violation
from tests.faults.instances import Command, Instance, ours, with_stepping_clock
from tests.support.waiting import comes_true_within

RIVAL_NAME: Final = "default-scheduler"
STOPPED: Final = "stopped past the lease"
LEAST_STEPS: Final = 6  # of the wall clock: each way it is set
RESTARTED: Final = "store restarted"
RIVAL: Final = "rival scheduler"
STEPPED: Final = "wall clock stepped"
IN_STORMS: Final = (*plans.ALL, NODE_LOST, REPUBLISHED, TAINTED)
KINDS: Final = (*IN_STORMS, KILLED_BEFORE, KILLED_AFTER, STOPPED, RESTARTED, RIVAL, STEPPED)

GANG_WRITES: Final = (
    "binding",
    "eviction",
    "intent",
    "binding",
    "eviction",
    "claim-status",
    "pod-status",
)

MILD: Final = plans.stormy(
    0.03, openings=0.1, lines=0.01
)  # so that nothing happens under a clear sky only

Phase = Callable[[], Awaitable[None]]
Say = Callable[[str], None]


class Sizes(NamedTuple):
    """How long a campaign goes on. Zero leaves a phase out."""

    storm_faults: int = 460
    kills: int = 36
    gang_kills: int = 14
    restarts: int = 2
    stops: int = 3
    replica_kills: int = 4
    rival_writes: int = 200
    clock_writes: int = 140
    actions_per_second: float = 10.0


class Report(NamedTuple):
    """What happened."""

    seed: int
    seconds: float
    faults: dict[str, int]
    pods_created: int
    pods_placed: int
    revisions: int
    violations: list[Violation]

    @property
    def fault_count(self) -> int:
        """All of them."""
        return sum(self.faults.values())

    def line(self) -> str:
        """For people who watch."""
        placed = f"{self.pods_placed} of {self.pods_created} pods placed"
        harm = f"{len(self.violations)} violations" if self.violations else "no violation"
        return (
            f"seed {self.seed}: {self.fault_count} faults, {placed}, {self.seconds:.0f} s, {harm}"
        )


class Campaign:
    """One run on one control plane."""

    def __init__(
        self,
        plane: control_plane.ControlPlane,
        directory: Path,
        *,
        seed: int,
        command: Command = ours,
        say: Say = lambda _: None,
    ) -> None:
        self._directory = directory
        self._seed = seed
        self._chance = random.Random(seed)
        self._say = say
        self._plane = plane
        self._more_created = 0  # pods of gangs
        self._machine = slowness.Slowness()
        self._field = campaign_cluster.Field(
            plane, directory, chance=self._chance, machine=self._machine, command=command
        )
        # etcd's process ends with the thread that started it, so one thread must outlive the run.
        self._hands = futures.ThreadPoolExecutor(max_workers=1)

    async def run(self, sizes: Sizes) -> Report:
        """The whole of it."""
        began = time.monotonic()
        with self._machine:
            recorded = await self._fought(sizes)
        bounds = checker_scene.Bounds().stretched(self._machine.factor)
        return self._judged(recorded, time.monotonic() - began, bounds)

    async def _fought(self, sizes: Sizes) -> records.History:
        async with self._field:
            for name, phase in self._phases(sizes):
                started = time.monotonic()
                await phase()
                counted = f"{len(self._field.log.entries)} faults so far, {len(self._field.found)} findings"
                self._say(f"{name}: {time.monotonic() - started:.0f} s, {counted}")
            recorded = await self._field.finished()
        self._hands.shutdown()
        return recorded

    def _phases(self, sizes: Sizes) -> list[tuple[str, Phase]]:
        chosen: list[tuple[str, float, Phase]] = [
            ("storm", sizes.storm_faults, lambda: self._storm(sizes)),
            ("kills", sizes.kills, lambda: self._kills(sizes)),
            ("restarts", sizes.restarts, lambda: self._restarts(sizes)),
            ("replicas", sizes.stops + sizes.replica_kills, lambda: self._replicas(sizes)),
            ("gangs", sizes.gang_kills, lambda: self._gangs(sizes)),
            ("rival", sizes.rival_writes, lambda: self._rival(sizes)),
            ("clock", sizes.clock_writes, lambda: self._clock(sizes)),
        ]
        return [(name, phase) for name, size, phase in chosen if size]

    def _judged(
        self, recorded: records.History, seconds: float, bounds: checker_scene.Bounds
    ) -> Report:
        whole = signatures.signed(recorded, signatures.read(signatures.log_of(self._directory)))
        records.save(whole, self._directory / "history.jsonl.gz")
        self._field.log.save(self._directory / "faults.log")
        judge = Judge(frozenset(USERS), frozenset({objects.SCHEDULER}))
        placed = {
            checker_scene.uid_of(revision.object)
            for revision in whole.revisions
            if revision.kind == "pods"
            and judge.is_ours(revision.object)
            and checker_scene.node_of(revision.object)
        }
        return Report(
            seed=self._seed,
            seconds=seconds,
            faults=dict(sorted(self._field.log.by_kind().items())),
            pods_created=self._field.workload.created + self._more_created,
            pods_placed=len(placed),
            revisions=len(whole.revisions),
            violations=[*self._field.found, *checker.violations(whole, judge, bounds=bounds)],
        )

    async def _storm(self, sizes: Sizes) -> None:
        """Requests break in every way, nodes and devices come and go, and now and then nothing works at all."""
        at, log = self._field, self._field.log
        (item, *_) = at.instances
        await at.start(item)
        expected = len(log.entries) + sizes.storm_faults
        async with self._load(sizes):
            item.proxy.plan = plans.stormy()
            for _ in range(60 + sizes.storm_faults):  # far more than it needs
                await self._disturb(item)
                await at.watched(item, requests=20)
                if len(log.entries) >= expected and set(IN_STORMS) <= set(log.by_kind()):
                    break
            else:
                at.object("idle", f"{item.user} asked too little: {dict(log.by_kind())}")
        await at.rest()
        await item.end()

    async def _disturb(self, instance: Instance) -> None:
        """Now and then something happens that is no broken request; first of all what has not happened yet."""
        if self._chance.random() > 0.4:
            return
        name = self._chance.choice(objects.NODES)
        disturbances: dict[str, Phase] = {
            NODE_LOST: lambda: self._field.lose(name),
            REPUBLISHED: lambda: self._field.republish(name),
            TAINTED: lambda: self._field.taint(name),
            plans.BLACKHOLE: lambda: instance.proxy.blackhole(requests=self._chance.randint(1, 20)),
        }
        seen = self._field.log.by_kind()
        kinds = [kind for kind in disturbances if not seen[kind]] or list(disturbances)
        await disturbances[self._chance.choice(kinds)]()

    async def _kills(self, sizes: Sizes) -> None:
        """The process dies right before or right after one of its writes, and is started again."""
        (item, *_) = self._field.instances
        await self._field.start(item)
        async with self._load(sizes):
            item.proxy.plan = MILD
            for number in range(sizes.kills):
                await self._field.kill_at_write(item, is_before=number % 2 == 0)
                await self._field.start(item)
        await self._field.rest()
        await item.end()

    async def _restarts(self, sizes: Sizes) -> None:
        """The store stops under all its clients, cleanly or not."""
        (item, *_) = self._field.instances
        await self._field.start(item)
        async with self._load(sizes):
            for number in range(sizes.restarts):
                await self._field.watched(item, requests=60)
                is_killed = number % 2 == 1
                self._field.log.add(RESTARTED, "store", "killed" if is_killed else "ended")
                end = self._plane.kill if is_killed else self._plane.terminate
                await self._off_loop(end, kube_binaries.ETCD)
                await self._field.watched(item, requests=self._chance.randint(0, 30))
                await self._off_loop(self._plane.start_etcd)
                await self._off_loop(self._plane.wait_ready)
                await self._field.watched(item, requests=100)
        await self._field.rest()
        await item.end()

    async def _replicas(self, sizes: Sizes) -> None:
        """Two replicas: the leader is stopped past its lease, or killed between two writes."""
        for instance in self._field.instances:
            await self._field.start(instance, has_election=True)
        faults = [STOPPED] * sizes.stops + [KILLED_AFTER] * sizes.replica_kills
        self._chance.shuffle(faults)
        async with self._load(sizes):
            for instance in self._field.instances:
                # Delays stay well below what lies between a leader's last write and its successor's first one.
                instance.proxy.plan = MILD._replace(slow_seconds=0.2)
            for number, fault in enumerate(faults):
                if fault == STOPPED:
                    leader = await self._field.leader()
                    self._field.log.add(STOPPED, "scheduler", leader.user)
                    leader.signal(signal.SIGSTOP)
                    await self._field.succeeded(leader)
                    leader.signal(signal.SIGCONT)
                    await self._field.watched(leader, requests=4)
                else:  # only a leader writes
                    killed = await self._field.kill_at_write(
                        *self._field.instances, is_before=number % 2 == 0
                    )
                    await self._field.start(killed, has_election=True)
        await self._field.rest()
        for instance in self._field.instances:
            await instance.end()

    async def _gangs(self, sizes: Sizes) -> None:
        """The leader dies while gangs are being started and others yield to them; the other replica goes on."""
        at = self._field
        await gangs.furnish(at.api)
        users = gangs.Gangs(at.api, at.recorder, chance=random.Random(self._chance.random()))
        for instance in at.instances:
            await at.start(instance, has_election=True)
        async with self._load(sizes._replace(actions_per_second=1.5), users):
            for instance in at.instances:
                instance.proxy.plan = MILD._replace(slow_seconds=0.2)
            for number in range(sizes.gang_kills):
                most = users.created + self._chance.randint(0, 6)
                await comes_true_within(
                    lambda most=most: users.created >= most, seconds=campaign_cluster.SOON_SECONDS
                )
                what = GANG_WRITES[number % len(GANG_WRITES)]
                killed = await at.kill_at_write(*at.instances, is_before=number % 2 == 0, what=what)
                await at.start(killed, has_election=True)
        self._more_created = users.created
        await at.rest()
        await gangs.clear(at.api)
        for instance in at.instances:
            await instance.end()

    async def _rival(self, sizes: Sizes) -> None:
        """Another scheduler gives away the same devices. What it takes second is its own fault."""
        (item, *_) = self._field.instances
        await self._field.start(item, has_election=True)  # as there has been a lease before
        self._field.log.add(RIVAL, "devices", RIVAL_NAME)
        kubeconfig = self._plane.write_kubeconfig("rival", token=campaign_cluster.TOKENS["rival"])
        self._plane.start_scheduler(RIVAL_NAME, kubeconfig=kubeconfig)
        chance = random.Random(self._chance.random())
        theirs = workload.Workload(
            self._field.api, self._field.recorder, chance=chance, scheduler=RIVAL_NAME
        )
        async with self._load(sizes), self._load(sizes, theirs):
            await self._field.watched(
                item, writes=sizes.rival_writes, at_most=campaign_cluster.REST_SECONDS
            )
        self._plane.kill(f"{kube_binaries.SCHEDULER}-{RIVAL_NAME}")
        await self._field.rest()
        await item.end()

    async def _clock(self, sizes: Sizes) -> None:
        """The time of day jumps forwards and backwards under the scheduler."""
        (item, *_) = self._field.instances
        await self._field.start(item, has_election=True, command=with_stepping_clock)
        self._field.log.add(STEPPED, "clock", item.user)
        async with self._load(sizes):
            await self._field.watched(
                item, writes=sizes.clock_writes, at_most=campaign_cluster.REST_SECONDS
            )
            # A busy machine reads its clock less often for the same writes.
            await comes_true_within(
                lambda: _clock_steps(item) >= LEAST_STEPS,
                seconds=campaign_cluster.REST_SECONDS,
                pause=0.5,
            )
        if (steps := _clock_steps(item)) < LEAST_STEPS:
            self._field.object("idle", f"the clock of {item.user} stepped {steps} times only")
        await self._field.rest()
        await item.end()

    @contextlib.asynccontextmanager
    async def _load(
        self, sizes: Sizes, users: workload.Workload | gangs.Gangs | None = None
    ) -> AsyncIterator[None]:
        async def act() -> None:
            while True:
                await (users or self._field.workload).act()
                await asyncio.sleep(1 / sizes.actions_per_second)

        async with campaign_cluster.running(act()):
            yield

    async def _off_loop(self, act: Callable[..., Any], *arguments: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(self._hands, act, *arguments)


def _clock_steps(instance: Instance) -> int:
    """How often the wall clock of a replica has jumped, by its log."""
    text = instance.log.read_text(encoding="utf-8", errors="replace")
    return text.count("wall clock stepped by")

"""Runs the scheduler against a real control plane while everything around it breaks, then has the history judged.

Phases: a storm of broken requests; processes killed between two writes; the store restarted; two replicas, the leader
of which is stopped past its lease; a rival that allocates the same devices. After each phase the faults cease, the
cluster must come to rest, the scheduler must find its picture equal to a fresh one, and whoever fits an empty cluster
must get a place. Everything follows from a seed, except what the machine's own timing decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent import futures
from pathlib import Path
from typing import Any, Final, NamedTuple

from dovetail.boot import controlplane
from tests.faults import checker, checker_scene, client, estate, history, kubelets, plans, records, signatures, workload
from tests.faults.checker_scene import Judge, Violation
from tests.faults.injected import Log
from tests.faults.instances import Command, Instance, ours
from tests.faults.proxy import Proxy, Trap

USERS: Final = ("dovetail-one", "dovetail-two")
TOKENS: Final = {user: f"token-of-{user}" for user in (*USERS, "people", "rival")}
BEARERS: Final = tuple(
    controlplane.Bearer(token, user, () if user in USERS else ("system:masters",)) for user, token in TOKENS.items()
)
RIVAL_NAME: Final = "default-scheduler"
REST_SECONDS: Final = 90.0
PAUSED_SECONDS: Final = 4.5  # longer than the lease
KILLED_BEFORE: Final = "killed before a write"
KILLED_AFTER: Final = "killed after a write"
STOPPED: Final = "stopped past the lease"
RESTARTED: Final = "store restarted"
RIVAL: Final = "rival scheduler"
NODE_LOST: Final = "node lost"
REPUBLISHED: Final = "devices published anew"
TAINTED: Final = "devices tainted"
KINDS: Final = (
    *plans.ALL,
    KILLED_BEFORE,
    KILLED_AFTER,
    STOPPED,
    RESTARTED,
    RIVAL,
    NODE_LOST,
    REPUBLISHED,
    TAINTED,
)


class Sizes(NamedTuple):
    """How long a campaign goes on. Zero leaves a phase out."""

    storm_faults: int = 400
    kills: int = 36
    restarts: int = 2
    stops: int = 3
    replica_kills: int = 4
    rival_seconds: float = 20.0
    actions_per_second: float = 6.0


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
        return f"seed {self.seed}: {self.fault_count} faults, {placed}, {self.seconds:.0f} s, {harm}"


class Campaign:
    """One run on one control plane."""

    def __init__(
        self, plane: controlplane.ControlPlane, directory: Path, *, seed: int, command: Command = ours
    ) -> None:
        self._plane = plane
        self._directory = directory
        self._seed = seed
        self._chance = random.Random(seed)
        self._command = command
        self._stack = contextlib.AsyncExitStack()
        # etcd's process ends with the thread that started it, so one thread must outlive the run.
        self._hands = futures.ThreadPoolExecutor(max_workers=1)
        self._found: list[Violation] = []
        self.log = Log()

    async def run(self, sizes: Sizes) -> Report:
        """The whole of it."""
        began = time.monotonic()
        async with self._stack:
            await self._set_up(sizes)
            for phase in self._phases(sizes):
                await phase()
            recorded = await self._finished()
        self._hands.shutdown()
        seconds = time.monotonic() - began
        return await asyncio.to_thread(self._judged, recorded, seconds)

    def _phases(self, sizes: Sizes) -> list[Callable[[], Awaitable[None]]]:
        chosen: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (sizes.storm_faults, lambda: self._storm(sizes)),
            (sizes.kills, lambda: self._kills(sizes)),
            (sizes.restarts, lambda: self._restarts(sizes)),
            (sizes.stops + sizes.replica_kills, lambda: self._replicas(sizes)),
            (sizes.rival_seconds, lambda: self._rival(sizes)),
        ]
        return [phase for size, phase in chosen if size]

    # Before and after

    async def _set_up(self, sizes: Sizes) -> None:
        enter = self._stack.enter_async_context
        ca = self._plane.ca
        self.api = await enter(client.Client(self._plane.url, ca=ca, token=TOKENS["people"]))
        self.recorder = await enter(history.Recorder(self._plane.etcd_port))
        await self._furnish()
        self.kubelets = kubelets.Kubelets(self.api, self.recorder)
        await enter(_running(self.kubelets.run()))
        trust = ssl.create_default_context(cafile=str(ca))
        serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        serving.load_cert_chain(self._plane.layout.server.certificate, self._plane.layout.server.key)
        self.instances = []
        for user in USERS:
            chance = random.Random(self._chance.random())
            proxy = Proxy(
                self._plane.url, trust=trust, serving=serving, token=TOKENS["people"], chance=chance, log=self.log
            )
            await enter(proxy)
            directory, command = self._directory, self._command
            one = Instance(user, TOKENS[user], ca=ca, directory=directory, proxy=proxy, command=command)
            self.instances.append(one)
            self._stack.push_async_callback(one.end)
        self.workload = workload.Workload(self.api, self.recorder, chance=random.Random(self._chance.random()))

    async def _furnish(self) -> None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": estate.NAMESPACE}}
        await self.api.create(estate.path_of("namespaces"), namespace)
        for kind, trees in (
            ("clusterroles", estate.rights(USERS)[:1]),
            ("clusterrolebindings", estate.rights(USERS)[1:]),
            ("deviceclasses", estate.classes()),
            ("resourceclaimtemplates", estate.templates()),
        ):
            for tree in trees:
                await self.api.create(estate.path_of(kind), tree)
        for name in estate.NODES:
            await self._add_node(name)

    async def _add_node(self, name: str) -> None:
        await self.api.create(estate.path_of("nodes"), estate.node(name))
        for part in estate.slices(name):
            await self.api.create(estate.path_of("resourceslices"), part)

    async def _finished(self) -> records.History:
        for one in self.instances:
            await one.end()
            for bug in one.proxy.bugs:
                self._object("proxy", bug)
        return await self.recorder.finish()

    def _judged(self, recorded: records.History, seconds: float) -> Report:
        whole = signatures.signed(recorded, signatures.read(signatures.log_of(self._directory)))
        records.save(whole, self._directory / "history.jsonl.gz")
        self.log.save(self._directory / "faults.log")
        judge = Judge(frozenset(USERS), frozenset({estate.SCHEDULER}))
        placed = {
            checker_scene.uid_of(one.object)
            for one in whole.revisions
            if one.kind == "pods" and judge.is_ours(one.object) and checker_scene.node_of(one.object)
        }
        return Report(
            seed=self._seed,
            seconds=seconds,
            faults=dict(sorted(self.log.by_kind().items())),
            pods_created=self.workload.created,
            pods_placed=len(placed),
            revisions=len(whole.revisions),
            violations=[*self._found, *checker.violations(whole, judge)],
        )

    # Phases

    async def _storm(self, sizes: Sizes) -> None:
        """Requests break in every way, nodes and devices come and go, and now and then nothing works at all."""
        (one, *_) = self.instances
        await self._start(one)
        wanted = len(self.log.entries) + sizes.storm_faults
        async with self._load(sizes):
            one.proxy.plan = plans.stormy()
            deadline = time.monotonic() + sizes.storm_faults  # far more than it needs
            while len(self.log.entries) < wanted:
                if time.monotonic() > deadline:
                    self._object("idle", f"{one.user} asked too little for so many faults")
                    break
                await self._disturb()
                if self._chance.random() < 0.15:
                    await one.proxy.blackhole(self._chance.uniform(1, 4))
                await self._watched(one, seconds=2)
        await self._rest()
        await one.end()

    async def _kills(self, sizes: Sizes) -> None:
        """The process dies right before or right after one of its writes, and is started again."""
        (one, *_) = self.instances
        await self._start(one)
        async with self._load(sizes):
            one.proxy.plan = plans.stormy(0.03, lines=0.01)
            for number in range(sizes.kills):
                await self._kill_at_write(one, is_before=number % 2 == 0)
                await self._start(one)
        await self._rest()
        await one.end()

    async def _restarts(self, sizes: Sizes) -> None:
        """The store goes away under everybody, in good order or not."""
        (one, *_) = self.instances
        await self._start(one)
        async with self._load(sizes):
            for number in range(sizes.restarts):
                await self._watched(one, seconds=3)
                self.log.add(RESTARTED, "store", "killed" if number % 2 else "ended")
                await self._off_loop(self._plane.kill_etcd if number % 2 else lambda: self._plane.terminate("etcd"))
                await asyncio.sleep(self._chance.uniform(0, 4))
                await self._off_loop(self._plane.start_etcd)
                await self._off_loop(self._plane.wait_ready)
                await self._watched(one, seconds=5)
        await self._rest()
        await one.end()

    async def _replicas(self, sizes: Sizes) -> None:
        """Two replicas: whoever leads is stopped past its lease, or killed between two writes."""
        for one in self.instances:
            await self._start(one, has_election=True)
        faults = [STOPPED] * sizes.stops + [KILLED_AFTER] * sizes.replica_kills
        self._chance.shuffle(faults)
        async with self._load(sizes):
            for one in self.instances:
                # Delays stay well below what lies between a leader's last write and its successor's first one.
                one.proxy.plan = plans.stormy(0.03, lines=0.01)._replace(slow_seconds=0.2)
            for number, fault in enumerate(faults):
                leader = await self._leader()
                if fault == STOPPED:
                    self.log.add(STOPPED, "scheduler", leader.user)
                    leader.signal(signal.SIGSTOP)
                    await asyncio.sleep(PAUSED_SECONDS)
                    leader.signal(signal.SIGCONT)
                    await self._watched(leader, seconds=2)
                else:
                    await self._kill_at_write(leader, is_before=number % 2 == 0)
                    await self._start(leader, has_election=True)
        await self._rest()
        for one in self.instances:
            await one.end()

    async def _rival(self, sizes: Sizes) -> None:
        """Another scheduler gives away the same devices. What it takes second is its own fault."""
        (one, *_) = self.instances
        await self._start(one)
        self.log.add(RIVAL, "devices", RIVAL_NAME)
        kubeconfig = self._plane.write_kubeconfig("rival", token=TOKENS["rival"])
        self._plane.start_scheduler(RIVAL_NAME, kubeconfig=kubeconfig)
        theirs = workload.Workload(self.api, self.recorder, chance=random.Random(self._chance.random()))
        theirs.scheduler = RIVAL_NAME
        async with self._load(sizes), self._load(sizes, theirs):
            await self._watched(one, seconds=sizes.rival_seconds)
        self._plane.kill(f"kube-scheduler-{RIVAL_NAME}")
        await self._rest()
        await one.end()

    # What is done to the scheduler and its cluster

    async def _start(self, one: Instance, *, has_election: bool = False) -> None:
        one.start(has_election=has_election)
        if not await one.ready():
            self._object("crashed", f"{one.user} did not come up, exit code {one.exit_code()}")

    async def _kill_at_write(self, one: Instance, *, is_before: bool) -> None:
        """Dead at one of the next writes, whichever it is."""
        sprung = asyncio.Event()

        def spring(write: str) -> None:
            one.kill()
            self.log.add(KILLED_BEFORE if is_before else KILLED_AFTER, write.partition(" ")[0], write)
            sprung.set()

        one.proxy.trap = Trap(one.proxy.writes + self._chance.randint(1, 8), is_before, spring)
        try:
            async with asyncio.timeout(REST_SECONDS):
                await sprung.wait()
        except TimeoutError:
            self._object("idle", f"{one.user} wrote nothing for {REST_SECONDS:.0f} s, although there was work")
            one.proxy.trap = None
            one.kill()

    async def _disturb(self) -> None:
        """Something happens to nodes or devices."""
        choice = self._chance.random()
        name = self._chance.choice(estate.NODES)
        if choice < 0.15:
            await self._lose(name)
        elif choice < 0.3:
            await self._republish(name)
        elif choice < 0.45:
            self.log.add(TAINTED, "devices", name)
            rule = f"chaos-{len(self.log.entries)}"
            await self.api.create(estate.path_of("devicetaintrules"), estate.taint_rule(rule, name))
            await self._watched(self.instances[0], seconds=2)
            await self.api.delete(estate.path_of("devicetaintrules", rule))

    async def _lose(self, name: str) -> None:
        """A node vanishes with what it published; its pods are removed by force, and it comes back empty."""
        self.log.add(NODE_LOST, "node", name)
        self.kubelets.silent.add(name)
        await self.api.delete(estate.path_of("nodes", name))
        for part in estate.slices(name):
            await self.api.delete(estate.path_of("resourceslices", part["metadata"]["name"]))
        await self._watched(self.instances[0], seconds=2)
        for pod in history.find(self.recorder, "pods", estate.NAMESPACE):
            if checker_scene.node_of(pod) == name:
                await self.api.delete(estate.path_of("pods", pod["metadata"]["name"]), grace=0)
        self.kubelets.silent.discard(name)
        await self._add_node(name)

    async def _republish(self, name: str) -> None:
        """A newer generation lacks a device, the next one has it again."""
        self.log.add(REPUBLISHED, "devices", name)
        known = self.recorder.objects["resourceslices"].get(f"{name}-0")
        generation = known["spec"]["pool"]["generation"] if known else 1
        for step, lost in ((1, "gpu-0"), (2, "")):
            for part in estate.slices(name, generation=generation + step, lost=lost):
                path = estate.path_of("resourceslices", part["metadata"]["name"])
                await self.api.patch(path, {"spec": part["spec"]})
            await self._watched(self.instances[0], seconds=1)

    # Watching over it

    async def _watched(self, one: Instance, *, seconds: float) -> None:
        """Lets time pass; a scheduler that ends by itself is a finding, and is started again."""
        await asyncio.sleep(seconds)
        if one.exit_code() is not None:
            self._object("crashed", f"{one.user} ended by itself with exit code {one.exit_code()}")
            await self._start(one)

    async def _leader(self) -> Instance:
        """The replica whose lease the server took last, once there is one that goes on renewing it."""
        for _ in range(200):
            await asyncio.sleep(0.1)
            newest = max(self.instances, key=lambda one: one.proxy.led_at)
            if time.monotonic() - newest.proxy.led_at < 1.5 and newest.exit_code() is None:
                return newest
        self._object("idle", "nobody leads although two replicas run")
        return self.instances[0]

    @contextlib.asynccontextmanager
    async def _load(self, sizes: Sizes, users: workload.Workload | None = None) -> AsyncIterator[None]:
        async def act() -> None:
            while True:
                await (users or self.workload).act()
                await asyncio.sleep(1 / sizes.actions_per_second)

        async with _running(act()):
            yield

    async def _rest(self) -> None:
        """No more faults: everything must come to rest, the picture must be right, and nobody may be forgotten."""
        for one in self.instances:
            one.proxy.plan = plans.QUIET
        await self._until(self._is_answered, "pods without an answer")
        await self._compare()
        await self._drain()
        await self.workload.remove()
        await self.workload.remove_claims()
        await self._until(self._is_empty, "pods or claims that nobody removes")

    async def _compare(self) -> None:
        said = [await one.consistent() for one in self.instances if one.starts and one.exit_code() is None]
        verdicts = [one for one in said if one is not None and one.get("consistent") is not None]
        if not verdicts:
            self._object("inconsistent", f"nobody could be asked about the picture: {said}")
        for verdict in verdicts:
            if not verdict["consistent"]:
                self._object("inconsistent", str(verdict)[:1000])

    async def _drain(self) -> None:
        """Makes room again and again, until whoever fits an empty cluster has had a place."""
        deadline = time.monotonic() + REST_SECONDS
        while waiting := self._waiting():
            if time.monotonic() > deadline:
                told = {_name(pod): history.condition_of(pod, "PodScheduled").get("message") for pod in waiting}
                self._object("stuck", f"not placed although there is room: {told}")
                return
            await self.workload.remove(only_bound=True)
            names = {_name(pod) for pod in waiting}
            for _ in range(20):
                await self.recorder.change(0.5)
                if not names & {_name(pod) for pod in self._waiting()}:
                    break

    def _waiting(self) -> list[records.Tree]:
        ours_ = [pod for pod in self.workload.living() if pod["spec"]["schedulerName"] == estate.SCHEDULER]
        return [pod for pod in ours_ if not checker_scene.node_of(pod) and self.workload.could_fit(pod)]

    def _is_answered(self) -> list[str]:
        return [
            _name(pod)
            for pod in self.workload.living()
            if pod["spec"]["schedulerName"] == estate.SCHEDULER
            and not checker_scene.node_of(pod)
            and not history.condition_of(pod, "PodScheduled").get("reason")
        ]

    def _is_empty(self) -> list[str]:
        kinds = ("pods", "resourceclaims")
        return [f"{kind}/{_name(one)}" for kind in kinds for one in history.find(self.recorder, kind, estate.NAMESPACE)]

    async def _until(self, left: Callable[[], list[str]], what: str) -> None:
        """Waits until nothing is left; what is left after a while is a finding."""
        deadline = time.monotonic() + REST_SECONDS
        while names := left():
            if time.monotonic() > deadline:
                self._object("unsettled", f"{what}: {', '.join(names[:10])}")
                return
            await self.recorder.change(1.0)

    def _object(self, rule: str, text: str) -> None:
        self._found.append(Violation(rule, 0, text))

    async def _off_loop(self, act: Callable[[], Any]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._hands, act)


@contextlib.asynccontextmanager
async def _running(work: Any) -> AsyncIterator[None]:
    """Goes on in the background meanwhile; its failure is not hidden."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _name(tree: records.Tree) -> str:
    return str(tree["metadata"]["name"])

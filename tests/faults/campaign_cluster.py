"""The cluster of a campaign: its objects, its users and kubelets, and the scheduler's replicas.

Offers the faults, and checks what must hold once they end: every pod has an answer, the scheduler's picture
equals a fresh one, every pod that fits an empty cluster gets a place, and nothing is left behind. What
does not hold is noted in `found`. Never chooses what to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from dovetail.devcluster import control_plane
from dovetail.kube.watching import watch
from tests.faults import (
    checker_scene,
    client,
    disks,
    history,
    kubelets,
    objects,
    plans,
    records,
    signatures,
    slowness,
    workload,
)
from tests.faults.checker_scene import Violation
from tests.faults.injected import Log
from tests.faults.instances import Command, Instance, ours
from tests.faults.proxy import Proxy, Trap
from tests.support.waiting import comes_true_within

USERS: Final = ("dovetail-one", "dovetail-two")
TOKENS: Final = {user: f"token-of-{user}" for user in (*USERS, "people", "rival")}
BEARERS: Final = tuple(
    control_plane.Bearer(token, user, () if user in USERS else ("system:masters",))
    for user, token in TOKENS.items()
)
REST_SECONDS: Final = 90.0
SOON_SECONDS: Final = 15.0
DRAINS: Final = 9  # how often room is made for pods that wait, before one that still waits is stuck
DRAIN_SECONDS: Final = 10.0
KILLED_BEFORE: Final = "killed before a write"
KILLED_AFTER: Final = "killed after a write"
NODE_LOST: Final = "node lost"
REPUBLISHED: Final = "devices published again"
TAINTED: Final = "devices tainted"


def options(directory: Path) -> dict[str, Any]:
    """What the control plane of a campaign must be started with; its audit log goes into the directory."""
    flags = (*history.APISERVER_FLAGS, *signatures.flags(directory))
    return {"tokens": BEARERS, "extra_apiserver_flags": flags}


class Field:
    """One cluster. `async with` furnishes it and clears it."""

    def __init__(
        self,
        plane: control_plane.ControlPlane,
        directory: Path,
        *,
        chance: random.Random,
        machine: slowness.Slowness,
        command: Command = ours,
    ) -> None:
        self.plane = plane
        self._machine = machine
        self.log = Log()
        self.found: list[Violation] = []
        self.api = client.Client(plane.url, ca=plane.ca, token=TOKENS["people"])
        self.recorder = history.Recorder(plane.etcd_port)
        self.kubelets = kubelets.Kubelets(self.api, self.recorder)
        self.workload = workload.Workload(
            self.api, self.recorder, chance=random.Random(chance.random())
        )
        self.instances = [
            Instance(
                user,
                TOKENS[user],
                ca=plane.ca,
                directory=directory,
                proxy=self._proxy(chance),
                command=command,
            )
            for user in USERS
        ]
        self._chance = chance
        self._stack = contextlib.AsyncExitStack()

    def _proxy(self, chance: random.Random) -> Proxy:
        trust = ssl.create_default_context(cafile=str(self.plane.ca))
        serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        serving.load_cert_chain(self.plane.layout.server.certificate, self.plane.layout.server.key)
        own = random.Random(chance.random())
        return Proxy(
            self.plane.url,
            trust=trust,
            serving=serving,
            token=TOKENS["people"],
            chance=own,
            log=self.log,
        )

    async def __aenter__(self) -> Field:
        enter = self._stack.enter_async_context
        await enter(self.api)
        await enter(self.recorder)
        await self._furnish()
        await enter(running(self.kubelets.run()))
        await enter(running(disks.wipe(self.api, self.recorder, objects.NODES)))
        for instance in self.instances:
            await enter(instance.proxy)
            self._stack.push_async_callback(instance.end)
        return self

    async def __aexit__(self, *failure: Any) -> None:
        await self._stack.__aexit__(*failure)

    async def _furnish(self) -> None:
        namespace = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": objects.NAMESPACE},
        }
        await self.api.create(objects.path_of("namespaces"), namespace)
        role, binding = objects.rights(USERS)
        for kind, trees in (
            ("clusterroles", [role]),
            ("clusterrolebindings", [binding]),
            ("priorityclasses", objects.priority_classes()),
            ("deviceclasses", objects.classes()),
            ("resourceclaimtemplates", objects.templates()),
        ):
            for tree in trees:
                await self.api.create(objects.path_of(kind), tree)
        await self.api.create(disks.CLASSES_PATH, disks.storage_class())
        for name in objects.NODES:
            await self._add_node(name)

    async def finished(self) -> records.History:
        """Ends the replicas; all that was written."""
        for instance in self.instances:
            await instance.end()
            for bug in instance.proxy.bugs:
                self.object("proxy", bug)
        return await self.recorder.finish()

    # What is done to replicas

    async def start(
        self, instance: Instance, *, has_election: bool = False, command: Command | None = None
    ) -> None:
        """A new process for the replica, answering when this returns.

        Without an election nothing keeps the last words of a killed process from arriving late, so they are awaited.
        """
        if not has_election:
            await instance.proxy.settled()
        instance.start(has_election=has_election, slowness=self._machine.recent(), command=command)
        if not await instance.ready():
            self.object(
                "crashed", f"{instance.user} did not come up, exit code {instance.exit_code()}"
            )

    async def kill_at_write(self, *ones: Instance, is_before: bool, what: str = "") -> Instance:
        """One of them is dead at one of the next writes, whichever it is, or of a class if there is one soon; who."""
        killed: asyncio.Future[Instance] = asyncio.get_running_loop().create_future()
        for item in ones:
            spring = functools.partial(
                self._kill, item, killed, KILLED_BEFORE if is_before else KILLED_AFTER
            )
            item.proxy.trap = Trap(
                item.proxy.writes + self._chance.randint(1, 6), is_before, spring, what
            )
        try:
            if what and (await asyncio.wait([killed], timeout=SOON_SECONDS))[1]:
                for item in ones:
                    item.proxy.trap = item.proxy.trap and item.proxy.trap._replace(what="")
            async with asyncio.timeout(REST_SECONDS):
                return await killed
        except TimeoutError:
            users = " or ".join(item.user for item in ones)
            self.object(
                "idle", f"{users} wrote nothing for {REST_SECONDS:.0f} s, although there was work"
            )
            ones[0].kill()
            return ones[0]
        finally:
            for item in ones:
                item.proxy.trap = None

    def _kill(
        self, instance: Instance, killed: asyncio.Future[Instance], how: str, write: str
    ) -> None:
        if not killed.done():
            instance.kill()
            self.log.add(how, write.partition(" ")[0], write)
            killed.set_result(instance)

    async def watched(
        self, instance: Instance, *, requests: int = 0, writes: int = 0, at_most: float = 10.0
    ) -> None:
        """Lets a replica send so many requests, or place pods with so many writes; for no longer than is given.

        A scheduler that ends by itself is a finding, and is started again.
        """
        proxy = instance.proxy
        last_request, last_write = proxy.requests + requests, proxy.writes + writes

        def is_over() -> bool:
            return instance.exit_code() is not None or (
                proxy.requests >= last_request and proxy.writes >= last_write
            )

        await comes_true_within(is_over, seconds=at_most)
        if instance.exit_code() is not None:
            self.object(
                "crashed", f"{instance.user} ended by itself with exit code {instance.exit_code()}"
            )
            await self.start(instance, has_election=instance.has_election)

    async def leader(self) -> Instance:
        """The replica that renews the lease next."""
        before = {instance.user: instance.proxy.leases for instance in self.instances}

        def renewing() -> list[Instance]:
            running = [instance for instance in self.instances if instance.exit_code() is None]
            return [
                instance for instance in running if instance.proxy.leases > before[instance.user]
            ]

        if await comes_true_within(renewing, seconds=REST_SECONDS):
            return renewing()[0]
        self.object("idle", "no replica leads although two run")
        return self.instances[0]

    async def succeeded(self, leader: Instance) -> None:
        """Waits until another replica has taken the lease; a finding where none does."""
        others = [instance for instance in self.instances if instance is not leader]
        before = {other.user: other.proxy.leases for other in others}

        def has_successor() -> bool:
            return any(other.proxy.leases > before[other.user] for other in others)

        if not await comes_true_within(has_successor, seconds=REST_SECONDS):
            self.object("idle", f"no replica took the lease of {leader.user}, which was stopped")

    # What is done to nodes and devices

    async def _add_node(self, name: str) -> None:
        await self.api.create(objects.path_of("nodes"), objects.node(name))
        for part in objects.slices(name):
            await self.api.create(objects.path_of("resourceslices"), part)

    async def lose(self, name: str) -> None:
        """A node vanishes with what it published; its pods are removed by force, and it comes back empty."""
        self.log.add(NODE_LOST, "node", name)
        self.kubelets.silent.add(name)
        await self.api.delete(objects.path_of("nodes", name))
        for part in objects.slices(name):
            await self.api.delete(objects.path_of("resourceslices", part["metadata"]["name"]))
        await self.watched(self.instances[0], requests=40)
        for pod in history.find(self.recorder, "pods", objects.NAMESPACE):
            if checker_scene.node_of(pod) == name:
                await self.api.delete(objects.path_of("pods", pod["metadata"]["name"]), grace=0)
        self.kubelets.silent.discard(name)
        await self._add_node(name)

    async def republish(self, name: str) -> None:
        """A newer generation lacks a device, the next one has it again."""
        self.log.add(REPUBLISHED, "devices", name)
        known = self.recorder.objects["resourceslices"].get(f"{name}-0")
        generation = known["spec"]["pool"]["generation"] if known else 1
        for step, lost in ((1, "gpu-0"), (2, "")):
            for part in objects.slices(name, generation=generation + step, lost=lost):
                path = objects.path_of("resourceslices", part["metadata"]["name"])
                await self.api.patch(path, {"spec": part["spec"]})
            await self.watched(self.instances[0], requests=20)

    async def taint(self, name: str) -> None:
        """New work is kept off a node's devices for a moment."""
        self.log.add(TAINTED, "devices", name)
        rule = f"chaos-{len(self.log.entries)}"
        for version in objects.TAINT_VERSIONS:
            path = f"/apis/{version}/devicetaintrules"
            try:
                await self.api.create(path, objects.taint_rule(rule, name, version=version))
            except client.Refused as refused:
                if '"code":404' not in str(refused):
                    raise
                continue
            await self.watched(self.instances[0], requests=40)
            await self.api.delete(f"{path}/{rule}")
            return

    # What must hold afterwards

    async def rest(self) -> None:
        """No more faults: everything must come to rest, the picture must be right, and no pod may be forgotten."""
        for instance in self.instances:
            instance.proxy.plan = plans.QUIET
        await self._until(self._unanswered, "pods without an answer")
        await self._compare()
        await self._drain()
        await self.workload.remove()
        await self.workload.remove_claims()
        await self._until(self._left, "pods or claims that are not removed")

    async def _compare(self) -> None:
        """The pictures must be right, once watches that failed often enough to pause for long go on again."""
        wrong: list[str] = []

        async def is_right() -> bool:
            wrong[:] = await self._wrong_pictures()
            return not wrong

        await comes_true_within(is_right, seconds=2 * watch.LONGEST_PAUSE_SECONDS, pause=0.5)
        for text in wrong:
            self.object("inconsistent", text)

    async def _wrong_pictures(self) -> list[str]:
        messages = [
            await instance.consistent() for instance in self.instances if instance.is_running
        ]
        verdicts = [
            message
            for message in messages
            if message is not None and message.get("consistent") is not None
        ]
        if not verdicts:
            return [f"no replica could be asked about its picture: {messages}"]
        return [str(verdict)[:1000] for verdict in verdicts if not verdict["consistent"]]

    async def _drain(self) -> None:
        """Makes room again and again, until every pod that fits an empty cluster has had a place."""
        for _ in range(DRAINS):
            names = {_name(pod) for pod in self._waiting()}
            if not names:
                return
            await self.workload.remove(only_bound=True)
            await self._placed(names)
        if waiting := self._waiting():
            messages = {
                _name(pod): history.condition_of(pod, "PodScheduled").get("message")
                for pod in waiting
            }
            self.object("stuck", f"not placed although there is room: {messages}")

    async def _placed(self, names: set[str]) -> None:
        """Waits for places for all of these pods, for as long as one drain may take."""
        await comes_true_within(
            lambda: not names & {_name(pod) for pod in self._waiting()},
            seconds=DRAIN_SECONDS,
            pause=0.1,
        )

    def _ours(self) -> list[records.Tree]:
        """Our pods without a node."""
        living = self.workload.living()
        mine = [pod for pod in living if pod["spec"]["schedulerName"] == objects.SCHEDULER]
        return [pod for pod in mine if not checker_scene.node_of(pod)]

    def _waiting(self) -> list[records.Tree]:
        return [pod for pod in self._ours() if self.workload.could_fit(pod)]

    def _unanswered(self) -> list[str]:
        return [
            _name(pod)
            for pod in self._ours()
            if not history.condition_of(pod, "PodScheduled").get("reason")
        ]

    def _left(self) -> list[str]:
        kinds = ("pods", "resourceclaims", "persistentvolumeclaims")
        return [
            f"{kind}/{_name(tree)}"
            for kind in kinds
            for tree in history.find(self.recorder, kind, objects.NAMESPACE)
        ]

    async def _until(self, left: Callable[[], list[str]], what: str) -> None:
        """Waits until nothing is left; what is left after a while is a finding."""
        if not await comes_true_within(lambda: not left(), seconds=REST_SECONDS, pause=0.1):
            self.object("unsettled", f"{what}: {', '.join(left()[:10])}")

    def object(self, rule: str, text: str) -> None:
        """Notes what should not be."""
        self.found.append(Violation(rule, 0, text))


@contextlib.asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
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

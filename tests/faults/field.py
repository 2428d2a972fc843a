"""The place where campaigns are fought: a furnished cluster, its users and kubelets, and the scheduler's replicas.

Offers what can be done to them, and what must hold once it ceases: everybody is answered, the scheduler's picture
equals a fresh one, whoever fits an empty cluster gets a place, and nothing is left behind. What does not hold is noted
in `found`. Never chooses what to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from dovetail.boot import controlplane
from dovetail.kube import watch
from tests.faults import checker_scene, client, disks, estate, history, kubelets, plans, records, signatures, workload
from tests.faults.checker_scene import Violation
from tests.faults.injected import Log
from tests.faults.instances import Command, Instance, ours
from tests.faults.proxy import Proxy, Trap

USERS: Final = ("dovetail-one", "dovetail-two")
TOKENS: Final = {user: f"token-of-{user}" for user in (*USERS, "people", "rival")}
BEARERS: Final = tuple(
    controlplane.Bearer(token, user, () if user in USERS else ("system:masters",)) for user, token in TOKENS.items()
)
REST_SECONDS: Final = 90.0
SOON_SECONDS: Final = 15.0
KILLED_BEFORE: Final = "killed before a write"
KILLED_AFTER: Final = "killed after a write"
NODE_LOST: Final = "node lost"
REPUBLISHED: Final = "devices published anew"
TAINTED: Final = "devices tainted"


def options(directory: Path) -> dict[str, Any]:
    """What the control plane of a campaign must be started with; its audit log goes into the directory."""
    flags = (*history.APISERVER_FLAGS, *signatures.flags(directory))
    return {"tokens": BEARERS, "extra_apiserver_flags": flags}


class Field:
    """One cluster. `async with` furnishes it and clears it."""

    def __init__(
        self, plane: controlplane.ControlPlane, directory: Path, *, chance: random.Random, command: Command = ours
    ) -> None:
        self.plane = plane
        self.log = Log()
        self.found: list[Violation] = []
        self.api = client.Client(plane.url, ca=plane.ca, token=TOKENS["people"])
        self.recorder = history.Recorder(plane.etcd_port)
        self.kubelets = kubelets.Kubelets(self.api, self.recorder)
        self.workload = workload.Workload(self.api, self.recorder, chance=random.Random(chance.random()))
        self.instances = [
            Instance(user, TOKENS[user], ca=plane.ca, directory=directory, proxy=self._proxy(chance), command=command)
            for user in USERS
        ]
        self._chance = chance
        self._stack = contextlib.AsyncExitStack()

    def _proxy(self, chance: random.Random) -> Proxy:
        trust = ssl.create_default_context(cafile=str(self.plane.ca))
        serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        serving.load_cert_chain(self.plane.layout.server.certificate, self.plane.layout.server.key)
        own = random.Random(chance.random())
        return Proxy(self.plane.url, trust=trust, serving=serving, token=TOKENS["people"], chance=own, log=self.log)

    async def __aenter__(self) -> Field:
        enter = self._stack.enter_async_context
        await enter(self.api)
        await enter(self.recorder)
        await self._furnish()
        await enter(running(self.kubelets.run()))
        await enter(running(disks.wipe(self.api, self.recorder, estate.NODES)))
        for one in self.instances:
            await enter(one.proxy)
            self._stack.push_async_callback(one.end)
        return self

    async def __aexit__(self, *failure: Any) -> None:
        await self._stack.__aexit__(*failure)

    async def _furnish(self) -> None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": estate.NAMESPACE}}
        await self.api.create(estate.path_of("namespaces"), namespace)
        role, binding = estate.rights(USERS)
        for kind, trees in (
            ("clusterroles", [role]),
            ("clusterrolebindings", [binding]),
            ("priorityclasses", estate.priority_classes()),
            ("deviceclasses", estate.classes()),
            ("resourceclaimtemplates", estate.templates()),
        ):
            for tree in trees:
                await self.api.create(estate.path_of(kind), tree)
        await self.api.create(disks.CLASSES_PATH, disks.storage_class())
        for name in estate.NODES:
            await self._add_node(name)

    async def finished(self) -> records.History:
        """Ends the replicas; all that was written."""
        for one in self.instances:
            await one.end()
            for bug in one.proxy.bugs:
                self.object("proxy", bug)
        return await self.recorder.finish()

    # What is done to replicas

    async def start(self, one: Instance, *, has_election: bool = False, command: Command | None = None) -> None:
        """A new process for the replica, answering when this returns.

        Without an election nothing keeps the last words of a killed process from arriving late, so they are awaited.
        """
        if not has_election:
            await one.proxy.settled()
        one.start(has_election=has_election, command=command)
        if not await one.ready():
            self.object("crashed", f"{one.user} did not come up, exit code {one.exit_code()}")

    async def kill_at_write(self, *ones: Instance, is_before: bool, what: str = "") -> Instance:
        """One of them is dead at one of the next writes, whichever it is, or of a class if there is one soon; who."""
        killed: asyncio.Future[Instance] = asyncio.get_running_loop().create_future()
        for one in ones:
            spring = functools.partial(self._kill, one, killed, KILLED_BEFORE if is_before else KILLED_AFTER)
            one.proxy.trap = Trap(one.proxy.writes + self._chance.randint(1, 6), is_before, spring, what)
        try:
            if what and (await asyncio.wait([killed], timeout=SOON_SECONDS))[1]:
                for one in ones:
                    one.proxy.trap = one.proxy.trap and one.proxy.trap._replace(what="")
            async with asyncio.timeout(REST_SECONDS):
                return await killed
        except TimeoutError:
            users = " or ".join(one.user for one in ones)
            self.object("idle", f"{users} wrote nothing for {REST_SECONDS:.0f} s, although there was work")
            ones[0].kill()
            return ones[0]
        finally:
            for one in ones:
                one.proxy.trap = None

    def _kill(self, one: Instance, killed: asyncio.Future[Instance], how: str, write: str) -> None:
        if not killed.done():
            one.kill()
            self.log.add(how, write.partition(" ")[0], write)
            killed.set_result(one)

    async def watched(self, one: Instance, *, seconds: float) -> None:
        """Lets time pass; a scheduler that ends by itself is a finding, and is started again."""
        await asyncio.sleep(seconds)
        if one.exit_code() is not None:
            self.object("crashed", f"{one.user} ended by itself with exit code {one.exit_code()}")
            await self.start(one, has_election=one.has_election)

    async def leader(self) -> Instance:
        """The replica whose lease the server took last, once there is one that goes on renewing it."""
        deadline = time.monotonic() + REST_SECONDS
        while time.monotonic() < deadline:
            await asyncio.sleep(0.1)
            newest = max(self.instances, key=lambda one: one.proxy.led_at)
            if time.monotonic() - newest.proxy.led_at < 1.5 and newest.exit_code() is None:
                return newest
        self.object("idle", "nobody leads although two replicas run")
        return self.instances[0]

    # What is done to nodes and devices

    async def _add_node(self, name: str) -> None:
        await self.api.create(estate.path_of("nodes"), estate.node(name))
        for part in estate.slices(name):
            await self.api.create(estate.path_of("resourceslices"), part)

    async def lose(self, name: str) -> None:
        """A node vanishes with what it published; its pods are removed by force, and it comes back empty."""
        self.log.add(NODE_LOST, "node", name)
        self.kubelets.silent.add(name)
        await self.api.delete(estate.path_of("nodes", name))
        for part in estate.slices(name):
            await self.api.delete(estate.path_of("resourceslices", part["metadata"]["name"]))
        await self.watched(self.instances[0], seconds=2)
        for pod in history.find(self.recorder, "pods", estate.NAMESPACE):
            if checker_scene.node_of(pod) == name:
                await self.api.delete(estate.path_of("pods", pod["metadata"]["name"]), grace=0)
        self.kubelets.silent.discard(name)
        await self._add_node(name)

    async def republish(self, name: str) -> None:
        """A newer generation lacks a device, the next one has it again."""
        self.log.add(REPUBLISHED, "devices", name)
        known = self.recorder.objects["resourceslices"].get(f"{name}-0")
        generation = known["spec"]["pool"]["generation"] if known else 1
        for step, lost in ((1, "gpu-0"), (2, "")):
            for part in estate.slices(name, generation=generation + step, lost=lost):
                path = estate.path_of("resourceslices", part["metadata"]["name"])
                await self.api.patch(path, {"spec": part["spec"]})
            await self.watched(self.instances[0], seconds=1)

    async def taint(self, name: str) -> None:
        """New work is kept off a node's devices for a moment."""
        self.log.add(TAINTED, "devices", name)
        rule = f"chaos-{len(self.log.entries)}"
        for version in estate.TAINT_VERSIONS:
            path = f"/apis/{version}/devicetaintrules"
            try:
                await self.api.create(path, estate.taint_rule(rule, name, version=version))
            except client.Refused as refused:
                if '"code":404' not in str(refused):
                    raise
                continue
            await self.watched(self.instances[0], seconds=2)
            await self.api.delete(f"{path}/{rule}")
            return

    # What must hold afterwards

    async def rest(self) -> None:
        """No more faults: everything must come to rest, the picture must be right, and nobody may be forgotten."""
        for one in self.instances:
            one.proxy.plan = plans.QUIET
        await self._until(self._unanswered, "pods without an answer")
        await self._compare()
        await self._drain()
        await self.workload.remove()
        await self.workload.remove_claims()
        await self._until(self._left, "pods or claims that nobody removes")

    async def _compare(self) -> None:
        """The pictures must be right, once watches that failed often enough to pause for long go on again."""
        deadline = time.monotonic() + 2 * watch.LONGEST_PAUSE_SECONDS
        while True:
            said = [await one.consistent() for one in self.instances if one.is_running]
            verdicts = [one for one in said if one is not None and one.get("consistent") is not None]
            wrong = [str(verdict)[:1000] for verdict in verdicts if not verdict["consistent"]]
            if not verdicts:
                wrong = [f"nobody could be asked about the picture: {said}"]
            if not wrong or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.5)
        for text in wrong:
            self.object("inconsistent", text)

    async def _drain(self) -> None:
        """Makes room again and again, until whoever fits an empty cluster has had a place."""
        deadline = time.monotonic() + REST_SECONDS
        while waiting := self._waiting():
            if time.monotonic() > deadline:
                told = {_name(pod): history.condition_of(pod, "PodScheduled").get("message") for pod in waiting}
                self.object("stuck", f"not placed although there is room: {told}")
                return
            await self.workload.remove(only_bound=True)
            names = {_name(pod) for pod in waiting}
            for _ in range(20):
                await self.recorder.change(0.5)
                if not names & {_name(pod) for pod in self._waiting()}:
                    break

    def _ours(self) -> list[records.Tree]:
        """Our pods without a node."""
        living = self.workload.living()
        mine = [pod for pod in living if pod["spec"]["schedulerName"] == estate.SCHEDULER]
        return [pod for pod in mine if not checker_scene.node_of(pod)]

    def _waiting(self) -> list[records.Tree]:
        return [pod for pod in self._ours() if self.workload.could_fit(pod)]

    def _unanswered(self) -> list[str]:
        return [_name(pod) for pod in self._ours() if not history.condition_of(pod, "PodScheduled").get("reason")]

    def _left(self) -> list[str]:
        kinds = ("pods", "resourceclaims", "persistentvolumeclaims")
        return [f"{kind}/{_name(one)}" for kind in kinds for one in history.find(self.recorder, kind, estate.NAMESPACE)]

    async def _until(self, left: Callable[[], list[str]], what: str) -> None:
        """Waits until nothing is left; what is left after a while is a finding."""
        deadline = time.monotonic() + REST_SECONDS
        while names := left():
            if time.monotonic() > deadline:
                self.object("unsettled", f"{what}: {', '.join(names[:10])}")
                return
            await self.recorder.change(1.0)

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

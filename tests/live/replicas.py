"""Replicas that elect a leader on one virtual clock: a server with one Lease, lines that delay and lose messages.

Every replica has its own clock: another time of day, another origin of the monotonic seconds, and it can be
stopped like a process. What was sent arrives whether or not the sender still waits. `World.faults` lists every
moment at which two fences were open or a write of an older tenure arrived after a newer one had begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import msgspec

from dovetail.live.election import leader_election
from dovetail.ports import api, failures
from dovetail.sim.virtual_clock import VirtualClock

FOREVER = 1e9
TURNS = 5  # of the event loop, from an answer's arrival at the socket to the task that waits for it
QUIET = "2026-01-01T00:00:00.000000Z"


class Fate(NamedTuple):
    """What becomes of one request: seconds on the way there and back, and whether it or its answer gets lost."""

    there: float = 0.0
    back: float = 0.0
    is_lost: bool = False
    is_answer_lost: bool = False


class Server:
    """One Lease, as kube-apiserver would keep it."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.reads = 0
        self.patches = 0

    @property
    def holder(self) -> str:
        return (self.lease or {}).get("spec", {}).get("holderIdentity", "")

    def get(self) -> bytes:
        self.reads += 1
        if self.lease is None:
            raise failures.Missing("no lease", status=404)
        return msgspec.json.encode(self.lease)

    def create(self, document: bytes) -> bytes:
        if self.lease is not None:
            raise failures.AlreadyThere("a lease is there", status=409)
        return self._stored(msgspec.json.decode(document))

    def patch(self, document: bytes) -> bytes:
        if self.lease is None:
            raise failures.Missing("no lease", status=404)
        change = msgspec.json.decode(document)
        if change["metadata"].get("resourceVersion") != self.lease["metadata"]["resourceVersion"]:
            raise failures.Conflict("another writer was first", status=409)
        self.patches += 1
        return self._stored(self.lease | {"spec": self.lease["spec"] | change["spec"]})

    def write_externally(self, **spec: Any) -> None:
        """Another client writes the Lease."""
        lease = self.lease or {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {},
            "spec": {},
        }
        self._stored(lease | {"spec": lease["spec"] | spec})

    def _stored(self, lease: dict[str, Any]) -> bytes:
        self.version += 1
        spec = {key: value for key, value in lease["spec"].items() if value is not None}
        self.lease = lease | {
            "spec": spec,
            "metadata": lease["metadata"] | {"resourceVersion": str(self.version)},
        }
        return msgspec.json.encode(self.lease)


class World:
    """All replicas, the server between them, and what went wrong."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.server = Server()
        self.tenures: list[tuple[float, Replica, leader_election.Fence]] = []
        self.faults: list[str] = []
        self.arrived: list[int] = []
        self.under_way: set[asyncio.Task[bytes]] = set()
        self.lines: list[Line] = []

    def became_leader(self, replica: Replica, fence: leader_election.Fence) -> None:
        for _, other, old in self.tenures:
            if old.remaining() > 0:
                self.faults.append(
                    f"{self.clock.monotonic():.2f}: {replica.name} starts while {other.name} may write"
                )
        self.tenures.append((self.clock.monotonic(), replica, fence))

    def write_arrived(self, tenure: int) -> bytes:
        self.arrived.append(tenure)
        newest = self.tenures[-1][2].tenure
        if tenure < newest:
            self.faults.append(
                f"{self.clock.monotonic():.2f}: a write of tenure {tenure} arrives during {newest}"
            )
        return b"{}"

    def leaders(self) -> list[Replica]:
        return [replica for _, replica, fence in self.tenures if fence.remaining() > 0]

    async def until(
        self, condition: Callable[[], bool], *, within: float = 120.0, step: float = 0.25
    ) -> float:
        """Lets time pass until the condition holds; the time it took."""
        began = self.clock.monotonic()
        while not condition():
            assert self.clock.monotonic() - began < within, f"not so within {within} s"
            await self.clock.advance(step)
        return self.clock.monotonic() - began

    async def end(self) -> None:
        """Kills everything, failed stories included."""
        for line in self.lines:
            line.is_dead = True
        others = asyncio.all_tasks() - {asyncio.current_task()}
        while waiting := [task for task in others if not task.done()]:
            for task in waiting:
                task.cancel()
            await self.clock.advance(60)


class ProcessClock:
    """The clocks of one process: skewed, of their own origin, and late when the process was stopped."""

    def __init__(self, world: VirtualClock, *, skew: float = 0.0, origin: float = 0.0) -> None:
        self._world = world
        self._skew = datetime.timedelta(seconds=skew)
        self._origin = origin
        self.stopped_until = 0.0

    def now(self) -> datetime.datetime:
        return self._world.now() + self._skew

    def monotonic(self) -> float:
        return self._world.monotonic() + self._origin

    async def sleep(self, seconds: float) -> None:
        await self._world.sleep(seconds)
        await self.go_on()

    async def go_on(self) -> None:
        """Where the process was stopped: until it is continued."""
        while self.stopped_until > self._world.monotonic():
            await self._world.sleep(self.stopped_until - self._world.monotonic())


class Line:
    """One replica's connection to the server. Implements ports.api.Api as far as elections use it."""

    def __init__(self, world: World, clock: ProcessClock) -> None:
        self._world = world
        self._clock = clock
        world.lines.append(self)
        self.fate: Callable[[], Fate] = Fate
        self.is_dead = False

    async def get(self, target: api.Target) -> bytes:
        return await self._carried(self._world.server.get)

    async def create(self, target: api.Target, document: bytes, *, brief: bool = False) -> bytes:
        return await self._carried(lambda: self._world.server.create(document))

    async def patch(
        self, target: api.Target, patch: bytes, *, brief: bool = False, adds: bool = False
    ) -> bytes:
        return await self._carried(lambda: self._world.server.patch(patch))

    async def protect(
        self, target: api.Target, finalizer: str, *, uid: str, resource_version: str
    ) -> bytes:
        raise failures.Refused("elections protect no leases")

    async def delete(
        self, target: api.Target, *, uid: str = "", resource_version: str = ""
    ) -> None:
        raise failures.Refused("elections delete no leases")

    async def evict(
        self,
        target: api.Target,
        *,
        uid: str,
        grace_seconds: int | None = None,
        is_rehearsal: bool = False,
    ) -> None:
        raise failures.Refused("nothing to evict")

    async def write(self, fence: leader_election.Fence) -> None:
        """Something only a leader may write, with a timeout that fits the fence."""
        fence.check()
        limit = fence.remaining()
        asked = asyncio.ensure_future(
            self._carried(lambda: self._world.write_arrived(fence.tenure))
        )
        alarm = asyncio.ensure_future(self._clock.sleep(limit))
        try:
            await asyncio.wait({asked, alarm}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            alarm.cancel()
            asked.cancel()
            with contextlib.suppress(asyncio.CancelledError, failures.Unavailable):
                await asked
            if asked.cancelled() or asked.exception():
                fence.mark_unanswered()

    async def _carried(self, act: Callable[[], bytes]) -> bytes:
        fate = self.fate()
        if self.is_dead:
            raise failures.Unavailable("no connection")
        if fate.is_lost:
            await self._clock.sleep(fate.there)
            raise failures.Unavailable("connection broken")
        sent = asyncio.ensure_future(self._delivered(act, after=fate.there))
        self._world.under_way.add(sent)
        sent.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.wait({sent})
        await self._clock.sleep(fate.back)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        if fate.is_answer_lost:
            raise failures.Unavailable("connection broken")
        return sent.result()

    async def _delivered(self, act: Callable[[], bytes], *, after: float) -> bytes:
        await self._world.clock.sleep(after)  # the wire does not stop with the process
        return act()


class Replica:
    """A process that wants to lead, and writes while it does."""

    def __init__(
        self, world: World, name: str, *, skew: float = 0.0, origin: float = 0.0, lot: float = 0.5
    ) -> None:
        self.name = name
        self.world = world
        self.clock = ProcessClock(world.clock, skew=skew, origin=origin)
        self.line = Line(world, self.clock)
        self.is_well = True
        self.election = leader_election.Election(
            self.line,
            self.clock,
            namespace="kube-system",
            name="dovetail",
            identity=name,
            chance=lambda: lot,
            is_well=lambda: self.is_well,
        )
        self.ended: list[float] = []  # when each tenure ended
        self.shutdown_seconds = 0.0
        self.running: asyncio.Task[None] = asyncio.ensure_future(self.election.run(self.lead))

    @property
    def is_leading(self) -> bool:
        return self.election.status.is_leading

    @property
    def fence(self) -> leader_election.Fence:
        """Of its latest tenure."""
        return next(fence for _, replica, fence in reversed(self.world.tenures) if replica is self)

    async def lead(self, fence: leader_election.Fence) -> None:
        self.world.became_leader(self, fence)
        try:
            while True:
                await self.line.write(fence)
                await self.clock.sleep(0.7)
        finally:
            if self.shutdown_seconds:
                await self.clock.sleep(self.shutdown_seconds)
                await self.line.write(fence)
            self.ended.append(self.world.clock.monotonic())

    def stop_process(self, seconds: float) -> None:
        """As SIGSTOP does, for so many seconds."""
        self.clock.stopped_until = self.world.clock.monotonic() + seconds

    def kill(self) -> None:
        """As SIGKILL does: nothing it sends during its shutdown arrives."""
        self.line.is_dead = True
        self.shutdown_seconds = 0.0
        self.running.cancel()

    def shut_down(self) -> None:
        self.running.cancel()


def run_story(story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    """Runs the story to its end. Fails where two replicas could write at once."""

    async def main() -> None:
        world = World()
        try:
            await story(world)
        finally:
            await world.end()
        assert world.faults == []

    asyncio.run(main())

"""One run of one contender: pods wait, it starts, an independent watch sees when each pod gets its node.

Given a cluster with waiting pods and a command; says how long what took and whose processor time it cost. Checks that
every pod is bound and no device is given twice. The clock of a run starts with the contender's first write.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from bench import live_cluster
from dovetail.devcluster import processes
from dovetail.kube.http import paths
from dovetail.kubetypes import codec, registry

TICKS = os.sysconf("SC_CLK_TCK")
STALLED_SECONDS = 120.0  # without a single new binding
STOP_SECONDS = 20.0
OPEN_SECONDS = 60.0  # for both watches
CONTENDER, OBSERVER, MACHINE = "contender", "observer", "machine"
QUIET_SHARE = 0.08  # of all processor time, spent by others
QUIET_WINDOW_SECONDS = 0.5

Cpu = dict[str, float]  # processor seconds spent so far, by process


class Run(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What a run took."""

    pods: int
    pods_per_second: float  # from the first write to the last binding
    between_bindings_per_second: float  # from the first to the last binding
    first_binding_seconds: float  # from the start of the process
    last_binding_seconds: float
    cpu_milliseconds_per_pod: dict[str, float]  # from the first write to the last binding
    contender_cpu_seconds: float  # from the start of the process to the last binding
    resident_mib: float  # at the last binding
    peak_mib: float
    others_share: (
        float  # of the machine's processors, taken by who has nothing to do with the run meanwhile
    )


class _Line(msgspec.Struct):
    """As much of a watch's line as tells where it stands."""

    object: codec.Generic


_LINE: Final = msgspec.json.Decoder(_Line)


class Watcher:
    """Sees the first write to a claim and every binding."""

    def __init__(self, cluster: live_cluster.Cluster, wanted: int) -> None:
        self.pids = {**cluster.pids, OBSERVER: os.getpid()}
        self.first_write = 0.0
        self.bindings: list[float] = []
        self.cpu_at_first_write: Cpu = {}
        self.cpu_at_last: Cpu = {}
        self._cluster = cluster
        self._wanted = wanted
        self._progress = asyncio.Event()

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Both watches are open meanwhile."""
        writes, bound = asyncio.Event(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._watch_writes(writes)),
                group.create_task(self._watch_bindings(bound)),
            ]
            async with asyncio.timeout(OPEN_SECONDS):
                await writes.wait()
                await bound.wait()
            yield
            for task in tasks:
                task.cancel()

    async def all_bound(self, process: subprocess.Popen[bytes], log: Path) -> None:
        """Waits for the last binding. Raises when nothing moves any more."""
        while len(self.bindings) < self._wanted:
            self._progress.clear()
            try:
                async with asyncio.timeout(STALLED_SECONDS):
                    await self._progress.wait()
            except TimeoutError:
                done = f"{len(self.bindings)} of {self._wanted} pods bound"
                ending = "nothing moves" if process.poll() is None else "the contender ended"
                raise RuntimeError(
                    f"{done}, and {ending}; its log:\n{processes.tail_of(log)}"
                ) from None

    async def _watch_writes(self, opened: asyncio.Event) -> None:
        """The first event is enough; what follows would only cost the API server."""
        async with contextlib.aclosing(self._changes(registry.CLAIM, {}, opened)) as lines:
            async for line in lines:
                if line.startswith(b'{"type":"MODIFIED"'):
                    self.first_write = time.monotonic()
                    self.cpu_at_first_write = cpu_of(self.pids)
                    return

    async def _watch_bindings(self, opened: asyncio.Event) -> None:
        """A pod that gets a node appears in a watch of pods that have one."""
        async with contextlib.aclosing(
            self._changes(registry.POD, {"fieldSelector": "spec.nodeName!="}, opened)
        ) as lines:
            async for line in lines:
                if line.startswith(b'{"type":"ADDED"'):
                    self.bindings.append(time.monotonic())
                    if len(self.bindings) == self._wanted:
                        self.cpu_at_last = cpu_of(self.pids)
                    self._progress.set()

    async def _changes(
        self, kind: registry.Kind, selector: dict[str, str], opened: asyncio.Event
    ) -> AsyncGenerator[bytes, None]:
        """The lines of a watch from now on. A server ends watches that seem slow to it: they go on where they ended."""
        over, path = self._cluster.over, paths.collection(kind, live_cluster.WORK)
        head = live_cluster.checked(await over.request("GET", path, params={"limit": "1"}), path)
        version = msgspec.json.decode(head)["metadata"]["resourceVersion"]
        while True:
            params = {"watch": "true", "resourceVersion": version, **selector}
            async with contextlib.aclosing(
                over.lines(path, params, opened=opened.set, idle_timeout=600)
            ) as lines:
                async for line in lines:
                    version = _LINE.decode(line).object.metadata.resource_version
                    assert version, f"the watch of {kind.plural} cannot go on: {line[:300]!r}"
                    yield line


async def run(
    cluster: live_cluster.Cluster, command: Sequence[str | Path], *, count: int, log: Path
) -> Run:
    """Starts the contender on so many waiting pods and stops it after the last is bound."""
    watcher = Watcher(cluster, count)
    async with watcher.watching():
        before = cpu_of(watcher.pids)
        began = time.monotonic()
        process = processes.start(command, log=log, is_tethered=True)
        watcher.pids[CONTENDER] = process.pid
        try:
            await watcher.all_bound(process, log)
            resident, peak = memory_mib(process.pid)
        finally:
            await stopped(process)
    await check(cluster, count)
    assert watcher.first_write, "no write to a claim was seen"
    first, last = watcher.bindings[0], watcher.bindings[-1]
    base = {**before, **watcher.cpu_at_first_write}
    spent = {name: total - base.get(name, 0.0) for name, total in watcher.cpu_at_last.items()}
    everyone = spent.pop(MACHINE)
    return Run(
        pods=count,
        pods_per_second=count / (last - watcher.first_write),
        between_bindings_per_second=(count - 1) / (last - first) if last > first else 0.0,
        first_binding_seconds=first - began,
        last_binding_seconds=last - began,
        cpu_milliseconds_per_pod={name: 1000 * seconds / count for name, seconds in spent.items()},
        contender_cpu_seconds=watcher.cpu_at_last[CONTENDER],
        resident_mib=resident,
        peak_mib=peak,
        others_share=max(0.0, everyone - sum(spent.values()))
        / (last - watcher.first_write)
        / (os.cpu_count() or 1),
    )


async def quiet(cluster: live_cluster.Cluster, patience_seconds: float) -> None:
    """Waits until no other process uses the machine, or until patience ends."""
    pids = {**cluster.pids, OBSERVER: os.getpid()}
    deadline = time.monotonic() + patience_seconds
    while time.monotonic() < deadline:
        before = cpu_of(pids)
        await asyncio.sleep(QUIET_WINDOW_SECONDS)
        spent = {name: total - before[name] for name, total in cpu_of(pids).items()}
        others = 2 * spent[MACHINE] - sum(spent.values())
        if others / QUIET_WINDOW_SECONDS / (os.cpu_count() or 1) < QUIET_SHARE:
            return


async def check(cluster: live_cluster.Cluster, count: int) -> None:
    """Raises unless so many pods are bound, each with a device on its node that no other claim holds."""
    nodes = {
        one["metadata"]["name"]: one["spec"].get("nodeName")
        for one in await cluster.listed(registry.POD, "work")
    }
    held = await cluster.listed(registry.CLAIM)
    seen: set[tuple[str, str]] = set()
    for claim in held:
        for result in (
            (claim.get("status") or {}).get("allocation", {}).get("devices", {}).get("results", [])
        ):
            place = (result["pool"], result["device"])
            assert place not in seen, f"{place} is given twice"
            seen.add(place)
            if claim["metadata"]["namespace"] == live_cluster.WORK:
                assert nodes.pop(claim["metadata"]["name"]) == result["pool"], (
                    f"{claim['metadata']['name']} is apart"
                )
    assert len(seen) == cluster.held + count, (
        f"{len(seen)} devices are held, expected {cluster.held} + {count}"
    )
    assert not nodes, f"{len(nodes)} pods without a device"


async def stopped(process: subprocess.Popen[bytes]) -> None:
    """Ends the contender, in good order if it can."""
    process.terminate()
    try:
        await asyncio.to_thread(process.wait, STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        await asyncio.to_thread(process.wait)


def cpu_of(pids: dict[str, int]) -> Cpu:
    """User and system time of each process that is there, and of the whole machine."""
    fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
    idle, waiting = int(fields[3]), int(fields[4])
    found = {
        MACHINE: (sum(map(int, fields[:8])) - idle - waiting) / TICKS
    }  # what the host took away counts too
    for name, pid in pids.items():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
            fields = text[text.rindex(")") + 2 :].split()  # the name before may hold spaces
            found[name] = (int(fields[11]) + int(fields[12])) / TICKS
    return found


def memory_mib(pid: int) -> tuple[float, float]:
    """What a process has in memory now, and the most it had."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    found = dict(line.split(":", 1) for line in text.splitlines())
    return int(found["VmRSS"].split()[0]) / 1024, int(found["VmHWM"].split()[0]) / 1024

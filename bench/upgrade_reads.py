"""What `dovetail lifecycle` reads in one pass: `.venv/bin/python -m bench upgrade-reads [nodes] [pods per node]`.

A cluster in memory behind HTTPS, with an upgrade of which ten nodes drain. Compared are lists of everything, as every
pass once read, and watches with changes of fifty pods between two passes. Figures: requests, MiB and objects of a pass,
and its seconds by part; those of reading contain the server, which is the same process. Never asserts.
"""

from __future__ import annotations

import asyncio
import platform
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from dovetail.boot import clocks
from dovetail.kube import read_objects
from dovetail.kube.auth import client_config
from dovetail.kube.http import transport
from dovetail.kubetypes import object_set, registry
from dovetail.ports.api import Target
from dovetail.sim.fleet import device_publisher, fleet_spec, machines
from dovetail.sim.server.api_server import SimApi
from dovetail.upgrade import judging, read_facts, upgrade_loop, upgrade_watch
from dovetail.upgrade.machine import upgrade_machine
from dovetail.upgrade.validation import validation_checks
from tests.support import rest_place

RESULTS: Final = Path(__file__).resolve().parent / "results"
ROUNDS: Final = 5
CHANGES: Final = 50  # pods between two passes
DRAINING: Final = 10
Tree = dict[str, Any]
Read = Callable[[], Awaitable[upgrade_loop.Reading]]


class CountingTransport(transport.Transport):
    """Counts what is asked and how much is answered."""

    requests = 0
    received = 0

    async def request(self, *arguments: Any, **options: Any) -> transport.Answer:
        """One request."""
        answer = await super().request(*arguments, **options)
        self.requests += 1
        self.received += len(answer.body)
        return answer

    async def lines(self, *arguments: Any, **options: Any) -> AsyncGenerator[bytes, None]:
        """The events of a watch."""
        self.requests += 1
        async for line in super().lines(*arguments, **options):
            self.received += len(line)
            yield line


def main(arguments: list[str]) -> int:
    """Prints the table and writes bench/results/upgrade-reads.json."""
    nodes, pods = (int(word) for word in (*arguments, "500", "10")[:2])
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(measured(nodes, pods, Path(folder)))
    for label, row in rows.items():
        print(label)
        for name, value in row.items():
            print(f"    {name:32} {value}")
    tree = {
        "benchmark": "upgrade-reads",
        "nodes": nodes,
        "pods": nodes * pods,
        "python": platform.python_version(),
        "machine": "2 cores, shared",
        "rows": rows,
    }
    text = msgspec.json.format(msgspec.json.encode(tree), indent=2)
    (RESULTS / "upgrade-reads.json").write_bytes(text + b"\n")
    return 0


async def measured(nodes: int, pods: int, folder: Path) -> dict[str, Tree]:
    """Both ways of reading, one after the other."""
    api = SimApi(clocks.SystemClock())
    names = _fill(api, nodes, pods)
    async with rest_place.served(api, folder) as kubeconfig:
        connection = client_config.load(str(kubeconfig))
        async with CountingTransport(connection, concurrency=16) as over:

            async def lists() -> upgrade_loop.Reading:
                reads = [object_set.Read(kind, is_optional=True) for kind in upgrade_loop.KINDS]
                listed = await read_objects.read_over(over, reads, cluster="")
                return upgrade_loop.Reading(listed.objects, has_rules=True)

            by_lists = await _passes(api, over, lists, names)
            async with upgrade_watch.UpgradeWatch(over, clocks.SystemClock()) as cluster:
                by_watches = await _passes(api, over, cluster.read, names)
                reading = await cluster.read()
                before = over.requests, over.received
                began = time.perf_counter()
                await cluster.confirm(reading, names[:DRAINING])
                confirmed = {
                    "requests": over.requests - before[0],
                    "MiB": round((over.received - before[1]) / 2**20, 2),
                    "seconds": round(time.perf_counter() - began, 3),
                }
    return {
        "lists": by_lists,
        "watches": by_watches,
        f"{DRAINING} nodes that leave a phase, read again": confirmed,
    }


async def _passes(
    api: SimApi, over: CountingTransport, read: Read, names: list[str]
) -> dict[str, Any]:
    """The first pass, and the median of those after it."""
    began = time.perf_counter()
    reading = await read()
    first = time.perf_counter() - began
    requests, received = over.requests, over.received
    reads: list[float] = []
    decisions: list[float] = []
    for number in range(ROUNDS):
        _change(api, names, number)
        await asyncio.sleep(0.2)  # the events arrive
        began = time.perf_counter()
        reading = await read()
        reads.append(time.perf_counter() - began)
        began = time.perf_counter()
        _decide(reading)
        decisions.append(time.perf_counter() - began)
    return {
        "requests of a pass": (over.requests - requests) / ROUNDS,
        "MiB of a pass": round((over.received - received) / ROUNDS / 2**20, 2),
        "objects": sum(len(objects) for objects in reading.objects.by_kind.values()),
        "first read, seconds": round(first, 2),
        "read, seconds": round(statistics.median(reads), 3),
        "decision, seconds": round(statistics.median(decisions), 3),
    }


def _decide(reading: upgrade_loop.Reading) -> None:
    now = clocks.SystemClock().now()
    for upgrade in read_facts.upgrades_of(reading.objects):
        facts = read_facts.facts_of(reading.objects, upgrade, has_rules=True, now=now)
        judges = judging.judges_of(reading.objects, validation_checks.DEFAULTS)
        upgrade_machine.step(upgrade, facts, judges, upgrade_machine.Moment(now, now))


def _change(api: SimApi, names: list[str], number: int) -> None:
    for at in range(CHANGES):
        name = f"{names[at % len(names)]}-0"
        tree = api.tree(registry.POD, name, namespace="default")
        tree["metadata"].setdefault("annotations", {})["round"] = str(number)
        api.write(Target(registry.POD, "default", name), tree)


def _fill(api: SimApi, nodes: int, pods: int) -> list[str]:
    (pool,) = [pool for pool in fleet_spec.sample().pools if pool.name == "h100"]
    pools = (msgspec.structs.replace(pool, count=nodes),)
    fleet = msgspec.structs.replace(fleet_spec.sample(), name="big", pools=pools)
    names = []
    for machine in machines.machines_of(fleet):
        names.append(machine.name)
        api.put(_node(machine.name))
        for tree in device_publisher.slices_of(machine, fleet):
            api.put(tree)
        for number in range(pods):
            api.put(_pod(machine.name, number))
    draining = [
        {"name": name, "wave": 1, "phase": "Draining", "since": "2026-01-01T00:00:00Z"}
        for name in names[:DRAINING]
    ]
    api.put(
        {
            "apiVersion": registry.STACK_UPGRADE.api_version,
            "kind": registry.STACK_UPGRADE.name,
            "metadata": {"name": "roll", "finalizers": ["dovetail.dev/stack-upgrade"]},
            "spec": {"to": {"driver": "580.20"}},
            "status": {
                "phase": "Progressing",
                "nodes": draining + [{"name": name, "wave": 2} for name in names[DRAINING:]],
                "waves": [{"number": 1, "state": "Running"}, {"number": 2}],
            },
        }
    )
    return names


def _node(name: str) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"nvidia.com/cuda.driver-version.full": "570.10"}},
        "status": {
            "allocatable": {"nvidia.com/gpu": "8", "cpu": "64", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _pod(node: str, number: int) -> Tree:
    limits = {"nvidia.com/gpu": "1"} if number < 8 else {"cpu": "1"}
    labels = {"dovetail.dev/gang": node, "dovetail.dev/gang-min": "8"} if number < 8 else {}
    container = {"name": "main", "image": "registry/a:1", "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{node}-{number}", "namespace": "default", "labels": labels},
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": "Running"},
    }

"""A crowd of short pods through many nodes: all succeed, no device is ever held twice, memory stays bounded.

DOVETAIL_SCALE=full sends 20,000 pods through 2,000 nodes; the default is about a tenth of that.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e import many_pods
from tests.support import live
from tests.support.live import Live
from tests.support.waiting import until

pytestmark = pytest.mark.slow


class Size(NamedTuple):
    """How many there are."""

    nodes: int
    pods: int
    at_once: int  # pods that have not ended
    renew_seconds: int


SIZES = {"small": Size(200, 800, 400, 20), "full": Size(2_000, 20_000, 4_000, 30)}
SIZE = SIZES[os.environ.get("DOVETAIL_SCALE", "small")]
GROWTH = 1.5  # of the scheduler's memory between a quarter and the end, where a leak would at least double it
SLACK_KIB = 64 * 1024


@pytest.fixture(scope="module")
def cluster() -> Iterator[Live]:
    """So many hollow nodes of eight GPUs, and our scheduler."""
    with live.private() as lives:
        lives.play("--nodes", str(SIZE.nodes), "--renew-seconds", str(SIZE.renew_seconds))
        lives.schedule(
            configuration={"events": {"scheduled": False}}
        )  # a courtesy that costs a write per pod
        lives.wait_for("a leader", lives.leads)
        yield lives


def test_a_crowd_passes_and_nothing_is_given_twice(cluster: Live) -> None:
    memory: dict[int, int] = {}  # pods ended -> KiB
    began, before = time.monotonic(), _cpu_of(cluster)

    async def measure(seen: many_pods.Crowd) -> None:
        for ended in range(0, SIZE.pods, SIZE.pods // 20):
            await until(
                lambda ended=ended: seen.ended >= ended, f"the end of {ended} pods", at_most=3600
            )
            memory[seen.ended] = _memory_kib(cluster.pid())

    async def story() -> many_pods.Seen:
        return await many_pods.passed(
            cluster.plane.kubeconfig, count=SIZE.pods, at_once=SIZE.at_once, meanwhile=measure
        )

    seen = asyncio.run(story())
    seconds = time.monotonic() - began
    used = {name: round(after - before.get(name, 0), 1) for name, after in _cpu_of(cluster).items()}
    quarter = next(kib for ended, kib in sorted(memory.items()) if ended >= SIZE.pods // 4)
    last = _memory_kib(cluster.pid())
    print(
        json.dumps(
            {
                "seconds": round(seconds, 1),
                "cpuSeconds": used,
                "mostHeld": seen.most_held,
                "memoryKib": [quarter, last],
            }
        )
    )
    assert seen.failed == []
    assert seen.succeeded == SIZE.pods
    assert seen.doubles == []
    assert last <= GROWTH * quarter + SLACK_KIB
    cluster.wait_for(
        "no claim left", lambda: not cluster.rest.list("resourceclaims", many_pods.NAMESPACE)
    )
    assert cluster.consistent() == {"consistent": True, "differences": [], "tries": 1, "assumed": 0}
    assert "violation" not in cluster.log("player")


def _memory_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS:")))


def _cpu_of(cluster: Live) -> dict[str, float]:
    """Seconds of processor time of every part, to tell who is busy."""
    pids = {
        **cluster.plane.pids,
        "scheduler": cluster.pid(),
        "player": cluster.pid("player"),
        "test": os.getpid(),
    }
    return {name: _cpu_seconds(pid) for name, pid in pids.items()}


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

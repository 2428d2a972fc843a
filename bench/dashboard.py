"""What the dashboard costs: open event streams at rest and under change, and the time of a first and a later answer.

`python -m bench dashboard` starts an embedded cluster of its own with its dashboard beside it, opens streams from
another process's sockets, and reads the processor time of the dashboard's process from the kernel. `rest` leaves the
cluster alone; `change` labels a node twenty times a second, which every stream hears of at most four times a second.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from dovetail.boot import cluster_choice
from dovetail.files import state_directory
from dovetail.kube import object_requests
from dovetail.kube.http import transport
from dovetail.kubetypes import registry
from dovetail.ports import api
from dovetail.web.process import dashboard_process

RESULT: Final = Path(__file__).resolve().parent / "results" / "dashboard.json"
STREAMS: Final = 200
SECONDS: Final = 30.0
CHANGES_EACH_SECOND: Final = 20
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def main(arguments: list[str]) -> int:
    """Measures, prints and stores."""
    parser = argparse.ArgumentParser(prog="python -m bench dashboard", description=__doc__)
    parser.add_argument("--streams", type=int, default=STREAMS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="dovetail-bench-") as folder:
        state = Path(folder) / "state"
        program = [str(Path(sys.executable).parent / "dovetail")]
        subprocess.run([*program, "up", "--detach", "--state", str(state)], check=True)
        try:
            rows = asyncio.run(_measured(state, chosen.streams, chosen.seconds))
        finally:
            subprocess.run([*program, "down", "--purge", "--state", str(state)], check=True)
    for name, value in rows.items():
        print(f"{name:32} {value}")
    RESULT.write_bytes(msgspec.json.format(msgspec.json.encode(rows)) + b"\n")
    return 0


async def _measured(state: Path, streams: int, seconds: float) -> dict[str, Any]:
    announced = dashboard_process.announcement(state)
    pid = dashboard_process.running_pid(state)
    assert announced is not None
    assert pid is not None
    token = (state / state_directory.DASHBOARD_TOKEN).read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        announced.url, headers=headers, connector=connector, timeout=timeout
    ) as session:
        await _until_ready(session)
        alone = await _share_of_core(pid, seconds)
        async with _open_streams(session, streams) as heard:
            at_rest = await _share_of_core(pid, seconds)
            before = sum(heard)
            changing = asyncio.create_task(_change(state))
            began = time.monotonic()
            under_change = await _share_of_core(pid, seconds)
            events = (sum(heard) - before) / streams / (time.monotonic() - began)
            changing.cancel()
            await asyncio.gather(changing, return_exceptions=True)
        return {
            "streams": streams,
            "seconds": seconds,
            "core_percent_without_streams": round(100 * alone, 2),
            "core_percent_at_rest": round(100 * at_rest, 2),
            "core_percent_under_change": round(100 * under_change, 2),
            "changes_each_second": CHANGES_EACH_SECOND,
            "events_each_second_and_stream": round(events, 2),
            "resident_mib": round(_resident_bytes(pid) / 2**20, 1),
        }


async def _until_ready(session: aiohttp.ClientSession) -> None:
    while True:
        async with session.get("/readyz") as answer:
            if answer.status == 200:
                return
        await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def _open_streams(session: aiohttp.ClientSession, count: int) -> AsyncIterator[list[int]]:
    """So many open streams, and how many change events each has heard."""
    heard = [0] * count
    opened = [asyncio.Event() for _ in range(count)]

    async def listen(number: int) -> None:
        async with session.get("/api/v1/stream") as answer:
            assert answer.status == 200, await answer.text()
            async for line in answer.content:
                opened[number].set()
                heard[number] += line.startswith(b"event: change")

    tasks: list[asyncio.Task[None]] = []
    for number in range(count):
        tasks.append(asyncio.create_task(listen(number)))
        await asyncio.sleep(0.04)  # below the rate of one user
    try:
        await asyncio.gather(*(event.wait() for event in opened))
        yield heard
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _change(state: Path) -> None:
    choice = cluster_choice.embedded(state)
    async with transport.Transport(choice.connection) as over:
        nodes = await object_requests.listed(over, registry.NODE)
        target = api.Target(registry.NODE, name=nodes[0]["metadata"]["name"])
        number = 0
        while True:
            number += 1
            labels = {"metadata": {"labels": {"bench": str(number)}}}
            await object_requests.patch(over, target, labels)
            await asyncio.sleep(1 / CHANGES_EACH_SECOND)


async def _share_of_core(pid: int, seconds: float) -> float:
    before, began = _cpu_seconds(pid), time.monotonic()
    await asyncio.sleep(seconds)
    return (_cpu_seconds(pid) - before) / (time.monotonic() - began)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")

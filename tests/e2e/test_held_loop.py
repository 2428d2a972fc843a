"""The main loop is held, as by a long decision: lease and health do not suffer, and no memory is left behind.

The scheduler runs in this process, so that a test can hold its loop, end its tenures and look at what is still alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
import urllib.error
import urllib.request
import weakref
from collections.abc import AsyncIterator, Callable
from concurrent import futures

import pytest

from dovetail.boot import ports, scheduler
from dovetail.kube import config
from dovetail.model import configuration
from dovetail.world.world import World
from tests.support import cluster

pytestmark = pytest.mark.slow

ELECTION = {"lease_duration_seconds": 3, "renew_deadline_seconds": 2.0, "retry_period_seconds": 0.5}
HELD_SECONDS = 5.0  # longer than the lease


@contextlib.asynccontextmanager
async def running(namespace: str, kubeconfig: str, port: int) -> AsyncIterator[scheduler.Process]:
    elected = configuration.LeaderElection(namespace=namespace, name="held", **ELECTION)  # type: ignore[arg-type]
    given = configuration.SchedulerConfiguration(leader_election=elected, serving=configuration.Serving(port=port))
    process = scheduler.Process(config.load(kubeconfig), given)
    task = asyncio.create_task(process.run())
    try:
        yield process
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.05)


def answer(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()


def test_a_held_loop_costs_neither_the_lease_nor_health_and_is_reported() -> None:
    plane = cluster.control_plane()
    namespace, port = cluster.fresh_namespace(plane), ports.reserve()

    def asked_later() -> list[tuple[int, str]]:
        time.sleep(HELD_SECONDS * 0.8)  # while the loop is held
        return [answer(port, path) for path in ("/healthz", "/readyz", "/metrics")]

    async def story() -> None:
        async with running(namespace, str(plane.kubeconfig), port) as process:
            await until(lambda: process.scheduler is not None)
            assert process.election is not None
            before, led = process.election.standing, process.scheduler
            with futures.ThreadPoolExecutor(1) as pool:
                asking = pool.submit(asked_later)
                time.sleep(HELD_SECONDS)  # holds the main loop
                healthy, ready, metrics = asking.result()
            assert healthy == (200, "ok\n")
            assert ready[0] == 503
            assert "[-]loop failed" in ready[1]
            held = next(line for line in metrics[1].splitlines() if line.startswith("dovetail_loop_held_seconds"))
            assert float(held.split()[1]) > 1.0
            assert process.election.standing == before
            assert process.scheduler is led
            await until(lambda: process._ready()["loop"])

    asyncio.run(story())


def test_no_picture_outlives_its_tenure() -> None:
    plane = cluster.control_plane()
    namespace, port = cluster.fresh_namespace(plane), ports.reserve()
    worlds: list[weakref.ref[World]] = []

    async def story() -> None:
        async with running(namespace, str(plane.kubeconfig), port) as process:
            for tenure in range(4):
                await until(lambda: process.scheduler is not None)
                assert process.scheduler is not None
                worlds.append(weakref.ref(process.scheduler.world))
                assert sum(world() is not None for world in worlds) == 1, f"in tenure {tenure}"
                assert process.election is not None
                assert process.election._fence is not None
                process.election._fence.shut()  # as if another replica had the lease
                await until(lambda: process.scheduler is None)

    asyncio.run(story())
    gc.collect()
    assert not any(world() is not None for world in worlds)

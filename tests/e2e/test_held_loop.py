"""The main loop is held, as by a long decision: lease and health do not suffer, and no memory is left behind.

The scheduler runs in this process, so that a test can hold its loop, end its tenures and look at what is still alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import gc
import urllib.error
import urllib.request
import weakref
from collections.abc import AsyncIterator
from concurrent import futures
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from dovetail.boot import scheduler
from dovetail.devcluster import free_ports
from dovetail.kube.auth import client_config
from dovetail.model import configuration
from dovetail.world.world import World
from tests.support import cluster
from tests.support.waiting import until, wait_until

pytestmark = pytest.mark.slow

LEASE: Final = "held"
# For a lease that the process gives up itself, so that another tenure begins soon after.
SHORT: Final = configuration.LeaderElection(
    name=LEASE, lease_duration_seconds=3, renew_deadline_seconds=2.0, retry_period_seconds=0.5
)


@contextlib.asynccontextmanager
async def running(
    kubeconfig: Path, election: configuration.LeaderElection, port: int
) -> AsyncIterator[scheduler.Process]:
    settings = configuration.SchedulerConfiguration(
        leader_election=election, serving=configuration.Serving(port=port)
    )
    process = scheduler.Process(client_config.load(str(kubeconfig)), settings)
    task = asyncio.create_task(process.run())
    try:
        yield process
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def answer(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()


def test_a_held_loop_costs_neither_the_lease_nor_health_and_is_reported() -> None:
    plane = cluster.control_plane()
    namespace, port = cluster.fresh_namespace(plane), free_ports.reserve()

    def lease() -> dict[str, Any]:
        return dict(cluster.api(plane).read("leases", LEASE, namespace)["spec"])

    def renewed_at() -> datetime.datetime:
        return datetime.datetime.fromisoformat(lease()["renewTime"])

    def asked_while_held() -> list[tuple[int, str]]:
        """What is answered once the loop is known to be held and the lease was renewed for longer than it lasts."""
        seconds = 1 + lease()["leaseDurationSeconds"]
        past_the_lease = renewed_at() + datetime.timedelta(seconds=seconds)
        wait_until(lambda: answer(port, "/readyz")[0] == 503, "a scheduler that is not ready")
        wait_until(lambda: renewed_at() > past_the_lease, "renewals past the first lease")
        return [answer(port, path) for path in ("/healthz", "/readyz", "/metrics")]

    async def story() -> None:
        # The default times: a busy machine renews within ten seconds, though not always within two.
        election = configuration.LeaderElection(namespace=namespace, name=LEASE)
        async with running(plane.kubeconfig, election, port) as process:
            await until(lambda: process.scheduler is not None, "a tenure")
            assert process.election is not None
            before, led = process.election.status, process.scheduler
            with futures.ThreadPoolExecutor(1) as pool:
                asking = pool.submit(asked_while_held)
                healthy, ready, metrics = asking.result()  # holds the main loop meanwhile
            assert healthy == (200, "ok\n")
            assert ready[0] == 503
            assert "[-]loop failed" in ready[1]
            held = next(
                line
                for line in metrics[1].splitlines()
                if line.startswith("dovetail_loop_held_seconds")
            )
            assert float(held.split()[1]) > 1.0
            assert process.election.status == before
            assert process.scheduler is led
            await until(lambda: process._ready()["loop"], "a loop that is not held")

    asyncio.run(story())


def test_no_picture_outlives_its_tenure() -> None:
    plane = cluster.control_plane()
    namespace, port = cluster.fresh_namespace(plane), free_ports.reserve()
    worlds: list[weakref.ref[World]] = []

    async def story() -> None:
        election = msgspec.structs.replace(SHORT, namespace=namespace)
        async with running(plane.kubeconfig, election, port) as process:
            for tenure in range(4):
                await until(lambda: process.scheduler is not None, "a tenure")
                assert process.scheduler is not None
                worlds.append(weakref.ref(process.scheduler.world))
                assert sum(world() is not None for world in worlds) == 1, f"in tenure {tenure}"
                assert process.election is not None
                assert process.election._fence is not None
                process.election._fence.shut()  # as if another replica had the lease
                await until(lambda: process.scheduler is None, "the end of the tenure")

    asyncio.run(story())
    gc.collect()
    assert not any(world() is not None for world in worlds)

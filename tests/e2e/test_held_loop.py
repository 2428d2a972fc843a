"""The main loop is held, as by a long decision: lease and health do not suffer, and no memory is left behind.

The scheduler runs in this process, so that a test can hold its loop, end its tenures and look at what is still alive.
"""

from __future__ import annotations

import asyncio
import datetime
import gc
import urllib.error
import urllib.request
import weakref
from concurrent import futures
from typing import Any

import msgspec
import pytest

from dovetail.devcluster import free_ports
from dovetail.model import configuration
from dovetail.world.world import World
from tests.e2e import scheduler_in_process
from tests.support import cluster
from tests.support.waiting import until, wait_until

pytestmark = pytest.mark.slow


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
        return dict(
            cluster.api(plane).read("leases", scheduler_in_process.LEASE, namespace)["spec"]
        )

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
        election = configuration.LeaderElection(
            namespace=namespace, name=scheduler_in_process.LEASE
        )
        async with scheduler_in_process.running(plane.kubeconfig, election, port) as process:
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
        election = msgspec.structs.replace(scheduler_in_process.SHORT, namespace=namespace)
        async with scheduler_in_process.running(plane.kubeconfig, election, port) as process:
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

"""What a process keeps in memory after many tenures: `python -m bench tenures [--tenures 50] [--nodes 32]`.

A scheduler in this process leads on a real API server with hollow nodes; its fence is shut again and again, as if
another replica had taken the lease. Prints the resident memory in every tenth tenure, once its picture is complete.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
from pathlib import Path

from dovetail.boot import scheduler
from dovetail.devcluster import free_ports
from dovetail.kube.auth import client_config
from dovetail.model import configuration
from tests.support import live

ELECTION = configuration.LeaderElection(
    name="bench", lease_duration_seconds=3, renew_deadline_seconds=2.0, retry_period_seconds=0.5
)


def main(arguments: list[str]) -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m bench tenures", description=__doc__)
    parser.add_argument("--tenures", type=int, default=50)
    parser.add_argument("--nodes", type=int, default=32)
    given = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    with live.private() as cluster:
        cluster.play("--nodes", str(given.nodes))
        sizes = asyncio.run(_measured(str(cluster.plane.kubeconfig), given.tenures))
    for tenure, size in sizes.items():
        print(f"tenure {tenure:3d}: {size:7.1f} MiB, {size / sizes[1]:.3f} of the first")
    return 0


async def _measured(kubeconfig: str, tenures: int) -> dict[int, float]:
    serving = configuration.Serving(port=free_ports.reserve())
    chosen = configuration.SchedulerConfiguration(leader_election=ELECTION, serving=serving)
    process = scheduler.Process(client_config.load(kubeconfig), chosen)
    task = asyncio.create_task(process.run())
    sizes: dict[int, float] = {}
    try:
        for tenure in range(1, tenures + 1):
            while process.scheduler is None or not process.scheduler.is_idle:
                await asyncio.sleep(0.05)
            if tenure == 1 or tenure % 10 == 0:
                sizes[tenure] = _resident_mib()
            assert process.election is not None
            assert process.election._fence is not None
            process.election._fence.shut()
            while process.scheduler is not None:
                await asyncio.sleep(0.05)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    return sizes


def _resident_mib() -> float:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    line = next(line for line in lines if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024

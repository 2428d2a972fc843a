"""A scheduler in the process of the tests: they can hold its loop, end its tenures and look at what is still alive."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from dovetail.boot import scheduler
from dovetail.kube.auth import client_config
from dovetail.model import configuration

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

"""The recorder of history as a process with the clock of a file: `python -m tests.e2e.cost_week.week_recorder`.

Given a kubeconfig, a store, the address of a Prometheus and the file of the clock. What `dovetail history record` runs,
but for the clock.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from dovetail.boot import logs
from dovetail.boot.observing import history_process, prometheus_usage
from dovetail.kube.auth import client_config
from dovetail.telemetry import prometheus_api
from tests.e2e.cost_week import week_clock


async def record(kubeconfig: str, store: str, url: str, clock: Path) -> None:
    """Until it is killed."""
    connection = client_config.load(kubeconfig)
    async with prometheus_usage.connected(prometheus_api.Endpoint(url=url)) as source:
        settings = history_process.Settings(store, usage=source)
        process = history_process.HistoryProcess(
            connection, settings, clock=week_clock.FileClock(clock)
        )
        await process.run()


if __name__ == "__main__":
    logs.set_up("text", "info")
    asyncio.run(record(*sys.argv[1:4], Path(sys.argv[4])))

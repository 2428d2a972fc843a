"""The process of the dashboard beside an embedded cluster: listens at once, then loads the rest, then follows.

Given the state directory. Waits for the cluster as long as it starts, and ends some time after it has gone. Never
listens beyond loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from dovetail import errors
from dovetail.files import private_files, state_directory
from dovetail.web.process import dashboard_process, serving
from dovetail.web.security import link_tokens

if TYPE_CHECKING:
    import socket

ADDRESS: Final = "127.0.0.1"
GONE_SECONDS: Final = 30.0  # without the cluster, until the dashboard ends, too
LOOK_SECONDS: Final = 1.0
NICENESS: Final = 5  # the cluster starts first


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 after a signal or the end of the cluster, 1 when something failed."""
    parser = argparse.ArgumentParser(prog="dovetail.web.process.embedded_dashboard")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--prices", help="a price file; without, the examples")
    given = parser.parse_args(arguments)
    directory: Path = given.directory
    os.nice(NICENESS)
    try:
        lock = _locked(directory)
        if lock is None:
            return 0  # another one was first
        listener = serving.listening(ADDRESS, 0)
        boot = os.urandom(4).hex()
        access_token = link_tokens.kept_in(directory / state_directory.DASHBOARD_TOKEN)
        announced = dashboard_process.Announcement(
            url=serving.url_of(ADDRESS, serving.port_of(listener)), boot=boot
        )
        private_files.replace(directory / state_directory.DASHBOARD, msgspec.json.encode(announced))
        _serve(directory, listener, boot=boot, access_token=access_token, prices=given.prices)
    except errors.DovetailError as error:
        print(f"dovetail dashboard: {error}", file=sys.stderr)
        return 1
    return 0


def _locked(directory: Path) -> int | None:
    """A lock that ends with the process, on a file that names it; None if another process holds it."""
    descriptor = private_files.open_lock(directory / state_directory.DASHBOARD_LOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def _serve(
    directory: Path,
    listener: socket.socket,
    *,
    boot: str,
    access_token: str,
    prices: str | None,
) -> None:
    """Imports what takes long, and serves."""
    from dovetail.ask import cost_asked, cost_source
    from dovetail.boot import cluster_choice, logs
    from dovetail.web import api_endpoints, application
    from dovetail.web import dashboard_settings as settings_
    from dovetail.web.source import live_source, watched_kinds

    logs.set_up("text", "info")
    source = live_source.LiveSource(
        lambda: cluster_choice.embedded(directory),
        watched_kinds.READS,
        name=f"embedded {state_directory.cluster_name(directory)}".strip(),
        kind="embedded",
        boot=boot,
    )
    settings = settings_.Settings(
        address=ADDRESS,
        port=serving.port_of(listener),
        access_token=access_token,
        session_secret=access_token,
        link_user=link_tokens.owner_name(),
        allow_writes=False,
    )
    # The cluster records beside itself. Its GPUs cost nothing: example prices, marked as such in every answer, unless
    # the user has others.
    accounting = cost_source.CostSource(
        str(directory / state_directory.HISTORY), prices or cost_asked.EXAMPLES
    )
    dashboard = application.Dashboard(
        source, api_endpoints.all_endpoints(), settings, accounting=accounting
    )

    async def run() -> None:
        ending = asyncio.Event()
        looking = asyncio.create_task(_end_with_cluster(directory, ending))
        try:
            await serving.serve(dashboard.application, listener, ending=ending)
        finally:
            looking.cancel()

    asyncio.run(run())


async def _end_with_cluster(directory: Path, ending: asyncio.Event) -> None:
    """Sets the event once the cluster has been gone for a while. While it starts it is not there yet."""
    gone_seconds = 0.0
    while gone_seconds < GONE_SECONDS:
        await asyncio.sleep(LOOK_SECONDS)
        is_there = state_directory.running_pid(directory) is not None
        gone_seconds = 0.0 if is_there else gone_seconds + LOOK_SECONDS
    ending.set()


if __name__ == "__main__":
    sys.exit(main())

"""Starts and ends an embedded cluster together with the dashboard beside it.

The dashboard is started first, so that it loads while the cluster does, and never waited for: a cluster without one
works as well. Given a state directory. Never talks to the API server.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from dovetail.cli import output
from dovetail.files import state_directory

if TYPE_CHECKING:
    from dovetail.boot import embedded_process, embedded_setup

RESTART_SECONDS: Final = 15.0
LINK_SECONDS: Final = 2.0  # for a dashboard that was just started to say where it listens


def start(
    directory: Path,
    setup: embedded_setup.Setup,
    *,
    is_fresh: bool,
    names_fleet: bool,
    is_tethered: bool,
    has_dashboard: bool = True,
    prices: str | None = None,
) -> embedded_process.Started:
    """The running cluster of the directory. A dashboard is started with a cluster that is, or again for prices."""
    from dovetail.boot import embedded_process
    from dovetail.web.process import dashboard_process

    if is_fresh:
        purge(directory)
    is_running = state_directory.running_pid(directory) is not None
    starts_dashboard = has_dashboard and not is_running
    if starts_dashboard or prices is not None:
        # Beside a cluster that runs already it stays when this command ends.
        dashboard_process.start(
            directory, is_tethered=is_tethered and not is_running, prices=prices
        )
    if is_running and prices is not None:
        # No start of a cluster gives it time to load, and its new link is to be printed.
        dashboard_process.wait_until_announced(directory, seconds=RESTART_SECONDS)
    try:
        return embedded_process.start(
            directory,
            setup,
            is_fresh=False,
            names_fleet=names_fleet,
            is_tethered=is_tethered,
            say=output.progress,
        )
    except BaseException:  # also Ctrl-C: without its cluster the dashboard has nothing to show
        if starts_dashboard:
            dashboard_process.stop(directory)
        raise


def link(directory: Path) -> str:
    """A link to the dashboard of the directory that signs in once; empty if none runs."""
    from dovetail.web.process import dashboard_process

    return dashboard_process.link(directory, seconds=LINK_SECONDS)


def stop(directory: Path) -> bool:
    """Ends both; the cluster's state is kept. False if no cluster ran."""
    from dovetail.boot import embedded_process
    from dovetail.web.process import dashboard_process

    dashboard_process.stop(directory)
    return embedded_process.stop(directory)


def purge(directory: Path) -> bool:
    """Ends both and removes their files. False if there were none."""
    from dovetail.boot import embedded_process
    from dovetail.web.process import dashboard_process

    dashboard_process.stop(directory)
    return embedded_process.purge(directory)

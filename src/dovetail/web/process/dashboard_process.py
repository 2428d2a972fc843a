"""Starts, finds and ends the dashboard that `dovetail up` runs beside the embedded cluster of a state directory.

Given the directory. The process announces its address before it imports anything slow; links are made here, from the
access token in the directory, so that every command of the same user can print one that works. Never waits for the
cluster, never talks to it.
"""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from dovetail.devcluster import processes
from dovetail.files import private_files, small_files, state_directory
from dovetail.web.security import link_tokens

MODULE: Final = "dovetail.web.process.embedded_dashboard"
NAME: Final = "dashboard"
GRACE_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.02
LARGEST_LOG_BYTES: Final = 8 << 20  # a longer one starts over


class Announcement(msgspec.Struct, frozen=True):
    """What the process says about itself once it listens."""

    url: str
    boot: str


def start(directory: Path, *, is_tethered: bool, prices: str | None = None) -> None:
    """Starts the process and returns at once. Ends an older one first: its cluster has ended, or prices are others.

    `prices` is the absolute path of a price file.
    """
    stop(directory)
    private_files.make_directory(directory)
    (directory / state_directory.DASHBOARD).unlink(missing_ok=True)
    log = directory / state_directory.DASHBOARD_LOG
    if log.exists() and log.stat().st_size > LARGEST_LOG_BYTES:
        log.unlink()
    if not log.exists():
        private_files.replace(log, b"")
    command = [sys.executable, "-m", MODULE, str(directory)]
    if prices is not None:
        command += ["--prices", prices]
    processes.start(command, log=log, is_tethered=is_tethered)


def link(directory: Path, *, seconds: float = 0.0) -> str:
    """A link that signs in once; empty if no dashboard runs, or it did not announce itself in time."""
    until = time.monotonic() + seconds
    while (announced := announcement(directory)) is None:
        if running_pid(directory) is None or time.monotonic() >= until:
            return ""
        time.sleep(POLL_SECONDS)
    access_token = link_tokens.kept_in(directory / state_directory.DASHBOARD_TOKEN)
    token = link_tokens.link_token(access_token, announced.boot, time.time())
    return f"{announced.url}#token={token}"


def wait_until_announced(directory: Path, *, seconds: float) -> None:
    """Returns once the dashboard that was started says where it listens, or when the time is over."""
    until = time.monotonic() + seconds
    while announcement(directory) is None and time.monotonic() < until:
        time.sleep(POLL_SECONDS)


def announcement(directory: Path) -> Announcement | None:
    """Where the running dashboard of the directory is; None if none runs."""
    if running_pid(directory) is None:
        return None
    try:
        content = small_files.content(directory / state_directory.DASHBOARD)
        return msgspec.json.decode(content, type=Announcement)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def running_pid(directory: Path) -> int | None:
    """The process id of the dashboard of the directory; None if none runs."""
    return state_directory.running_pid(directory, lock=state_directory.DASHBOARD_LOCK)


def stop(directory: Path) -> bool:
    """Ends the process and waits for it. False if none ran."""
    pid = running_pid(directory)
    if pid is None:
        return False
    record = processes.recorded(NAME, pid, log=directory / state_directory.DASHBOARD_LOG)
    processes.end(record, grace_seconds=GRACE_SECONDS)
    with contextlib.suppress(OSError):  # a stale record names no running process: harmless
        (directory / state_directory.DASHBOARD).unlink(missing_ok=True)
    return True

"""Starts, finds and ends the process of the embedded cluster in a state directory.

Given a directory and what a new cluster is to begin with. A running cluster is left alone; one that was ended or has
crashed goes on from its journal. Never talks to the API server.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from dovetail import errors
from dovetail.boot import cluster_choice, embedded_setup
from dovetail.devcluster import processes
from dovetail.files import private_files, state_directory

MODULE: Final = "dovetail.boot.embedded_cluster"
NAME: Final = "embedded cluster"
START_SECONDS: Final = 120.0  # a large fleet has to be written first
SAY_SECONDS: Final = 1.0
POLL_SECONDS: Final = 0.02
GRACE_SECONDS: Final = 10.0
LARGEST_LOG_BYTES: Final = 8 << 20  # a longer one starts over

Say = Callable[[str], None]


class Started(NamedTuple):
    """The cluster, and how it came about."""

    choice: cluster_choice.Choice
    is_new: bool  # it began with its setup just now
    was_running: bool


def start(
    directory: Path,
    setup: embedded_setup.Setup,
    *,
    is_fresh: bool,
    names_fleet: bool,
    is_tethered: bool,
    say: Say,
) -> Started:
    """The running cluster of the directory, started if needed. `is_fresh` starts over.

    A tethered process ends with this one, whatever happens to it.
    """
    if is_fresh:
        purge(directory)
    is_new = not state_directory.has_state(directory)
    if not is_new and names_fleet:
        _refuse_other_fleet(directory, setup)
    if state_directory.running_pid(directory) is not None:
        _wait_until_ready(directory, None, say)
        return Started(cluster_choice.embedded(directory), is_new=False, was_running=True)

    private_files.make_directory(directory)
    if is_new:
        embedded_setup.write(directory, setup)
    (directory / state_directory.KUBECONFIG).unlink(missing_ok=True)
    log = directory / state_directory.LOG
    _prepare_log(log)
    command = [sys.executable, "-m", MODULE, str(directory)]
    process = processes.start(command, log=log, is_tethered=is_tethered)
    try:
        _wait_until_ready(directory, process.poll, say)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        raise
    return Started(cluster_choice.embedded(directory), is_new=is_new, was_running=False)


def stop(directory: Path) -> bool:
    """Ends the process and waits for it; its state is kept. False if none ran."""
    pid = state_directory.running_pid(directory)
    if pid is None:
        return False
    record = processes.recorded(NAME, pid, log=directory / state_directory.LOG)
    processes.end(record, grace_seconds=GRACE_SECONDS)
    return True


def purge(directory: Path) -> bool:
    """Ends the process and removes its files, and the directory if nothing else is in it. False if there were none."""
    was_running = stop(directory)
    files = [directory / name for name in state_directory.FILES]
    present = [file for file in files if file.exists()]
    for file in present:
        file.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        directory.rmdir()
    return was_running or bool(present)


def _refuse_other_fleet(directory: Path, setup: embedded_setup.Setup) -> None:
    present = embedded_setup.read(directory)
    if present.name != setup.name:
        raise errors.InputError(
            f'a cluster of fleet "{present.name}" is already up in {directory}; '
            f'add --fresh to replace it by "{setup.name}"'
        )


def _prepare_log(log: Path) -> None:
    """A log that only its owner reads, started over when it is long."""
    is_long = log.exists() and log.stat().st_size > LARGEST_LOG_BYTES
    if is_long:
        log.unlink()
    if not log.exists():
        private_files.replace(log, b"")


def _wait_until_ready(directory: Path, ended: Callable[[], int | None] | None, say: Say) -> None:
    """Returns when requests are answered. Raises StateError with the end of the log if that fails."""
    began = time.monotonic()
    announced = ""
    while not (directory / state_directory.KUBECONFIG).exists():
        waited = time.monotonic() - began
        has_ended = ended is not None and ended() is not None
        if has_ended and state_directory.running_pid(directory) is None:
            tail = processes.tail_of(directory / state_directory.LOG)
            raise errors.StateError(
                f"the embedded cluster in {directory} ended while starting; its log says:\n{tail}\n"
                "next: dovetail up --fresh"
            )
        if waited > START_SECONDS:
            raise errors.StateError(
                f"the embedded cluster in {directory} is not ready after {START_SECONDS:g} s; "
                f"its log is {directory / state_directory.LOG}"
            )
        text = f"starting the embedded cluster in {directory}{_progress(directory)}"
        if waited > SAY_SECONDS and text != announced:
            announced = text
            say(text)
        time.sleep(POLL_SECONDS)


def _progress(directory: Path) -> str:
    """How far the process is, as it says itself; nothing while it does not."""
    try:
        return ": " + (directory / state_directory.PROGRESS).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""

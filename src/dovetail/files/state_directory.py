"""The state directory of the embedded cluster: where it is, which files it holds, and whether its process runs.

Given an option and the environment. The process holds a lock on a file with its id for as long as it lives, so that a
file left behind by a crash, or a number that another process got since, never counts as running. Never writes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

STATE_VARIABLE: Final = "DOVETAIL_STATE"

LOCK: Final = "lock"  # held by the process; names it
KUBECONFIG: Final = "kubeconfig"  # there while requests are answered
LOG: Final = "log"
PROGRESS: Final = "progress"  # how far a new cluster is, while it begins
SETUP: Final = "setup.json"  # what the cluster began with
JOURNAL: Final = "objects.sqlite"
HISTORY: Final = "history.sqlite"  # what happened to its GPUs
CERTIFICATE: Final = ("server.crt", "server.key")
DASHBOARD: Final = "dashboard.json"  # where it listens, while it runs
DASHBOARD_LOCK: Final = "dashboard.lock"  # held by its process; names it
DASHBOARD_LOG: Final = "dashboard.log"
DASHBOARD_TOKEN: Final = "dashboard.token"  # noqa: S105 - the name of a file
# In the order of removal: whenever that is cut short, what is left is no cluster, or one that can begin again.
FILES: Final = (
    DASHBOARD,
    DASHBOARD_LOG,
    DASHBOARD_TOKEN,
    DASHBOARD_LOCK,
    KUBECONFIG,
    LOG,
    PROGRESS,
    f"{JOURNAL}-wal",
    f"{JOURNAL}-shm",
    JOURNAL,
    f"{HISTORY}-wal",
    f"{HISTORY}-shm",
    HISTORY,
    *CERTIFICATE,
    SETUP,
    LOCK,
)


class _Setup(msgspec.Struct):
    name: str = ""


def state_directory(given: str | None, environ: Mapping[str, str] = os.environ) -> Path:
    """Where the cluster is kept: what was given, else $DOVETAIL_STATE, else the user's state directory."""
    if chosen := given or environ.get(STATE_VARIABLE):
        return Path(chosen).expanduser()
    home = environ.get("XDG_STATE_HOME")
    if home and Path(home).is_absolute():  # the XDG rules say to ignore relative ones
        return Path(home) / "dovetail"
    return Path("~/.local/state/dovetail").expanduser()


def has_state(directory: Path) -> bool:
    """Whether an embedded cluster was started in the directory, running or not."""
    return (directory / SETUP).is_file()


def cluster_name(directory: Path) -> str:
    """The name of the cluster in the directory; empty if it cannot be read."""
    try:
        return msgspec.json.decode((directory / SETUP).read_bytes(), type=_Setup).name
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return ""


def running_pid(directory: Path, *, lock: str = LOCK) -> int | None:
    """The process id of the cluster that runs in the directory, or the holder of another lock; None if none does."""
    try:
        descriptor = os.open(directory / lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not _is_locked(descriptor):
            return None
        text = os.read(descriptor, 32).decode(errors="replace").strip()
    finally:
        os.close(descriptor)
    return int(text) if text.isascii() and text.isdecimal() else None


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False

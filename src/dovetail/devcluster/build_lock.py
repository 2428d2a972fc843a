"""Decides which of several processes builds a set of programs: the one that holds a file lock.

Given the lock's path and what is built, says for whom it waits, at once and then every few seconds. The kernel releases
the lock of a process that dies. Never breaks a lock. Needs nothing but the standard library.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

REPEAT_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.1

Say = Callable[[str], None]


@contextmanager
def held(
    lock: Path, *, title: str, say: Say, repeat_seconds: float = REPEAT_SECONDS
) -> Iterator[None]:
    """Holds the lock. While another builder has it, waits and says so."""
    # Opened without truncation: the file holds the id of the builder we may have to wait for.
    with lock.open("a+", encoding="ascii") as handle:
        if not _is_acquired(handle):
            _wait(handle, lock=lock, title=title, say=say, repeat_seconds=repeat_seconds)
        handle.truncate(0)
        handle.write(f"{os.getpid()}\n")
        handle.flush()
        yield


def duration_text(seconds: float) -> str:
    """A duration for people: 45s, 6m10s."""
    minutes, seconds_left = divmod(round(seconds), 60)
    return f"{minutes}m{seconds_left:02d}s" if minutes else f"{seconds_left}s"


def _wait(handle: TextIO, *, lock: Path, title: str, say: Say, repeat_seconds: float) -> None:
    """Waits for the lock. The first message comes at once, the next ones with the time waited."""
    announcement = f"{_holder(lock)} is building {title} already; waiting for it …"
    say(announcement)
    began = said_at = time.monotonic()
    while not _is_acquired(handle):
        now = time.monotonic()
        if now - said_at >= repeat_seconds:
            said_at = now
            say(f"{announcement} {duration_text(now - began)}")
        time.sleep(min(POLL_SECONDS, repeat_seconds))


def _is_acquired(handle: TextIO) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(lock: Path) -> str:
    """The process that holds the lock, as far as it has written its id."""
    process_id = lock.read_text(encoding="ascii", errors="replace").strip()
    return f"process {process_id}" if process_id.isdigit() else "another process"

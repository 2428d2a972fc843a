"""Writes small files so that a crash, a full disk or a power cut leaves the old content or the new, never a mixture.

Given a path and bytes. The bytes go to a new file in the same folder, are synced, then renamed over the old name, and
the folder is synced. Raises OSError; the caller says what it means. Never leaves its temporary file behind, except when
the process is killed: `remove_leftovers` cleans up after that.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

_TEMPORARY: Final = ".dovetail-new"
_PROBE_BYTES: Final = 16384  # more than a claim's file has


def replace(path: Path, content: bytes, *, mode: int) -> None:
    """Writes the file atomically. Callers must not overlap on one path."""
    temporary = path.with_name(f".{path.name}{_TEMPORARY}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        remove(temporary)  # left by a killed writer
        with os.fdopen(os.open(temporary, flags, mode), "wb") as file:
            os.fchmod(file.fileno(), mode)  # whatever the umask is: the runtime must read it
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            remove(temporary)
        # People know the file by its own name, not by that of the temporary one.
        raise OSError(error.errno, error.strerror, str(path)) from None


def rehearse(folder: Path) -> None:
    """Writes, syncs and removes a small file. Raises OSError where `replace` would fail in this folder."""
    probe = folder / f".rehearsal{_TEMPORARY}"  # by another process at the same time, too
    try:
        with probe.open("wb") as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)


def remove(path: Path) -> None:
    """Deletes the file for good; nothing happens if there is none."""
    if not os.path.lexists(path):
        return  # a read-only file system refuses to remove even what is not there
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def remove_leftovers(folder: Path, prefix: str) -> None:
    """Deletes the temporary files of killed writers whose names begin with the prefix."""
    for leftover in folder.glob(f".{prefix}*{_TEMPORARY}"):
        leftover.unlink(missing_ok=True)

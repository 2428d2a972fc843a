"""Directories and files that are the user's own: state, certificates, kubeconfigs.

A directory is created for its owner only. An existing one is used only if it is ours and other users may not write to
it: they could place a link or another file where we are about to write. Read access of others is accepted, since every
file in it is readable by its owner only. Writing follows no link: the content goes into a new file in the directory,
which is then renamed. Never repairs a directory it refuses: its permissions may be intended.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from dovetail import errors

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
_NEW: Final = ".new"


def make_directory(directory: Path, *, option: str = "--state") -> None:
    """Creates or checks a directory that only we may write to. Raises StateError with the next step if others may."""
    try:
        missing = [place for place in (directory, *directory.parents) if not place.exists()]
        for place in reversed(missing):  # `parents=True` would make those above with any mode
            place.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        status = directory.stat()
    except OSError as error:
        raise errors.StateError(f"{directory}: cannot be used: {error.strerror or error}") from None
    except ValueError as error:  # a name with a NUL in it
        raise errors.StateError(f"{directory}: cannot be used: {error}") from None
    if not stat.S_ISDIR(status.st_mode):
        raise errors.StateError(f"{directory}: cannot be used: Not a directory")
    if status.st_uid != os.geteuid():
        raise errors.StateError(
            f"{directory}: belongs to another user (uid {status.st_uid}); name a directory of your own with {option}"
        )
    if status.st_mode & _WRITABLE_BY_OTHERS:
        raise errors.StateError(
            f"{directory}: others may write to it (mode {stat.S_IMODE(status.st_mode):04o}); "
            f"run chmod go-w on it, or name another directory with {option}"
        )


def replace(path: Path, content: bytes, *, is_synced: bool = False) -> None:
    """Writes a file atomically, readable by its owner only. Callers must not overlap. Raises OSError."""
    temporary = path.with_name(path.name + _NEW)
    temporary.unlink(missing_ok=True)  # left by a killed writer, or a link of another user
    try:
        with os.fdopen(create(temporary), "wb") as file:
            file.write(content)
            file.flush()
            if is_synced:
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def create(path: Path) -> int:
    """A new file, open for writing. Raises FileExistsError if the name is taken, also by a link."""
    return os.open(
        path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE
    )


def open_lock(path: Path) -> int:
    """A file to lock, created if needed. Raises OSError for a link."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)

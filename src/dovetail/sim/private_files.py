"""Directories and files that are the user's own: state, certificates, kubeconfigs.

A directory is made for its owner alone. One that is there already is used only if it is ours and others may not write
to it: whoever may, could put a link or another file where we are about to write. One that others may only read is
good enough, since every file in it is readable by its owner alone. Writing follows no link: the content goes into a
new file beside, which then takes the name. Never repairs what it refuses: the directory may be somebody's on purpose.
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
    """The directory, there and ours alone to write to. Raises StateError where it is not, and says what to do."""
    try:
        missing = [place for place in (directory, *directory.parents) if not place.exists()]
        for place in reversed(missing):  # `parents=True` would make those above with any mode
            place.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        found = directory.stat()
    except OSError as error:
        raise errors.StateError(f"{directory}: cannot be used: {error.strerror or error}") from None
    except ValueError as error:  # a name with a NUL in it
        raise errors.StateError(f"{directory}: cannot be used: {error}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise errors.StateError(f"{directory}: cannot be used: Not a directory")
    if found.st_uid != os.geteuid():
        raise errors.StateError(
            f"{directory}: belongs to another user (uid {found.st_uid}); name a directory of your own with {option}"
        )
    if found.st_mode & _WRITABLE_BY_OTHERS:
        raise errors.StateError(
            f"{directory}: others may write to it (mode {stat.S_IMODE(found.st_mode):04o}); "
            f"run chmod go-w on it, or name another directory with {option}"
        )


def replace(path: Path, content: bytes, *, is_synced: bool = False) -> None:
    """Writes a file whole or not at all, readable by its owner alone. Callers take turns. Raises OSError."""
    beside = path.with_name(path.name + _NEW)
    beside.unlink(missing_ok=True)  # what a writer left that was killed, or a link somebody laid
    try:
        with os.fdopen(create(beside), "wb") as file:
            file.write(content)
            file.flush()
            if is_synced:
                os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def create(path: Path) -> int:
    """A new file, open for writing. Raises FileExistsError where anything has the name, a link included."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)


def open_lock(path: Path) -> int:
    """A file to lock, made if need be. Raises OSError for a link."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)

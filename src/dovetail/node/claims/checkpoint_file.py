"""checkpoint.json on the disk: read, changed and written as one step, by this process or another instance of it.

Given the plugin folder and the node's boot id. A change is read-modify-write under a file lock, so that two instances
of the agent (a rolling update) never lose each other's claims. A file that cannot be trusted raises StateError, which
names the file and the way out; it is never overwritten. Never decides what to record.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from dovetail import errors
from dovetail.files import private_files, small_files
from dovetail.node.cdi import durable_files
from dovetail.node.claims import checkpoint

NAME: Final = "checkpoint.json"
_MODE: Final = 0o600
_LOCK_NAME: Final = "checkpoint.lock"
_SET_ASIDE: Final = "checkpoint.json.unreadable"


class CheckpointFile:
    """The file of one node. Methods block for the time of a write to the disk."""

    def __init__(self, folder: Path, boot_id: str) -> None:
        self.path = folder / NAME
        self.boot_id = boot_id
        self._lock_path = folder / _LOCK_NAME

    def read(self) -> checkpoint.Checkpoint:
        """The checkpoint now; an empty one of this boot if there is no file. Raises StateError."""
        try:
            text = small_files.content(self.path)
        except FileNotFoundError:
            return checkpoint.Checkpoint(boot_id=self.boot_id)
        except OSError as error:
            raise errors.StateError(f"{self.path}: cannot be read: {error.strerror}") from None
        try:
            return checkpoint.decode(text)
        except errors.StateError as error:
            raise errors.StateError(f"{self.path}: {error}. {_WAY_OUT}") from None

    def change(
        self, changed: Callable[[checkpoint.Checkpoint], checkpoint.Checkpoint]
    ) -> checkpoint.Checkpoint:
        """Records a change and returns the new content. Raises StateError; then nothing was recorded."""
        try:
            with self._locked():
                before = self.read()
                after = changed(before)
                if after != before or not self.path.exists():
                    durable_files.replace(self.path, checkpoint.encode(after), mode=_MODE)
                return after
        except OSError as error:
            raise errors.StateError(
                f"{self.path}: cannot be written: {error.strerror}; nothing was changed. "
                "Free space on its disk or make its folder writable"
            ) from None

    def rehearse_write(self) -> None:
        """Raises OSError if no change could be recorded."""
        durable_files.rehearse(self.path.parent)

    def set_aside(self) -> Path:
        """Renames a file that cannot be trusted, for people to look at, so that a new one can begin."""
        target = self.path.with_name(_SET_ASIDE)
        os.replace(self.path, target)
        durable_files.sync_folder(self.path.parent)
        return target

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        lock = private_files.open_lock(self._lock_path)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


_WAY_OUT: Final = (
    "No claim is prepared meanwhile, since its GPUs may be in use. Drain the node: the agent undoes the claims that "
    "end, sets the file aside when none is left and goes on; restarting the node has the same effect"
)


def boot_id_of(path: Path) -> str:
    """The id of this boot of the node. Raises StateError."""
    try:
        text = small_files.content(path).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise errors.StateError(
            f"{path}: the boot id of the node cannot be read: {error}"
        ) from None
    if not text:
        raise errors.StateError(f"{path}: is empty; the boot id of the node was expected")
    return text

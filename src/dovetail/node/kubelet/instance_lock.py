"""Lets one instance of the agent at a time work on claims: two run side by side during a rolling update.

Given a file in the driver's directory. The calls of one process share the lock, those of another wait. The system
frees it when a process ends, however it ends. Never orders the calls inside a process.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from dovetail import errors

WAIT_SECONDS: Final = 30.0  # the kubelet gives a call 45 seconds
PAUSE_SECONDS: Final = 0.05
FILE_MODE: Final = 0o600


class LockBusy(errors.DovetailError):
    """Another instance kept the lock for too long: repeat later."""


class InstanceLock:
    """A lock between processes, counted inside this one."""

    def __init__(self, path: Path, *, wait_seconds: float = WAIT_SECONDS) -> None:
        self._path = path
        self._wait_seconds = wait_seconds
        self._holders = 0
        self._file: int | None = None
        self._acquiring = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Holds the lock meanwhile. Raises LockBusy if it does not become free in time."""
        async with self._acquiring:
            if self._file is None:
                self._file = await self._acquired()
            self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            if self._holders == 0 and self._file is not None:
                os.close(self._file)  # frees the lock
                self._file = None

    async def _acquired(self) -> int:
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            async with asyncio.timeout(self._wait_seconds):
                while not _try_lock(file):
                    await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError:
            os.close(file)
            raise LockBusy(
                f"another instance of the agent has worked on claims for {self._wait_seconds:g} s"
            ) from None
        except BaseException:
            os.close(file)
            raise
        return file


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

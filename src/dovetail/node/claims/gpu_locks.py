"""One lock per GPU, so that claims on different GPUs are prepared side by side.

Given minor numbers, holds their locks in this process and against another instance of the agent on the node, always in
the same order. A lock that another instance does not give up in time raises StateError: the kubelet tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Final

from dovetail import errors
from dovetail.files import private_files

_PATIENCE_SECONDS: Final = 20.0  # the kubelet gives a request 45 seconds
_POLL_SECONDS: Final = 0.05


class GpuLocks:
    """The locks of one node's GPUs. `patience` is how long another instance may keep one."""

    def __init__(self, folder: Path, *, patience: float = _PATIENCE_SECONDS) -> None:
        self._folder = folder
        self._patience = patience
        self._locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    @contextlib.asynccontextmanager
    async def held(self, minors: Iterable[int]) -> AsyncIterator[None]:
        """Holds the locks of these GPUs."""
        async with contextlib.AsyncExitStack() as stack:
            for minor in sorted(
                set(minors)
            ):  # one order for all, so that no two wait for each other
                await stack.enter_async_context(self._locks[minor])
                await stack.enter_async_context(self._file_lock(minor))
            yield

    @contextlib.asynccontextmanager
    async def _file_lock(self, minor: int) -> AsyncIterator[None]:
        path = self._folder / f"gpu-{minor}.lock"
        try:
            lock = private_files.open_lock(path)
        except OSError as error:
            raise errors.StateError(f"{path}: cannot be opened: {error.strerror}") from None
        try:
            clock = asyncio.get_running_loop().time
            deadline = clock() + self._patience
            while not _is_taken(lock):
                if clock() > deadline:
                    raise errors.StateError(
                        f"gpu-{minor}: another instance of the agent has been working on it for "
                        f"{self._patience:.0f} seconds"
                    )
                await asyncio.sleep(_POLL_SECONDS)
            yield
        finally:
            os.close(lock)


def _is_taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

"""Serves gRPC on a Unix socket that appears at its path only when it is ready, and disappears first when it ends.

Given handlers and a path. The socket is bound under a hidden name, which the kubelet ignores, and renamed: a client
never meets one that does not listen yet, and what a dead instance left is replaced. Never removes a socket of another
instance that still listens.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import grpc

from dovetail import errors

DIRECTORY_MODE: Final = 0o750  # as the kubelet makes its own
SOCKET_MODE: Final = 0o600
PROBE_SECONDS: Final = 1.0
MAX_CALLS: Final = 256  # at once; the kubelet makes one per pod that starts or ends
MAX_REQUEST_BYTES: Final = 4 << 20  # the default of gRPC


class UnixServer:
    """One gRPC server on one path. `start` once, then `withdraw` and `stop`, in this order."""

    def __init__(self, path: Path, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        self.path = path
        self._server = grpc.aio.server(
            handlers=handlers,
            maximum_concurrent_rpcs=MAX_CALLS,
            options=[("grpc.max_receive_message_length", MAX_REQUEST_BYTES)],
        )
        self._inode: int | None = None

    async def start(self) -> None:
        """Listens. InputError if another process listens there or the directory cannot be used."""
        try:
            self.path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            if is_listening(self.path):
                raise errors.InputError(
                    f"{self.path}: another process serves here; end it first, or give each instance its own "
                    "pod uid (POD_UID)"
                )
            await self._listen()
        except OSError as error:
            raise errors.InputError(
                f"{self.path}: cannot serve here: {error.strerror or error}"
            ) from error

    async def _listen(self) -> None:
        # Shorter than any name of ours, so it fits where that fits.
        hidden = self.path.with_name(f".{secrets.token_hex(3)}")
        try:
            self._server.add_insecure_port(f"unix:{hidden}")
        except RuntimeError as error:  # gRPC has no other
            raise OSError(str(error)) from error
        try:
            await self._server.start()
            hidden.chmod(SOCKET_MODE)
            self._inode = hidden.stat().st_ino
            hidden.rename(self.path)
        except BaseException:
            hidden.unlink(missing_ok=True)
            await self._server.stop(None)
            raise

    def withdraw(self) -> None:
        """Removes the socket's name, so that no new client comes. Connections stay."""
        with contextlib.suppress(FileNotFoundError):
            if self.is_in_place():
                self.path.unlink()

    def is_in_place(self) -> bool:
        """Whether the path still leads here: other processes can remove or replace it."""
        try:
            return self.path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    async def stop(self, *, grace_seconds: float) -> None:
        """Refuses new calls, lets those in flight finish for so long, then cancels them."""
        self.withdraw()
        await self._server.stop(grace_seconds)


def is_listening(path: Path) -> bool:
    """Whether a process accepts connections on this socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_SECONDS)
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except TimeoutError:  # alive, but its queue of connections is full
            return True
        except OSError as error:
            raise errors.InputError(f"{path}: {os.strerror(error.errno or 0)}") from error
    return True


def remove_dead_sockets(paths: Iterable[Path]) -> list[Path]:
    """Removes what dead instances left, because the kubelet tries such sockets again and again. Returns them."""
    removed: list[Path] = []
    for path in paths:
        if path.is_socket() and not is_listening(path):
            path.unlink(missing_ok=True)
            removed.append(path)
    return removed

"""Who we are to the API server: what a kubeconfig says, and the headers and certificate it means right now.

Given a description; `Source` answers the identity to use, reads files again when they change, and runs the credential
plugin when what it issued has ended or was refused. Never shows a secret in its text form.
"""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from dovetail.kube import exec_plugin, small_files
from dovetail.ports import failures

REREAD_SECONDS: Final = 60.0  # as client-go: a rotated token file is noticed within a minute at the latest

Header = tuple[str, str]


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """As configured. A certificate or token given inline beats a file, except that a token file beats a token."""

    token: str = ""
    token_file: str = ""
    username: str = ""
    password: str = ""
    certificate: bytes = b""
    key: bytes = b""
    certificate_file: str = ""
    key_file: str = ""
    plugin: exec_plugin.Plugin | None = None
    impersonation: tuple[Header, ...] = ()

    def __repr__(self) -> str:
        given = [name for name in self.__struct_fields__ if getattr(self, name)]
        return f"Credentials({', '.join(given) or 'anonymous'})"


class Identity(msgspec.Struct, frozen=True):
    """What goes with a request now: headers, and a client certificate with its key as PEM or nothing."""

    headers: tuple[Header, ...] = ()
    certificate: bytes = b""
    key: bytes = b""

    def __repr__(self) -> str:
        return f"Identity({[name for name, _ in self.headers]}, certificate={bool(self.certificate)})"


Issue = Callable[[exec_plugin.Plugin], Awaitable[exec_plugin.Issued]]


class Source:
    """The identity as time goes on. One per transport; `close` ends a plugin that still runs."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        issue: Issue = exec_plugin.issue,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._credentials = credentials
        self._issue = issue
        self._now = now
        self._files = {
            path: _File(path, monotonic)
            for path in (credentials.token_file, credentials.certificate_file, credentials.key_file)
            if path
        }
        self._issued: exec_plugin.Issued | None = None
        self._running: asyncio.Task[None] | None = None
        self._identity: Identity | None = None

    async def current(self) -> Identity:
        """The identity to use now. Raises Unauthorised where none can be had."""
        if self._plugin_is_needed() and (self._issued is None or self._has_expired(self._issued)):
            await self._run_plugin()
        changed = [file for file in self._files.values() if file.has_changed()]
        if changed or self._identity is None:
            self._identity = self._composed()
        return self._identity

    async def renew(self, refused: Identity) -> Identity:
        """The identity after the server refused one. The same again (equal) where nothing newer can be had."""
        current = await self.current()
        if current is not refused:
            return current  # somebody renewed meanwhile
        if self._plugin_is_needed():
            await self._run_plugin()
        for file in self._files.values():
            file.read()
        self._identity = self._composed()
        return self._identity

    async def close(self) -> None:
        """Ends a plugin that still runs."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])

    def _plugin_is_needed(self) -> bool:
        return self._credentials.plugin is not None and not (self._credentials.token or self._credentials.token_file)

    def _has_expired(self, issued: exec_plugin.Issued) -> bool:
        return issued.expires is not None and self._now() >= issued.expires

    async def _run_plugin(self) -> None:
        # All requests wait for one run, and a request that gives up does not end it: a plugin slower than a
        # request's timeout would otherwise never get to issue anything.
        if self._running is None:
            self._running = asyncio.create_task(self._run_plugin_once())
            self._running.add_done_callback(_noticed)
        await asyncio.shield(self._running)

    async def _run_plugin_once(self) -> None:
        assert self._credentials.plugin is not None
        try:
            self._issued = await self._issue(self._credentials.plugin)
            self._identity = None
        finally:
            self._running = None

    def _composed(self) -> Identity:
        given = self._credentials
        issued = self._issued or exec_plugin.Issued()
        token = given.token or issued.token
        if given.token_file:
            token = self._text(given.token_file).decode(errors="replace").strip() or token
            if not token:
                raise failures.Unauthorised(f"{given.token_file}: holds no token")
        headers = [*given.impersonation]
        if token:
            headers.append(("Authorization", f"Bearer {_for_a_header(token)}"))
        elif given.username or given.password:
            pair = base64.b64encode(f"{given.username}:{given.password}".encode()).decode()
            headers.append(("Authorization", f"Basic {pair}"))
        certificate = given.certificate or self._text(given.certificate_file) or issued.certificate
        key = given.key or self._text(given.key_file) or issued.key
        return Identity(tuple(headers), certificate, key)

    def _text(self, path: str) -> bytes:
        return self._files[path].content if path else b""


def _for_a_header(token: str) -> str:
    if not (token.isascii() and token.isprintable()):
        raise failures.Unauthorised("the bearer token holds characters no header can carry; is it really a token?")
    return token


def _noticed(task: asyncio.Task[None]) -> None:
    """Takes note of a failure nobody waits for any more; those who wait get it too."""
    if not task.cancelled():
        task.exception()


class _File:
    """A small local file and its content as last read. Reading it does not wait for anything but the disk."""

    def __init__(self, path: str, monotonic: Callable[[], float]) -> None:
        self._path = path
        self._monotonic = monotonic
        self._stamp: tuple[int, int, int] | None = None
        self._read_at = float("-inf")
        self.content = b""

    def has_changed(self) -> bool:
        """Reads again where the file looks different or a minute passed; whether the content is another."""
        try:
            status = os.stat(self._path)
        except OSError as error:
            return self._unreadable(error)
        stamp = (status.st_mtime_ns, status.st_ino, status.st_size)
        if stamp == self._stamp and self._monotonic() - self._read_at < REREAD_SECONDS:
            return False
        self._stamp = stamp
        return self.read()

    def read(self) -> bool:
        """Reads in any case; whether the content is another."""
        before = self.content
        try:
            self.content = small_files.content(self._path)
        except OSError as error:
            return self._unreadable(error)
        self._read_at = self._monotonic()
        return self.content != before

    def _unreadable(self, error: OSError) -> bool:
        # What was read before may still be accepted; a rotation can leave a gap of a moment.
        if not self.content:
            raise failures.Unauthorised(f"{self._path}: cannot be read: {error.strerror or error}") from None
        return False

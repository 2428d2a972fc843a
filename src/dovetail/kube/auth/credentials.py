"""Our identity at the API server: credentials as configured, and the headers and certificate to send now.

Given credentials; `Source` returns the identity to use, reads files again when they change, and runs the credential
plugin when its credentials have expired or were refused. Never shows a secret in its text form.
"""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from dovetail.files import small_files
from dovetail.kube.auth import exec_plugin
from dovetail.ports import failures

REREAD_SECONDS: Final = (
    60.0  # as client-go: a rotated token file is noticed within a minute at the latest
)

Header = tuple[str, str]


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """Credentials as configured. Inline data takes precedence over a file, except that a token file beats a token."""

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
        fields = [name for name in self.__struct_fields__ if getattr(self, name)]
        return f"Credentials({', '.join(fields) or 'anonymous'})"


class Identity(msgspec.Struct, frozen=True):
    """The headers of a request, and a client certificate with its key as PEM, or empty."""

    headers: tuple[Header, ...] = ()
    certificate: bytes = b""
    key: bytes = b""

    def __repr__(self) -> str:
        return (
            f"Identity({[name for name, _ in self.headers]}, certificate={bool(self.certificate)})"
        )


Issue = Callable[[exec_plugin.Plugin], Awaitable[exec_plugin.Issued]]


class Source:
    """The current identity, renewed as needed. One per transport; `close` ends a plugin that still runs."""

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
        """The identity to use now. Raises Unauthorised if there is none."""
        if self._plugin_is_needed() and self._has_expired(self._issued):
            await self._run_plugin()

        # Every file is checked, also after one has changed: `has_changed` reads the new content.
        changes = [file.has_changed() for file in self._files.values()]
        if self._identity is None or any(changes):
            self._identity = self._composed()
        return self._identity

    async def renew(self, refused: Identity) -> Identity:
        """The identity after the server refused one; an equal one if there is nothing newer."""
        current = await self.current()
        if current is not refused:
            return current  # another request renewed it meanwhile
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
        if self._credentials.token or self._credentials.token_file:
            return False
        return self._credentials.plugin is not None

    def _has_expired(self, issued: exec_plugin.Issued | None) -> bool:
        if issued is None:
            return True
        return issued.expires is not None and self._now() >= issued.expires

    async def _run_plugin(self) -> None:
        # All requests wait for one run, and a request that gives up does not end it: a plugin slower than a
        # request's timeout would otherwise never get to issue anything.
        if self._running is None:
            self._running = asyncio.create_task(self._run_plugin_once())
            self._running.add_done_callback(_retrieve_exception)
        await asyncio.shield(self._running)

    async def _run_plugin_once(self) -> None:
        assert self._credentials.plugin is not None
        try:
            self._issued = await self._issue(self._credentials.plugin)
            self._identity = None
        finally:
            self._running = None

    def _composed(self) -> Identity:
        configured = self._credentials
        issued = self._issued or exec_plugin.Issued()
        headers = [*configured.impersonation]
        if authorization := self._authorization(self._token(issued)):
            headers.append(("Authorization", authorization))

        certificate = configured.certificate or self._text(configured.certificate_file)
        key = configured.key or self._text(configured.key_file)
        return Identity(tuple(headers), certificate or issued.certificate, key or issued.key)

    def _token(self, issued: exec_plugin.Issued) -> str:
        token = self._credentials.token or issued.token
        file = self._credentials.token_file
        if not file:
            return token
        token = self._text(file).decode(errors="replace").strip() or token
        if not token:
            raise failures.Unauthorised(f"{file}: holds no token")
        return token

    def _authorization(self, token: str) -> str:
        if token:
            return f"Bearer {_for_a_header(token)}"
        username, password = self._credentials.username, self._credentials.password
        if not username and not password:
            return ""
        pair = base64.b64encode(f"{username}:{password}".encode())
        return f"Basic {pair.decode()}"

    def _text(self, path: str) -> bytes:
        return self._files[path].content if path else b""


def _for_a_header(token: str) -> str:
    if not (token.isascii() and token.isprintable()):
        raise failures.Unauthorised(
            "the bearer token holds characters that no header can carry; is it really a token?"
        )
    return token


def _retrieve_exception(task: asyncio.Task[None]) -> None:
    """Keeps asyncio from logging a failure that no request waits for any more."""
    if not task.cancelled():
        task.exception()


class _File:
    """A small local file and its content as last read. Reads are synchronous: the files are local and small."""

    def __init__(self, path: str, monotonic: Callable[[], float]) -> None:
        self._path = path
        self._monotonic = monotonic
        self._stamp: tuple[int, int, int] | None = None
        self._read_at = float("-inf")
        self.content = b""

    def has_changed(self) -> bool:
        """Reads the file again if its metadata changed or a minute has passed; whether the content changed."""
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
        """Reads the file again; whether the content changed."""
        before = self.content
        try:
            self.content = small_files.content(self._path)
        except OSError as error:
            return self._unreadable(error)
        self._read_at = self._monotonic()
        return self.content != before

    def _unreadable(self, error: OSError) -> bool:
        # The old content may still be accepted: the file can be missing briefly while it is rotated.
        if not self.content:
            raise failures.Unauthorised(
                f"{self._path}: cannot be read: {error.strerror or error}"
            ) from None
        return False

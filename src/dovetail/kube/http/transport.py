"""Sends requests to one API server over HTTP/1.1: bounded in number, with deadlines, with the current identity.

Given a connection; returns every response, whatever its status. Timeouts and broken connections are
`failures.Unavailable`. A refused identity is renewed once. Never follows redirects, uses proxies, keeps cookies or
shows a secret. A request with a body is sent at most once per call, unless the server refused it with 401. A brief
transport, of a process that lives a second, reads by `brief_session` and does the rest by `pooled_session`, which is
imported when it is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import types
import urllib.parse
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Final, Self

import dovetail
from dovetail import errors
from dovetail.kube.auth import client_config, credentials
from dovetail.kube.http import brief_session, status_errors, tls, wire_request
from dovetail.kube.http.wire_request import Answer, Guard
from dovetail.kube.watching import decode
from dovetail.ports import failures

if TYPE_CHECKING:
    from dovetail.kube.http import pooled_session

__all__ = ["Answer", "Guard", "Transport", "split_lines"]

REQUEST_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 150.0  # bookmarks come about once a minute
MAX_LINE_BYTES: Final = 64 << 20  # ours; an object is at most a few MiB


class Transport:
    """A pool of connections to one server. `async with` opens and closes it; not for use across event loops."""

    def __init__(
        self,
        connection: client_config.Connection,
        *,
        concurrency: int = 64,
        user_agent: str = f"dovetail/{dovetail.__version__}",
        source: credentials.Source | None = None,
        is_brief: bool = False,
    ) -> None:
        self.connection = connection
        self._slots = asyncio.Semaphore(concurrency)
        self._user_agent = user_agent
        self._source = source or credentials.Source(connection.credentials)
        self._is_secure = connection.server.startswith("https://")
        self._is_brief = is_brief
        self._is_open = False
        self._brief: brief_session.BriefSession | None = None
        self._pooled: pooled_session.PooledSession | None = None
        self._context: tuple[credentials.Identity, ssl.SSLContext] | None = None

    def __repr__(self) -> str:
        return f"Transport({self.connection.server!r})"

    async def __aenter__(self) -> Self:
        decode.read_all_depths()
        if self._is_secure:  # report an unusable authority now, not with every request
            anonymous = credentials.Identity()
            self._context = (anonymous, tls.context(self.connection, anonymous))
        self._is_open = True
        if self._is_brief:
            self._brief = brief_session.BriefSession(
                self._user_agent, server_name=self.connection.server_name
            )
        else:
            self._session()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        try:
            await self._source.close()
        finally:
            if self._brief is not None:
                await self._brief.close()
            if self._pooled is not None:
                await self._pooled.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = wire_request.JSON,
        accept: str = wire_request.JSON,
        timeout: float = REQUEST_SECONDS,
        guard: Guard | None = None,
    ) -> Answer:
        """Sends a request and waits for the whole response; `timeout` includes waiting for a free slot.

        `guard` is called right before the bytes are sent, and stops them by raising.
        """
        ask = wire_request.WireRequest(
            method,
            self._url(path, params),
            body,
            content_type=content_type,
            accept=accept,
            guard=guard,
        )
        try:
            async with asyncio.timeout(timeout), self._slots:
                return await self._answered(ask)
        except TimeoutError:
            late = failures.Unavailable(f"{method} {path}: no answer within {timeout:.3g} s")
            raise ask.stopped or late from None
        except (wire_request.Broken, OSError) as error:
            raise ask.stopped or _unavailable(method, path, error) from None
        finally:
            ask.abandon()

    async def lines(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        accept: str = wire_request.JSON,
        idle_timeout: float = IDLE_SECONDS,
        opened: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[bytes, None]:
        """The lines of a streamed response. Ends when the server ends it; an incomplete line is left out.

        Watches do not count against the limit of concurrent requests. `opened` is called once the server has accepted.
        Raises the failure of the response, or Unavailable if the connection breaks or stays silent.
        """
        from dovetail.kube.http import pooled_session

        ask = wire_request.WireRequest("GET", self._url(path, params), None, accept=accept)
        try:
            async with self._streamed(ask, idle_timeout) as stream:
                if stream.status != 200:
                    body = await stream.whole()
                    raise status_errors.failure_of(
                        stream.status, body, headers=stream.headers, doing=f"watch {path}"
                    )
                opened()
                async with contextlib.aclosing(stream.pieces()) as pieces:
                    async for line in split_lines(pieces):
                        yield line
        except pooled_session.Silent:
            raise failures.Unavailable(f"watch {path}: silent for {idle_timeout:.3g} s") from None
        except (wire_request.Broken, OSError) as error:
            raise _unavailable("watch", path, error) from None

    async def _answered(self, ask: wire_request.WireRequest) -> Answer:
        identity = await self._source.current()
        answer = await self._asked(ask, identity)
        if answer.status != 401:
            return answer
        renewed = await self._source.renew(identity)
        return answer if renewed == identity else await self._asked(ask, renewed)

    async def _asked(self, ask: wire_request.WireRequest, identity: credentials.Identity) -> Answer:
        if self._brief is not None and ask.is_plain_get:
            return await self._brief.asked(ask, identity.headers, self._tls(identity))
        return await self._session().asked(ask, identity.headers, self._tls(identity))

    @contextlib.asynccontextmanager
    async def _streamed(
        self, ask: wire_request.WireRequest, idle_timeout: float
    ) -> AsyncIterator[pooled_session.Stream]:
        identity = await self._source.current()
        first = self._session().streamed(
            ask, identity.headers, self._tls(identity), idle_timeout=idle_timeout
        )
        async with first as stream:
            renewed = identity
            if stream.status == 401:
                renewed = await self._source.renew(identity)
            if renewed == identity:
                yield stream  # where it is refused, the caller reads the error
                return
        again = self._session().streamed(
            ask, renewed.headers, self._tls(renewed), idle_timeout=idle_timeout
        )
        async with again as stream:
            yield stream

    def _session(self) -> pooled_session.PooledSession:
        from dovetail.kube.http import pooled_session

        if not self._is_open:
            raise RuntimeError("the transport is not open; use `async with`")
        if self._pooled is None:
            self._pooled = pooled_session.PooledSession(
                self._user_agent, server_name=self.connection.server_name
            )
        return self._pooled

    def _tls(self, identity: credentials.Identity) -> ssl.SSLContext | bool:
        """A context per certificate, so that connections made with another one are not reused."""
        if not self._is_secure:
            return True
        cached_context = self._context
        if cached_context is None or (cached_context[0].certificate, cached_context[0].key) != (
            identity.certificate,
            identity.key,
        ):
            try:
                cached_context = self._context = (identity, tls.context(self.connection, identity))
            except errors.InputError as error:
                raise failures.Unauthorised(str(error)) from None
        return cached_context[1]

    def _url(self, path: str, params: Mapping[str, str] | None) -> str:
        query = f"?{urllib.parse.urlencode(params)}" if params else ""
        return f"{self.connection.server}{path}{query}"


async def split_lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The complete lines of a stream, without line ends. Linear, however the chunks are cut."""
    partial_line: list[bytes] = []
    begun_bytes = 0
    async for piece in pieces:
        first, *following = piece.split(b"\n")
        partial_line.append(first)
        begun_bytes += len(first)
        if following:
            yield b"".join(partial_line)
            for line in following[:-1]:
                yield line
            partial_line = [following[-1]]
            begun_bytes = len(following[-1])
        if begun_bytes > MAX_LINE_BYTES:
            raise wire_request.Broken(f"a line is longer than {MAX_LINE_BYTES} bytes")


def _unavailable(method: str, path: str, error: Exception) -> failures.Unavailable:
    return failures.Unavailable(f"{method} {path}: {str(error) or type(error).__name__}")

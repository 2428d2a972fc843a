"""Sends the requests of a long-lived process by aiohttp: a pool of connections, bodies that a guard can stop, streams.

Given requests, an identity's headers and a TLS context. Whatever breaks is `wire_request.Broken`. Never follows
redirects, uses proxies or keeps cookies. Importing it takes longer than most commands need to read a cluster:
`brief_session` serves those.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Final

import aiohttp
import yarl
from aiohttp import abc, payload

from dovetail.kube.http import open_sockets, wire_request

KEEPALIVE_SECONDS: Final = (
    60.0  # kube-apiserver closes idle connections after 90 s; we must be first
)
_READ_BYTES: Final = 1 << 18

Headers = Sequence[tuple[str, str]]


class Silent(TimeoutError):
    """A stream on which nothing came for too long."""


class Stream:
    """A response whose body comes in pieces."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status: int = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response

    async def whole(self) -> bytes:
        """The rest of the body."""
        with _broken():
            return await self._response.read()

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes. Ends the connection without the TLS shutdown, which would wait for the server."""
        try:
            with _broken():
                async for piece in self._response.content.iter_any():
                    yield piece
        finally:
            connection = self._response.connection
            if connection is not None and connection.transport is not None:
                connection.transport.abort()


class PooledSession:
    """Connections to one server, kept for later requests."""

    def __init__(self, user_agent: str, *, server_name: str = "") -> None:
        self._server_name = server_name or None
        self._sockets = open_sockets.OpenSockets()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,
                keepalive_timeout=KEEPALIVE_SECONDS,
                socket_factory=self._sockets.create,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            read_bufsize=_READ_BYTES,
            trust_env=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=wire_request.CONNECT_SECONDS),
            headers={"User-Agent": user_agent, "Accept-Encoding": "identity"},
            skip_auto_headers=("Content-Type",),
        )

    async def close(self) -> None:
        """Ends all connections, also those of cancelled requests."""
        await self._session.close()
        await self._sockets.end_all()

    async def asked(
        self, ask: wire_request.WireRequest, headers: Headers, tls: ssl.SSLContext | bool
    ) -> wire_request.Answer:
        """The whole response."""
        with _broken():
            async with await self._sent(ask, headers, tls) as response:
                _refuse_encoding(response)
                answer = wire_request.Answer(
                    response.status, response.headers, await response.read()
                )
            ask.written_to = None  # answered: the connection may be used again
            return answer

    @contextlib.asynccontextmanager
    async def streamed(
        self,
        ask: wire_request.WireRequest,
        headers: Headers,
        tls: ssl.SSLContext | bool,
        *,
        idle_timeout: float,
    ) -> AsyncIterator[Stream]:
        """A response that is read as it comes, and given up with the block."""
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=wire_request.CONNECT_SECONDS, sock_read=idle_timeout
        )
        with _broken():
            response = await self._sent(ask, headers, tls, timeout=timeout)
        async with response:
            with _broken():
                _refuse_encoding(response)
            yield Stream(response)

    async def _sent(
        self,
        ask: wire_request.WireRequest,
        headers: Headers,
        tls: ssl.SSLContext | bool,
        *,
        timeout: aiohttp.ClientTimeout | None = None,
    ) -> aiohttp.ClientResponse:
        if ask.guard is not None:
            ask.guard()
        return await self._session.request(
            ask.method,
            yarl.URL(ask.url, encoded=True),
            data=_payload(ask),
            headers=[*headers, *ask.headers],
            allow_redirects=False,
            ssl=tls,
            server_hostname=self._server_name,
            timeout=timeout or self._session.timeout,
        )


def _payload(ask: wire_request.WireRequest) -> payload.Payload | None:
    """A body that calls the guard as it is sent. A guarded request without a body gets an empty one."""
    if ask.body is None and ask.guard is None:
        return None
    return _Body(ask.body or b"", ask.last_word)


class _Body(payload.Payload):
    """A body that calls the guard right before it is written. aiohttp sends the headers together with it.

    This is the latest point that aiohttp offers: nothing of a request is on the wire before its body is requested, and
    there is no await between the guard and the write.
    """

    def __init__(self, data: bytes, last_word: Callable[[asyncio.Transport | None], None]) -> None:
        super().__init__(data)
        self._data = data
        self._size = len(data)
        self._last_word = last_word
        self._autoclose = True

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._data.decode(encoding, errors)

    async def write(self, writer: abc.AbstractStreamWriter) -> None:
        await self.write_with_length(writer, None)

    async def write_with_length(
        self, writer: abc.AbstractStreamWriter, content_length: int | None
    ) -> None:
        self._last_word(getattr(writer, "transport", None))
        self._consumed = True  # aiohttp must not repeat it by itself on a fresh connection
        await writer.write(self._data)


@contextlib.contextmanager
def _broken() -> Iterator[None]:
    """Names what broke in one way, whatever aiohttp calls it."""
    try:
        yield
    except aiohttp.SocketTimeoutError:
        raise Silent from None
    except TimeoutError:  # of connecting
        raise
    except (aiohttp.ClientError, OSError) as error:
        raise wire_request.Broken(_reason(error)) from None


def _refuse_encoding(response: aiohttp.ClientResponse) -> None:
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        response.close()
        raise aiohttp.ClientPayloadError(
            f"the response is encoded as {encoding}, which was not requested"
        )


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"the server at {error.host}:{error.port} is not trusted: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        reason = error.os_error.strerror or error.os_error
        return f"cannot connect to {error.host}:{error.port}: {reason}"
    return str(error) or type(error).__name__

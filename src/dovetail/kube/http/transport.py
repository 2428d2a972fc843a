"""Sends requests to one API server over HTTP/1.1: bounded in number, with deadlines, with the current identity.

Given a connection; returns every response, whatever its status. Timeouts and broken connections are
`failures.Unavailable`. A refused identity is renewed once. Never follows redirects, uses proxies, keeps cookies or
shows a secret. A request with a body is sent at most once per call, unless the server refused it with 401.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import types
import urllib.parse
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Final, NamedTuple, Self

import aiohttp
import yarl
from aiohttp import abc, payload

import dovetail
from dovetail import errors
from dovetail.kube.auth import client_config, credentials
from dovetail.kube.http import status_errors, tls
from dovetail.kube.watching import decode
from dovetail.ports import failures

Guard = Callable[[], None]

REQUEST_SECONDS: Final = 10.0
CONNECT_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 150.0  # bookmarks come about once a minute
KEEPALIVE_SECONDS: Final = (
    60.0  # kube-apiserver closes idle connections after 90 s; we must be first
)
MAX_LINE_BYTES: Final = 64 << 20  # ours; an object is at most a few MiB
_READ_BYTES: Final = 1 << 18
_JSON: Final = "application/json"


class Answer(NamedTuple):
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_success(self) -> bool:
        """2xx."""
        return 200 <= self.status < 300


class Transport:
    """A pool of connections to one server. `async with` opens and closes it; not for use across event loops."""

    def __init__(
        self,
        connection: client_config.Connection,
        *,
        concurrency: int = 64,
        user_agent: str = f"dovetail/{dovetail.__version__}",
        source: credentials.Source | None = None,
    ) -> None:
        self.connection = connection
        self._slots = asyncio.Semaphore(concurrency)
        self._user_agent = user_agent
        self._source = source or credentials.Source(connection.credentials)
        self._is_secure = connection.server.startswith("https://")
        self._session: aiohttp.ClientSession | None = None
        self._context: tuple[credentials.Identity, ssl.SSLContext] | None = None

    def __repr__(self) -> str:
        return f"Transport({self.connection.server!r})"

    async def __aenter__(self) -> Self:
        decode.read_all_depths()
        if self._is_secure:  # report an unusable authority now, not with every request
            anonymous = credentials.Identity()
            self._context = (anonymous, tls.context(self.connection, anonymous))
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            read_bufsize=_READ_BYTES,
            trust_env=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            headers={"User-Agent": self._user_agent, "Accept-Encoding": "identity"},
            skip_auto_headers=("Content-Type",),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        await self._source.close()
        if self._session is not None:
            await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = _JSON,
        accept: str = _JSON,
        timeout: float = REQUEST_SECONDS,
        guard: Guard | None = None,
    ) -> Answer:
        """Sends a request and waits for the whole response; `timeout` includes waiting for a free slot.

        `guard` is called right before the bytes are sent, and stops them by raising.
        """
        ask = _Ask(
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
        except (aiohttp.ClientError, OSError) as error:
            raise ask.stopped or _unavailable(method, path, error) from None
        finally:
            ask.abandon()

    async def lines(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        accept: str = _JSON,
        idle_timeout: float = IDLE_SECONDS,
        opened: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[bytes, None]:
        """The lines of a streamed response. Ends when the server ends it; an incomplete line is left out.

        Watches do not count against the limit of concurrent requests. `opened` is called once the server has accepted.
        Raises the failure of the response, or Unavailable if the connection breaks or stays silent.
        """
        ask = _Ask("GET", self._url(path, params), None, accept=accept)
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_SECONDS, sock_read=idle_timeout
        )
        try:
            async with await self._streamed(ask, timeout) as response:
                if response.status != 200:
                    body = await response.read()
                    raise status_errors.failure_of(
                        response.status, body, headers=response.headers, doing=f"watch {path}"
                    )
                opened()
                try:
                    async for line in split_lines(response.content.iter_any()):
                        yield line
                finally:
                    _abort(response)
        except aiohttp.SocketTimeoutError:
            raise failures.Unavailable(f"watch {path}: silent for {idle_timeout:.3g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise _unavailable("watch", path, error) from None

    async def _answered(self, ask: _Ask) -> Answer:
        identity = await self._source.current()
        answer = await self._asked(ask, identity)
        if answer.status != 401:
            return answer
        renewed = await self._source.renew(identity)
        return answer if renewed == identity else await self._asked(ask, renewed)

    async def _asked(self, ask: _Ask, identity: credentials.Identity) -> Answer:
        async with await self._sent(ask, identity) as response:
            _refuse_encoding(response)
            answer = Answer(response.status, response.headers, await response.read())
        ask.written_to = None  # answered: the connection may be used again
        return answer

    async def _streamed(self, ask: _Ask, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        identity = await self._source.current()
        response = await self._sent(ask, identity, timeout=timeout)
        if response.status == 401:
            with contextlib.ExitStack() as unread:
                unread.callback(response.close)
                renewed = await self._source.renew(identity)
                if renewed == identity:
                    unread.pop_all()  # the caller reads the error
                    return response
            response = await self._sent(ask, renewed, timeout=timeout)
        _refuse_encoding(response)
        return response

    async def _sent(
        self,
        ask: _Ask,
        identity: credentials.Identity,
        *,
        timeout: aiohttp.ClientTimeout | None = None,
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            raise RuntimeError("the transport is not open; use `async with`")
        if ask.guard is not None:
            ask.guard()
        return await self._session.request(
            ask.method,
            ask.url,
            data=ask.payload(),
            headers=[*identity.headers, *ask.headers],
            allow_redirects=False,
            ssl=self._tls(identity),
            server_hostname=self.connection.server_name or None,
            timeout=timeout or self._session.timeout,
        )

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

    def _url(self, path: str, params: Mapping[str, str] | None) -> yarl.URL:
        query = f"?{urllib.parse.urlencode(params)}" if params else ""
        return yarl.URL(f"{self.connection.server}{path}{query}", encoded=True)


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
            raise aiohttp.ClientPayloadError(f"a line is longer than {MAX_LINE_BYTES} bytes")


class _Ask:
    """One request and its guard."""

    def __init__(
        self,
        method: str,
        url: yarl.URL,
        body: bytes | None,
        *,
        content_type: str = _JSON,
        accept: str = _JSON,
        guard: Guard | None = None,
    ) -> None:
        self.method = method
        self.url = url
        self.guard = guard
        self.stopped: Exception | None = None
        self.written_to: asyncio.Transport | None = None
        self.headers = [("Accept", accept)]
        self._body = body
        if body is not None:
            self.headers.append(("Content-Type", content_type))

    def payload(self) -> payload.Payload | None:
        """A body that calls the guard as it is sent. A guarded request without a body gets an empty one."""
        if self._body is None and self.guard is None:
            return None
        return _Body(self._body or b"", self._last_word)

    def abandon(self) -> None:
        """Discards the unsent bytes of a request without a response; closing alone would send them first."""
        if self.written_to is not None:
            self.written_to.abort()

    def _last_word(self, transport: asyncio.Transport | None) -> None:
        self.written_to = transport
        if self.guard is None:
            return
        try:
            self.guard()
        except Exception as error:
            self.stopped = error  # aiohttp wraps exceptions of a body; the caller gets the original
            raise


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


def _abort(response: aiohttp.ClientResponse) -> None:
    """Closes a connection without the TLS shutdown, which would wait for the server."""
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()


def _refuse_encoding(response: aiohttp.ClientResponse) -> None:
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        response.close()
        raise aiohttp.ClientPayloadError(
            f"the response is encoded as {encoding}, which was not requested"
        )


def _unavailable(method: str, path: str, error: Exception) -> failures.Unavailable:
    return failures.Unavailable(f"{method} {path}: {_said(error)}")


def _said(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        reason = error.os_error.strerror or error.os_error
        return f"cannot connect to {error.host}:{error.port}: {reason}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"the server at {error.host}:{error.port} is not trusted: {error.certificate_error}"
    return str(error) or type(error).__name__

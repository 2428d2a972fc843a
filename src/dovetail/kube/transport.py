"""Requests to one API server over HTTP/1.1: bounded in number, with deadlines, as the identity of the moment.

Given a connection; answers whatever the server said, whatever its status. Timeouts and broken connections are
`failures.Unavailable`. A refused identity is renewed once. Never follows redirects, uses proxies, keeps cookies or
shows a secret. A request that carries something is sent at most once per call unless the server refused it with 401.
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
from dovetail.kube import config, credentials, decode, failures_of, tls
from dovetail.ports import failures

Guard = Callable[[], None]

REQUEST_SECONDS: Final = 10.0
CONNECT_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 150.0  # bookmarks come about once a minute
KEEPALIVE_SECONDS: Final = 60.0  # kube-apiserver closes idle connections after 90 s; we must be first
MAX_LINE_BYTES: Final = 64 << 20  # ours; an object is at most a few MiB
_READ_BYTES: Final = 1 << 18
_JSON: Final = "application/json"


class Answer(NamedTuple):
    """What the server said."""

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
        connection: config.Connection,
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
        if self._is_secure:  # an authority that cannot be used is told now, not with every request
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
        """Asks and waits for the whole answer; `timeout` covers everything, waiting for a free slot included.

        `guard` is called right before the bytes go out and stops them by raising.
        """
        ask = _Ask(method, self._url(path, params), body, content_type=content_type, accept=accept, guard=guard)
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
        idle_timeout: float = IDLE_SECONDS,
        opened: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[bytes, None]:
        """The lines of an answer that goes on. Ends when the server ends it; a line cut short is left out.

        Watches do not count against the number of requests at once. `opened` is called once the server has agreed.
        Raises the failure the server answered with, or Unavailable where the connection breaks or stays silent.
        """
        ask = _Ask("GET", self._url(path, params), None)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=idle_timeout)
        try:
            async with await self._streamed(ask, timeout) as response:
                if response.status != 200:
                    body = await response.read()
                    raise failures_of.failure_of(response.status, body, headers=response.headers, doing=f"watch {path}")
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
                    unread.pop_all()  # the caller tells what it says
                    return response
            response = await self._sent(ask, renewed, timeout=timeout)
        _refuse_encoding(response)
        return response

    async def _sent(
        self, ask: _Ask, identity: credentials.Identity, *, timeout: aiohttp.ClientTimeout | None = None
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
        """A context per certificate: connections made with another one are not used again."""
        if not self._is_secure:
            return True
        known = self._context
        if known is None or (known[0].certificate, known[0].key) != (identity.certificate, identity.key):
            try:
                known = self._context = (identity, tls.context(self.connection, identity))
            except errors.InputError as error:
                raise failures.Unauthorised(str(error)) from None
        return known[1]

    def _url(self, path: str, params: Mapping[str, str] | None) -> yarl.URL:
        query = f"?{urllib.parse.urlencode(params)}" if params else ""
        return yarl.URL(f"{self.connection.server}{path}{query}", encoded=True)


async def split_lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The complete lines of a stream, without their ends. Linear, however the pieces are cut."""
    begun: list[bytes] = []
    begun_bytes = 0
    async for piece in pieces:
        first, *rest = piece.split(b"\n")
        begun.append(first)
        begun_bytes += len(first)
        if rest:
            yield b"".join(begun)
            for line in rest[:-1]:
                yield line
            begun = [rest[-1]]
            begun_bytes = len(rest[-1])
        if begun_bytes > MAX_LINE_BYTES:
            raise aiohttp.ClientPayloadError(f"a line is longer than {MAX_LINE_BYTES} bytes")


class _Ask:
    """One request and the guard over it."""

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
        """A body that asks the guard as it goes out. A guarded request without a body gets an empty one."""
        if self._body is None and self.guard is None:
            return None
        return _Body(self._body or b"", self._last_word)

    def abandon(self) -> None:
        """Takes back what of an unanswered request still waits to go out; closing alone would send it first."""
        if self.written_to is not None:
            self.written_to.abort()

    def _last_word(self, transport: asyncio.Transport | None) -> None:
        self.written_to = transport
        if self.guard is None:
            return
        try:
            self.guard()
        except Exception as error:
            self.stopped = error  # aiohttp wraps what a body raises; the caller gets this instead
            raise


class _Body(payload.Payload):
    """Bytes that are written once, right after a last word. aiohttp sends the headers together with them.

    Of all places aiohttp offers this is the last: nothing of a request is on the wire before its body is asked for,
    and between the last word and the write there is no await.
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

    async def write_with_length(self, writer: abc.AbstractStreamWriter, content_length: int | None) -> None:
        self._last_word(getattr(writer, "transport", None))
        self._consumed = True  # aiohttp must not repeat it by itself on a fresh connection
        await writer.write(self._data)


def _abort(response: aiohttp.ClientResponse) -> None:
    """Ends a connection that still speaks, without the farewells of TLS, which wait for the other side."""
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()


def _refuse_encoding(response: aiohttp.ClientResponse) -> None:
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        response.close()
        raise aiohttp.ClientPayloadError(f"the answer is encoded as {encoding}, which was not asked for")


def _unavailable(method: str, path: str, error: Exception) -> failures.Unavailable:
    return failures.Unavailable(f"{method} {path}: {_said(error)}")


def _said(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        reason = error.os_error.strerror or error.os_error
        return f"cannot connect to {error.host}:{error.port}: {reason}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"the server at {error.host}:{error.port} is not trusted: {error.certificate_error}"
    return str(error) or type(error).__name__

"""Reads for a process that lives a second: GET over a few connections, with nothing to import but asyncio.

Given requests, an identity's headers and a TLS context; sends no bodies and streams nothing. Whatever breaks is
`wire_request.Broken`, in the words of `pooled_session`. A connection that the server has closed while it was idle is
replaced once: a GET may be repeated. Never follows redirects, uses proxies or keeps cookies.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import string
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from dovetail.kube.http import open_sockets, wire_request

# A TLS handshake costs both sides more than a short list; HTTP/1.1 answers one request at a time.
MAX_CONNECTIONS: Final = 6
MAX_HEADER_BYTES: Final = 1 << 16
_BUFFER_BYTES: Final = 1 << 20
_BODILESS: Final = (204, 304)


class Headers(Mapping[str, str]):
    """Fields of a response, by name in any case."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._fields = {name.lower(): value for name, value in fields.items()}

    def __getitem__(self, name: str) -> str:
        return self._fields[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


class _Connection(NamedTuple):
    """An open connection, and the TLS context it was made with."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    tls: ssl.SSLContext | bool

    def end(self) -> None:
        """Closes it without the TLS shutdown, which would wait for the server."""
        self.writer.close()
        self.writer.transport.abort()


class BriefSession:
    """Connections to one server, as many as are needed at once."""

    def __init__(self, user_agent: str, *, server_name: str = "") -> None:
        self._user_agent = user_agent
        self._server_name = server_name or None
        self._free = asyncio.Semaphore(MAX_CONNECTIONS)
        self._idle: list[_Connection] = []
        self._sockets = open_sockets.OpenSockets()

    async def close(self) -> None:
        """Ends all connections, also those of cancelled requests."""
        while self._idle:
            self._idle.pop().end()
        await self._sockets.end_all()

    async def asked(
        self,
        ask: wire_request.WireRequest,
        headers: Sequence[tuple[str, str]],
        tls: ssl.SSLContext | bool,
    ) -> wire_request.Answer:
        """The whole response."""
        address = urllib.parse.urlsplit(ask.url)
        message = self._message(ask, headers, address)
        async with self._free:
            idle = self._taken(tls)
            if idle is not None:
                with contextlib.suppress(wire_request.Broken):  # closed while it was idle
                    return await self._exchanged(idle, message)
            return await self._exchanged(await self._opened(address, tls), message)

    def _message(
        self,
        ask: wire_request.WireRequest,
        headers: Sequence[tuple[str, str]],
        address: urllib.parse.SplitResult,
    ) -> bytes:
        path = address.path + (f"?{address.query}" if address.query else "")
        target = urllib.parse.quote(path or "/", safe=string.punctuation)
        fields = (
            ("Host", address.netloc.rpartition("@")[2]),
            ("User-Agent", self._user_agent),
            ("Accept-Encoding", "identity"),
            *headers,
            *ask.headers,
        )
        lines = [f"GET {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields)]
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("a header of a request has a line end")
        return "\r\n".join([*lines, "", ""]).encode()

    def _taken(self, tls: ssl.SSLContext | bool) -> _Connection | None:
        """An idle connection that was made with this context."""
        for connection in self._idle:
            if connection.tls is tls:
                self._idle.remove(connection)
                return connection
        return None

    async def _opened(
        self, address: urllib.parse.SplitResult, tls: ssl.SSLContext | bool
    ) -> _Connection:
        host, is_secure = address.hostname or "", address.scheme == "https"
        port = address.port or (443 if is_secure else 80)
        try:
            async with asyncio.timeout(wire_request.CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(
                    sock=await self._connected(host, port),
                    limit=_BUFFER_BYTES,
                    ssl=tls if is_secure else None,
                    server_hostname=(self._server_name or host) if is_secure else None,
                )
        except ssl.SSLCertVerificationError as error:
            untrusted = f"the server at {host}:{port} is not trusted: {error}"
            raise wire_request.Broken(untrusted) from None
        except TimeoutError:
            raise
        except OSError as error:
            reason = f"cannot connect to {host}:{port}: {error.strerror or error}"
            raise wire_request.Broken(reason) from None
        return _Connection(reader, writer, tls)

    async def _connected(self, host: str, port: int) -> socket.socket:
        """A socket that is connected to one of the host's addresses, in the order in which they are resolved."""
        loop = asyncio.get_running_loop()
        refusal = OSError(f"{host} has no address")
        for *kind, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            created = self._sockets.create(tuple(kind))
            created.setblocking(False)
            try:
                await loop.sock_connect(created, address)
            except OSError as error:
                created.close()
                refusal = error
            except BaseException:
                created.close()
                raise
            else:
                return created
        raise refusal

    async def _exchanged(self, connection: _Connection, message: bytes) -> wire_request.Answer:
        """Sends the request and reads the response; the connection is kept if it can be used again."""
        is_reusable = False
        try:
            connection.writer.write(message)
            answer, is_reusable = await _response(connection.reader)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise wire_request.Broken(_reason(error)) from None
        finally:
            if is_reusable:
                self._idle.append(connection)
            else:
                connection.end()
        return answer


async def _response(reader: asyncio.StreamReader) -> tuple[wire_request.Answer, bool]:
    """The response, and whether the connection can be used again."""
    status, headers = await _head(reader)
    while 100 <= status < 200:
        status, headers = await _head(reader)
    encoding = headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        raise ValueError(f"the response is encoded as {encoding}, which was not requested")

    is_kept = headers.get("Connection", "").lower() != "close"
    if status in _BODILESS:
        body = b""
    elif headers.get("Transfer-Encoding", "").lower() == "chunked":
        body = await _chunks(reader)
    elif "Content-Length" in headers:
        body = await reader.readexactly(int(headers["Content-Length"]))
    else:
        body, is_kept = await reader.read(), False
    return wire_request.Answer(status, headers, body), is_kept


async def _head(reader: asyncio.StreamReader) -> tuple[int, Headers]:
    """Status and fields."""
    head = await reader.readuntil(b"\r\n\r\n")
    if len(head) > MAX_HEADER_BYTES:
        raise ValueError("the headers of the response are too long")
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    version, status = first.split(" ")[:2]
    if not version.startswith("HTTP/1."):
        raise ValueError(f'the server does not speak HTTP/1: "{first[:40]}"')
    fields = [line.partition(":") for line in lines]
    return int(status), Headers({name: value.strip() for name, _, value in fields})


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    pieces: list[bytes] = []
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        pieces.append(await reader.readexactly(size))
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass  # trailers
    return b"".join(pieces)


def _reason(error: Exception) -> str:
    if isinstance(error, asyncio.IncompleteReadError):
        return "Server disconnected"
    return str(error) or type(error).__name__

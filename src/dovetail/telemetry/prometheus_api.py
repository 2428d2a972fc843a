"""Asks a Prometheus server, or anything that speaks its HTTP API: instant and range queries, and its clock.

Given an address, and optionally a token's file and an authority's file, which are read again for each request because
both are renewed on disk. Bounded in time and size. Raises PrometheusFailure with what is wrong and what to check. Never
retries: callers ask again at their own pace. Never interprets a metric.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import Any, Final, NamedTuple, Self, TypeAlias

import aiohttp
import msgspec

from dovetail import errors
from dovetail.files import small_files

TIMEOUT_SECONDS: Final = 20.0
CONNECT_SECONDS: Final = 5.0
MAX_BYTES: Final = 256 * 1024 * 1024
_MAX_TEXT: Final = 300  # of a server's own words
_API: Final = "/api/v1"

Point: TypeAlias = tuple[float, float]  # seconds since 1970, value


class PrometheusFailure(errors.DovetailError):
    """The server did not answer, or refused."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server is and how it lets us in."""

    url: str
    token_file: str = ""
    ca_file: str = ""
    timeout_seconds: float = TIMEOUT_SECONDS


class RawSeries(NamedTuple):
    """One series of an answer, as the server has it."""

    labels: dict[str, str]
    points: list[Point]


class _Result(msgspec.Struct, gc=False):
    metric: dict[str, str] = {}
    value: tuple[float, str] | None = None
    values: list[tuple[float, str]] = []


class _Data(msgspec.Struct, gc=False, rename="camel"):
    result_type: str
    result: msgspec.Raw


class _Answer(msgspec.Struct, gc=False, rename="camel"):
    status: str
    data: _Data | None = None
    error: str = ""
    error_type: str = ""


class Prometheus:
    """One server. An asynchronous context; its connections belong to the loop that opened it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(
            total=self.endpoint.timeout_seconds, connect=CONNECT_SECONDS
        )
        self._session = aiohttp.ClientSession(timeout=timeout, trust_env=False)
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def instant(self, query: str, *, at: float | None = None) -> list[RawSeries]:
        """The query at one time, by default the server's now. A range selector returns samples as they were scraped."""
        parameters = {"query": query}
        if at is not None:
            parameters["time"] = f"{at:.3f}"
        return await self._ask("query", parameters)

    async def range(
        self, query: str, *, start: float, end: float, step_seconds: float
    ) -> list[RawSeries]:
        """The query evaluated at steps; the server looks back up to five minutes for a sample at each."""
        parameters = {
            "query": query,
            "start": f"{start:.3f}",
            "end": f"{end:.3f}",
            "step": f"{step_seconds:.3f}",
        }
        return await self._ask("query_range", parameters)

    async def now(self) -> float:
        """The server's clock, in seconds since 1970."""
        (series,) = await self.instant("time()")
        return series.points[0][1]

    async def _ask(self, what: str, parameters: dict[str, str]) -> list[RawSeries]:
        status, body = await self._post(f"{_API}/{what}", parameters)
        # A large answer takes long to read; the loop has other work.
        return await asyncio.to_thread(self._read, status, body)

    async def _post(self, path: str, parameters: dict[str, str]) -> tuple[int, bytes]:
        assert self._session is not None, "used as a context"
        endpoint = self.endpoint
        url = endpoint.url.rstrip("/") + path
        try:
            async with self._session.post(
                url, data=parameters, headers=self._headers(), ssl=self._tls()
            ) as answer:
                body = await answer.content.read(MAX_BYTES + 1)
                while not answer.content.at_eof() and len(body) <= MAX_BYTES:
                    body += await answer.content.read(MAX_BYTES + 1 - len(body))
                if len(body) > MAX_BYTES:
                    raise PrometheusFailure(
                        f"{endpoint.url}: the answer is larger than {MAX_BYTES >> 20} MiB; "
                        "ask about a shorter time"
                    )
                return answer.status, body
        except TimeoutError:
            raise PrometheusFailure(
                f"{endpoint.url}: no answer within {endpoint.timeout_seconds:g} s"
            ) from None
        except aiohttp.InvalidURL:
            raise PrometheusFailure(
                f"{endpoint.url}: not an address; expected http://HOST:PORT"
            ) from None
        except (aiohttp.ClientError, ssl.SSLError, OSError) as error:
            raise PrometheusFailure(f"{endpoint.url}: cannot be reached: {error}") from None

    def _headers(self) -> dict[str, str]:
        if not self.endpoint.token_file:
            return {}
        try:
            token = small_files.content(self.endpoint.token_file).decode("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise PrometheusFailure(
                f"{self.endpoint.token_file}: the token for {self.endpoint.url} cannot be read: {error}"
            ) from None
        return {"Authorization": f"Bearer {token}"}

    def _tls(self) -> ssl.SSLContext | bool:
        if not self.endpoint.ca_file:
            return True
        try:
            return ssl.create_default_context(cafile=self.endpoint.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise PrometheusFailure(
                f"{self.endpoint.ca_file}: the authority for {self.endpoint.url} cannot be read: {error}"
            ) from None

    def _read(self, status: int, body: bytes) -> list[RawSeries]:
        where = self.endpoint.url
        if status in (401, 403):
            raise PrometheusFailure(
                f"{where}: refuses us (HTTP {status}); give a token that may read it"
            )
        try:
            answer = msgspec.json.decode(body, type=_Answer)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            said = body[:_MAX_TEXT].decode("utf-8", "replace").strip()
            raise PrometheusFailure(
                f"{where}: is not a Prometheus (HTTP {status}: {said or 'empty'})"
            ) from None
        if answer.status != "success" or answer.data is None:
            raise PrometheusFailure(
                f"{where}: {answer.error_type or 'error'}: {answer.error[:_MAX_TEXT]}"
            )
        return series_of(answer.data.result_type, answer.data.result)


def series_of(result_type: str, result: msgspec.Raw) -> list[RawSeries]:
    """The series of an answer of any type."""
    if result_type in ("scalar", "string"):
        at, text = msgspec.json.decode(result, type=tuple[float, str])
        return [RawSeries({}, [(at, float(text))])]
    decoded: list[_Result] = msgspec.json.decode(result, type=list[_Result])
    series: list[RawSeries] = []
    for each in decoded:
        values = each.values if each.value is None else [each.value]
        series.append(RawSeries(each.metric, [(at, float(text)) for at, text in values]))
    return series


def matcher(name: str, value: str) -> str:
    """A label matcher of PromQL; the value is quoted."""
    quoted: Any = json.dumps(value, ensure_ascii=False)
    return f"{name}={quoted}"

"""JSON over HTTP from a dashboard: one request, one answer, problems as exceptions.

Given the address of a dashboard and a token. The token is sent to that address only: redirects are refused. Answers are
bounded in size and time. Never repeats a request.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import msgspec

from dovetail import errors
from dovetail.ports import failures
from dovetail.sdk import python_words

API: Final = "/api/v1"
TIMEOUT_SECONDS: Final = 120.0  # questions to the engine may take long on a large fleet
MOST_BYTES: Final = 256 * 1024**2
MOST_PROBLEM_BYTES: Final = 64 * 1024
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")

Params = Mapping[str, str | int | None]


class Problem(msgspec.Struct, frozen=True):
    """What went wrong, as application/problem+json says it."""

    title: str = ""
    detail: str = ""
    field: str = ""
    next: str = ""

    def __str__(self) -> str:
        text = self.detail or self.title
        if self.field:
            text = f"{self.field}: {text}"
        return f"{text}\nnext: {self.next}" if self.next else text


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """None: the redirect itself is the answer."""


class Connection:
    """A dashboard's address. Threads may share one: it holds no open socket."""

    def __init__(self, url: str, token: str | None) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise errors.InputError(
                f'url "{url}": expected the address of a dashboard, such as http://127.0.0.1:8080'
            )
        if parts.query or parts.fragment:
            raise errors.InputError("url: leave out what follows ? and #; give the token as token")
        self.address = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._token = token
        direct: dict[str, str] | None = (
            {} if parts.hostname in LOOPBACK else None
        )  # no proxy knows this machine's own
        self._opener = urllib.request.build_opener(
            _NoRedirect(), urllib.request.ProxyHandler(direct)
        )

    def get(self, path: str, params: Params | None = None) -> Any:
        """What the dashboard answers, as plain data."""
        given = {name: str(value) for name, value in (params or {}).items() if value is not None}
        query = f"?{urllib.parse.urlencode(given)}" if given else ""
        return self._sent(urllib.request.Request(self._url(path) + query))  # noqa: S310

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """As `get`, with a body. Used for questions only: it changes nothing."""
        data = json.dumps(body).encode()
        request = urllib.request.Request(self._url(path), data=data, method="POST")  # noqa: S310
        request.add_header("Content-Type", "application/json")
        request.add_header("Dovetail-Request", "1")
        return self._sent(request)

    def _url(self, path: str) -> str:
        return f"{self.address}{API}{path}"

    def _sent(self, request: urllib.request.Request) -> Any:
        request.add_header("Accept", "application/json")
        request.add_header("User-Agent", "dovetail-sdk")
        if self._token is not None:
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            with self._opener.open(request, timeout=TIMEOUT_SECONDS) as response:
                content: bytes = response.read(MOST_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                _refuse(error.code, error.read(MOST_PROBLEM_BYTES), self.address)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise failures.Unavailable(f"{self.address} cannot be reached: {reason}") from None
        if len(content) > MOST_BYTES:
            raise failures.Unavailable(
                f"{self.address}: the answer is longer than {MOST_BYTES} bytes"
            )
        try:
            return msgspec.json.decode(content)
        except msgspec.DecodeError:
            raise failures.Unavailable(
                f"{self.address} does not answer as a dashboard does: expected JSON"
            ) from None


def _refuse(status: int, content: bytes, address: str) -> NoReturn:
    try:
        problem = msgspec.json.decode(content, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        problem = Problem()
    message = python_words.translated(str(problem)) or f"{address} answers with status {status}"
    match status:
        case 404:
            raise errors.NotFound(message)
        case 400 | 413 | 422:
            raise errors.InputError(message)
        case 401:
            raise failures.Unauthorised(message, status=status)
        case 429:
            raise failures.Throttled(message, status=status)
        case _ if status >= 500:
            raise failures.Unavailable(message, status=status)
        case _:
            raise failures.Refused(message, status=status)

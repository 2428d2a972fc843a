"""Sends one request to a server on loopback, for start-up and status only.

Given a port and a path, returns status and body. Never retries, never follows a proxy. The scheduler speaks to
the API server through kube/, not through this.
"""

from __future__ import annotations

import http.client
import ssl
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

SECONDS: Final = 5.0


class Answer(NamedTuple):
    """The status is 0 if the server did not answer, and the body then has the reason."""

    status: int
    body: bytes

    @property
    def is_ok(self) -> bool:
        """Whether the status is a success."""
        return self.status == http.HTTPStatus.OK

    def __str__(self) -> str:
        """The answer in one line."""
        text = self.body.decode(errors="replace").strip()[-200:]
        return f"{self.status}: {text}" if self.status else text


def ask(port: int, path: str, *, ca: Path | None = None, token: str | None = None) -> Answer:
    """One GET, over TLS where a certificate to trust is given."""
    connection: http.client.HTTPConnection
    if ca is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    else:
        trust = ssl.create_default_context(cafile=str(ca))
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=SECONDS, context=trust)
    try:
        connection.request(
            "GET", path, headers={"Authorization": f"Bearer {token}"} if token else {}
        )
        answer = connection.getresponse()
        return Answer(answer.status, answer.read())
    except (OSError, http.client.HTTPException) as error:
        return Answer(0, (str(error) or type(error).__name__).encode())
    finally:
        connection.close()


class _ListMeta(msgspec.Struct, rename="camel"):
    remaining_item_count: int = 0


class _List(msgspec.Struct):
    items: list[msgspec.Raw]
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


def count(port: int, path: str, *, ca: Path, token: str) -> int | None:
    """The number of objects in a collection, without fetching them; None if the server does not answer."""
    answer = ask(port, f"{path}?limit=1", ca=ca, token=token)
    if not answer.is_ok:
        return None
    page = msgspec.json.decode(answer.body, type=_List)
    return len(page.items) + page.metadata.remaining_item_count


def listed(port: int, path: str, *, ca: Path, token: str) -> list[dict[str, Any]] | None:
    """All objects of a collection; None if the server does not answer."""
    answer = ask(port, path, ca=ca, token=token)
    if not answer.is_ok:
        return None
    items: list[dict[str, Any]] = msgspec.json.decode(answer.body)["items"]
    return items

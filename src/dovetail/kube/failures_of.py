"""Turns an answer of the API server that is not success into the failure a caller can act on.

Given status, headers and body; answers one of `ports.failures`. Never raises it: the caller does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from dovetail.ports import failures

_MAX_TEXT: Final = 500  # characters of a body that is no Status
_MAX_MESSAGE: Final = 4_000  # and of a Status: what an admission webhook or a policy says has no limit
# Server errors that mean "not now" whatever their code says: what etcd and the storage layer answer under stress.
_PASSING: Final = ("etcdserver:", "request timed out", "leader changed", "context deadline exceeded")
# What never passes, whatever the code: etcd's limit of a request (500, for a binding 409), that of the client between
# the API server and etcd, and the API server's own (413).
_TOO_LARGE: Final = ("request is too large", "trying to send message larger than max", "Request entity too large")
_BUDGET: Final = "DisruptionBudget"  # policy/v1's cause of a refused eviction
_TWO_BUDGETS: Final = "more than one PodDisruptionBudget"
_BY_STATUS: Final[dict[int, type[failures.ApiFailure]]] = {
    401: failures.Unauthorised,
    404: failures.Missing,
    409: failures.Conflict,
    410: failures.Expired,
    429: failures.Throttled,
    408: failures.Unavailable,
}


class _Cause(msgspec.Struct, rename="camel"):
    reason: str | None = None


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: float | None = None
    causes: tuple[_Cause, ...] | None = None


class Status(msgspec.Struct, rename="camel"):
    """metav1.Status, as far as it matters here."""

    status: str | None = None
    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: _Details | None = None


def failure_of(
    status: int, body: bytes, *, headers: Mapping[str, str] | None = None, doing: str = ""
) -> failures.ApiFailure:
    """The failure that an answer with this status means. `doing` says what was asked."""
    said = _status(body)
    reason = said.reason or ""
    message = said.message or body[:_MAX_TEXT].decode(errors="replace").strip() or "no explanation"
    if len(message) > _MAX_MESSAGE:
        message = message[:_MAX_MESSAGE] + " ..."
    text = f"{doing}: {status} {reason}: {message}" if reason else f"{doing}: {status}: {message}"
    kind = failures.Protected if _is_protected(said, message) else _kind(status, reason, message)
    wait = _retry_after(said, headers or {})
    return kind(text.removeprefix(": "), status=status, reason=reason, retry_after=wait)


def failure_of_event(document: bytes, *, doing: str = "") -> failures.ApiFailure:
    """The failure that a watch's ERROR event means; its status is inside."""
    return failure_of(_status(document).code or 500, document, doing=doing)


def failure_inside(document: bytes, *, doing: str = "") -> failures.ApiFailure | None:
    """The failure that a Status means which came with a code of success, as evictions are refused in one case."""
    said = _status(document)
    return failure_of(said.code or 500, document, doing=doing) if said.status == "Failure" else None


def _is_protected(said: Status, message: str) -> bool:
    """Whether a disruption budget says no; with two of them the server does not even try, and says so with a 500."""
    causes = (said.details.causes if said.details is not None else None) or ()
    return any(one.reason == _BUDGET for one in causes) or _TWO_BUDGETS in message


def _kind(status: int, reason: str, message: str) -> type[failures.ApiFailure]:
    if status == 413 or any(sign in message for sign in _TOO_LARGE):
        return failures.Futile
    if reason == "AlreadyExists":
        return failures.AlreadyThere
    if reason in ("Expired", "Gone"):
        return failures.Expired
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 500 or any(sign in message for sign in _PASSING):
        return failures.Unavailable
    return failures.Refused


def _status(body: bytes) -> Status:
    try:
        return msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Status()


def _retry_after(said: Status, headers: Mapping[str, str]) -> float | None:
    if said.details is not None and said.details.retry_after_seconds:
        return max(0.0, said.details.retry_after_seconds)
    try:
        seconds = float(headers.get("Retry-After", ""))  # a date is not what API servers send
    except ValueError:
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None

"""Turns an error response of the API server into a failure that the caller can act on.

Given status, headers and body; returns one of `ports.failures`. Never raises it: the caller does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from dovetail.ports import failures

_MAX_TEXT: Final = 500  # characters of a body that is no Status
_MAX_MESSAGE: Final = (
    4_000  # and of a Status: what an admission webhook or a policy says has no limit
)
# Errors that mean "not now" whatever their code: responses of etcd and the storage layer under load.
_PASSING: Final = (
    "etcdserver:",
    "request timed out",
    "leader changed",
    "context deadline exceeded",
)
# Errors that no retry cures, whatever their code: the size limits of etcd (500, for a binding 409), of the API
# server's etcd client, and of the API server itself (413).
_TOO_LARGE: Final = (
    "request is too large",
    "trying to send message larger than max",
    "Request entity too large",
)
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


_BY_REASON: Final[Mapping[str, type[failures.ApiFailure]]] = {
    "AlreadyExists": failures.AlreadyThere,
    "Expired": failures.Expired,
    "Gone": failures.Expired,
}


class _Cause(msgspec.Struct, rename="camel"):
    reason: str | None = None


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: float | None = None
    causes: tuple[_Cause, ...] | None = None


class Status(msgspec.Struct, rename="camel"):
    """The fields of metav1.Status that are used here."""

    status: str | None = None
    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: _Details | None = None


def failure_of(
    status: int, body: bytes, *, headers: Mapping[str, str] | None = None, doing: str = ""
) -> failures.ApiFailure:
    """The failure that a response with this status means. `doing` names the request."""
    status_body = _status(body)
    reason = status_body.reason or ""
    message = status_body.message or body[:_MAX_TEXT].decode(errors="replace").strip()
    if not message:
        message = "no explanation"
    if len(message) > _MAX_MESSAGE:
        message = message[:_MAX_MESSAGE] + " ..."

    kind = _kind(status, reason, message)
    if _is_protected(status_body, message):
        kind = failures.Protected
    text = f"{doing}: {status} {reason}: {message}" if reason else f"{doing}: {status}: {message}"
    wait = _retry_after(status_body, headers or {})
    return kind(text.removeprefix(": "), status=status, reason=reason, retry_after=wait)


def failure_of_event(document: bytes, *, doing: str = "") -> failures.ApiFailure:
    """The failure that a watch's ERROR event means; its object is a Status."""
    return failure_of(_status(document).code or 500, document, doing=doing)


def failure_inside(document: bytes, *, doing: str = "") -> failures.ApiFailure | None:
    """The failure in a response with a code of success: some refused evictions are answered that way."""
    status_body = _status(document)
    if status_body.status != "Failure":
        return None
    return failure_of(status_body.code or 500, document, doing=doing)


def _is_protected(status_body: Status, message: str) -> bool:
    """Whether a disruption budget forbids an eviction. With two budgets the server answers with a 500."""
    if _TWO_BUDGETS in message:
        return True
    if status_body.details is None:
        return False
    return any(cause.reason == _BUDGET for cause in status_body.details.causes or ())


def _kind(status: int, reason: str, message: str) -> type[failures.ApiFailure]:
    """The failure by message, reason and status, in this order: the more specific one decides."""
    if status == 413 or _contains_any(message, _TOO_LARGE):
        return failures.Futile
    if reason in _BY_REASON:
        return _BY_REASON[reason]
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 500 or _contains_any(message, _PASSING):
        return failures.Unavailable
    return failures.Refused


def _contains_any(message: str, phrases: tuple[str, ...]) -> bool:
    return any(phrase in message for phrase in phrases)


def _status(body: bytes) -> Status:
    try:
        return msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Status()


def _retry_after(status_body: Status, headers: Mapping[str, str]) -> float | None:
    if status_body.details is not None and status_body.details.retry_after_seconds:
        return max(0.0, status_body.details.retry_after_seconds)
    try:
        seconds = float(headers.get("Retry-After", ""))  # API servers never send a date
    except ValueError:
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None

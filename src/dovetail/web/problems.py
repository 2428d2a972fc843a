"""Refusals as programs read them: `application/problem+json` (RFC 9457), one struct and the exception that carries it.

Raised anywhere below the HTTP interface, also by answers. Never carries a token, a traceback or what the user may not
see.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dovetail import errors

MEDIA_TYPE: Final = "application/problem+json"
_TYPE: Final = "urn:dovetail:problem:"


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What went wrong with one request. `next` is what to do about it."""

    type: str
    title: str
    status: int
    detail: str = ""
    field: str = ""  # of the query or the body
    next: str = ""


class Refusal(errors.DovetailError):
    """A request that is answered with a problem."""

    def __init__(self, problem: Problem, *, retry_after: float | None = None) -> None:
        super().__init__(problem.detail or problem.title)
        self.problem = problem
        self.retry_after = retry_after


def _refusal(
    status: int,
    name: str,
    title: str,
    detail: str,
    *,
    field: str = "",
    next_step: str = "",
    retry_after: float | None = None,
) -> Refusal:
    problem = Problem(
        type=_TYPE + name, title=title, status=status, detail=detail, field=field, next=next_step
    )
    return Refusal(problem, retry_after=retry_after)


def bad_request(detail: str, *, field: str = "", next_step: str = "") -> Refusal:
    """400: a parameter or the body cannot be used."""
    return _refusal(400, "bad-request", "bad request", detail, field=field, next_step=next_step)


def unauthenticated(detail: str, *, next_step: str = "") -> Refusal:
    """401: the server does not know who asks."""
    return _refusal(401, "unauthenticated", "sign in first", detail, next_step=next_step)


def forbidden(detail: str, *, next_step: str = "") -> Refusal:
    """403: known, but not allowed."""
    return _refusal(403, "forbidden", "not allowed", detail, next_step=next_step)


def not_found(detail: str, *, next_step: str = "") -> Refusal:
    """404: there is no such thing, or none that the user may see."""
    return _refusal(404, "not-found", "not found", detail, next_step=next_step)


def wrong_method(detail: str) -> Refusal:
    """405: the path takes another method."""
    return _refusal(405, "wrong-method", "wrong method", detail)


def conflict(detail: str, *, field: str = "", next_step: str = "") -> Refusal:
    """409: the cluster refuses, for a reason that may pass."""
    return _refusal(409, "conflict", "conflict", detail, field=field, next_step=next_step)


def too_large(detail: str) -> Refusal:
    """413: the body is too long."""
    return _refusal(413, "too-large", "too large", detail)


def misdirected(detail: str) -> Refusal:
    """421: the Host header names another server."""
    return _refusal(421, "wrong-host", "wrong host", detail)


def refused_by_cluster(detail: str, *, field: str = "") -> Refusal:
    """422: the API server refuses an object."""
    return _refusal(422, "refused", "refused by the cluster", detail, field=field)


def too_many(seconds: float) -> Refusal:
    """429: more requests than one user may make."""
    detail = f"more requests than one user may make; {seconds:.1f} s until the next"
    return _refusal(429, "too-many-requests", "too many requests", detail, retry_after=seconds)


def defect() -> Refusal:
    """500: an exception of ours; the log has it."""
    return _refusal(500, "defect", "this is a bug in dovetail", "the server's log says more")


def unavailable(detail: str, *, retry_after: float = 1.0, next_step: str = "") -> Refusal:
    """503: not now."""
    return _refusal(
        503, "unavailable", "not now", detail, retry_after=retry_after, next_step=next_step
    )

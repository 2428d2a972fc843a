"""Answers that are metav1.Status objects: every failure as the document and code a real server would send.

Given a failure of `ports.failures` and what the request was about; returns bytes. Never decides that a request fails.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import msgspec

from dovetail.kubetypes import field_errors
from dovetail.ports import failures
from dovetail.sim.server import write_rules

Tree = dict[str, Any]

REASONS: Final = {  # meta/v1 StatusReason by code
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    504: "Timeout",
}
# pods "a" not found; Deployment.apps "web" is invalid; Operation cannot be fulfilled on pods/binding "a"
_ABOUT: Final = re.compile(
    r"^(?:Operation cannot be fulfilled on )?(?P<kind>[A-Za-z]+(?:/[a-z]+)?)(?:\.(?P<group>[a-z0-9.-]+))? "
    r'"(?P<name>[^"]*)"'
)
BUDGET_CAUSE: Final = "DisruptionBudget"  # policy/v1 DisruptionBudgetCause


class Subject(NamedTuple):
    """What a request is about, as far as its path says."""

    name: str = ""
    group: str = ""
    kind: str = ""  # the plural, as upstream's details have it
    uid: str = ""


class Failed(failures.ApiFailure):
    """A failure with causes, for the details of its answer."""

    def __init__(self, message: str, *, status: int, reason: str = "", causes: list[Tree]) -> None:
        super().__init__(message, status=status, reason=reason)
        self.causes = causes


def failure(error: failures.ApiFailure) -> tuple[int, bytes]:
    """The code and the document of a failure."""
    code = error.status or 500
    details = _details(error)
    if error.retry_after:
        details["retryAfterSeconds"] = int(error.retry_after)
    document: Tree = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": str(error),
        "reason": error.reason or REASONS.get(code, "Unknown"),
    }
    if details:
        document["details"] = details
    document["code"] = code
    return code, msgspec.json.encode(document)


def _details(error: failures.ApiFailure) -> Tree:
    """What a failure is about, as far as its message begins with that, and its causes."""
    details: Tree = {}
    match = _ABOUT.match(str(error))
    if match is not None:
        parts = {"name": match["name"], "group": match["group"], "kind": match["kind"]}
        details = {name: value for name, value in parts.items() if value}
    causes = getattr(error, "causes", [])
    if isinstance(error, write_rules.Invalid):
        causes = [_cause(problem) for problem in error.problems]
    elif isinstance(error, failures.Protected):
        causes = [{"reason": BUDGET_CAUSE, "message": str(error.__cause__ or "")}]
    if causes:
        details["causes"] = causes
    return details


def _cause(problem: field_errors.FieldProblem) -> Tree:
    return {"reason": problem.type, "message": problem.message, "field": problem.field}


def success(subject: Subject, *, code: int = 200) -> bytes:
    """The document of a request that succeeded and has no object to return."""
    details = {name: value for name, value in subject._asdict().items() if value}
    document: Tree = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
    }
    if details:
        document["details"] = details
    if code != 200:
        document["code"] = code
    return msgspec.json.encode(document)


def bad(message: str) -> failures.Refused:
    """400."""
    return failures.Refused(message, status=400, reason="BadRequest")


def method_not_allowed() -> failures.Refused:
    """405."""
    message = "the server does not allow this method on the requested resource"
    return failures.Refused(message, status=405, reason="MethodNotAllowed")


def unsupported_media(accepted: str) -> failures.Refused:
    """415."""
    message = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    return failures.Refused(message, status=415, reason="UnsupportedMediaType")


def not_acceptable(accepted: str) -> failures.Refused:
    """406."""
    message = f"only the following media types are accepted: {accepted}"
    return failures.Refused(message, status=406, reason="NotAcceptable")


def expired(message: str) -> failures.Expired:
    """410."""
    return failures.Expired(message, status=410, reason="Expired")


def too_large_version(version: int, current: int) -> failures.Unavailable:
    """504 for a version that this server has not reached."""
    message = f"Too large resource version: {version}, current: {current}"
    return failures.Unavailable(message, status=504, reason="Timeout", retry_after=1)

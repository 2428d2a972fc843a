"""One line in the log for each request: who asked what, and how it ended. Never a token, a cookie or a body."""

from __future__ import annotations

import logging

from dovetail.web.security import identities

LOG = logging.getLogger("dovetail.audit")


def note(
    user: identities.User | None,
    *,
    method: str,
    path: str,
    query: str,
    status: int,
    address: str,
    seconds: float,
) -> None:
    """Writes the line: what is refused as a warning, the rest as information."""
    is_notable = status in (401, 403, 421, 429)
    LOG.log(
        logging.WARNING if is_notable else logging.INFO,
        "dashboard.request",
        extra={
            "user": user.name if user is not None else "",
            "how": user.how if user is not None else "",
            "method": method,
            "path": path,
            "query": query,
            "status": status,
            "address": address,
            "seconds": round(seconds, 4),
        },
    )


def note_write(user: identities.User, *, action: str, target: str, outcome: str) -> None:
    """One change of the cluster on behalf of a user."""
    LOG.warning(
        "dashboard.write",
        extra={"user": user.name, "action": action, "target": target, "outcome": outcome},
    )

"""How a request to an API server fails, named by what the caller should do.

ApiFailure
├── Missing         404: the object is gone; forget it
├── Conflict        409: another writer was first; read again, then decide again
├── AlreadyThere    409 on create: an object of that name exists; look at it
├── Expired         410: the requested version is no longer available; list again
├── Refused         400, 403, 405, 413, 415, 422: the same request will be refused again; give up and report it
│   └── Futile      too large, or the same refusal for too long: no write of this object will succeed
├── Unauthorised    401: the credentials are not accepted; renew them
├── Throttled       429: too many requests; wait `retry_after` seconds, then repeat
├── Protected       429 on an eviction: the pod's disruption budget does not allow it now; choose another, or wait
├── Unavailable     5xx, timeouts, broken connections: repeat later; a write may or may not have happened
└── Fenced          not sent: this process no longer holds the lease that allows writing
"""

from __future__ import annotations

from dovetail.errors import DovetailError


class ApiFailure(DovetailError):
    """A request that did not succeed."""

    def __init__(
        self, message: str, *, status: int = 0, reason: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after


class Missing(ApiFailure):
    """404."""


class Conflict(ApiFailure):
    """409, another writer was first."""


class AlreadyThere(ApiFailure):
    """409 on create."""


class Expired(ApiFailure):
    """410, also inside a watch."""


class Refused(ApiFailure):
    """Will be refused again."""


class Futile(Refused):
    """No write of this object will succeed: it is too large, or was refused for too long."""


class Unauthorised(ApiFailure):
    """401."""


class Throttled(ApiFailure):
    """429."""


class Protected(ApiFailure):
    """An eviction that a disruption budget does not allow."""


class Unavailable(ApiFailure):
    """No conclusive response; a write may or may not have happened."""


class Fenced(ApiFailure):
    """Not sent."""

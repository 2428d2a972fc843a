"""How the scheduler reports the steps of one pod, and which scheduling cycle the running code belongs to.

`CYCLE` is a context variable: tasks started within a cycle (writes, releases) inherit it, so that logs, events and
traces of one decision carry one id without passing it through every call.
"""

from __future__ import annotations

import contextvars
from typing import Final, Protocol

Fact = str | int | float | bool

CYCLE: Final[contextvars.ContextVar[str]] = contextvars.ContextVar("dovetail_cycle", default="")
CYCLE_ANNOTATION: Final = "dovetail.dev/cycle"  # of events: the scheduling cycle they belong to

# The steps of a pod, in order; `decided` may repeat.
SEEN: Final = "seen"
QUEUED: Final = "queued"
DECIDED: Final = "decided"
WRITTEN: Final = "written"
BOUND: Final = "bound"


class Tracer(Protocol):
    """Never raises, never blocks."""

    @property
    def is_on(self) -> bool:
        """Whether traces are sent; if not, callers may skip reporting."""
        ...

    def step(self, uid: str, step: str, **facts: Fact) -> None:
        """A pod reached the next step, now."""
        ...

    def gone(self, uid: str) -> None:
        """The pod no longer needs a node; its trace ends unfinished, unless it was bound."""
        ...


class NoTracer:
    """Discards everything."""

    is_on = False

    def step(self, uid: str, step: str, **facts: Fact) -> None:
        """Does nothing."""

    def gone(self, uid: str) -> None:
        """Does nothing."""

"""What happened to one pod and when, as loops tell it; and which turn of deciding the present code belongs to.

`CYCLE` follows the flow of control by itself: what is started within a turn (writes, releases) belongs to it, so
that logs, events and traces of one decision carry one id without handing it through every call.
"""

from __future__ import annotations

import contextvars
from typing import Final, Protocol

Fact = str | int | float | bool

CYCLE: Final[contextvars.ContextVar[str]] = contextvars.ContextVar("dovetail_cycle", default="")
CYCLE_ANNOTATION: Final = "dovetail.dev/cycle"  # of events: the turn of deciding they tell about

# The steps of a pod's way, in order; `decided` may come often.
SEEN: Final = "seen"
QUEUED: Final = "queued"
DECIDED: Final = "decided"
WRITTEN: Final = "written"
BOUND: Final = "bound"


class Tracer(Protocol):
    """Never fails, never blocks."""

    @property
    def is_on(self) -> bool:
        """Whether anybody listens; where not, nothing needs to be told."""
        ...

    def step(self, uid: str, step: str, **facts: Fact) -> None:
        """A pod came to the next step of its way, now."""
        ...

    def gone(self, uid: str) -> None:
        """The pod needs no node any more; its trace ends unfinished, unless it was bound."""
        ...


class NoTracer:
    """Nobody listens."""

    is_on = False

    def step(self, uid: str, step: str, **facts: Fact) -> None:
        """Nothing."""

    def gone(self, uid: str) -> None:
        """Nothing."""

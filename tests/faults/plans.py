"""Which faults strike which requests, how often. A plan is data; the chance comes from a seeded generator.

Rates are per request, or per line for the faults of a watch. Bursts and stalls follow from one draw.
"""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from tests.faults import request_classes

BEFORE: Final = "reset before"  # the server never saw the request
AFTER: Final = "answer lost"  # the server carried the request out, and its answer is lost
THROTTLED: Final = "429"
ERRORS: Final = ("500", "503", "504")
CONFLICT: Final = "409"  # made up
TOUCHED: Final = "touched first"  # a real conflict: the proxy changes the object just before
SLOW: Final = "slow"
TRUNCATED: Final = "truncated"
CUT: Final = "watch cut in a line"
GONE: Final = "watch 410"
GONE_EVENT: Final = "watch 410 as an event"
TWICE: Final = "event twice"
LATE: Final = "event late"  # after one of another object
SWAPPED: Final = "events swapped"  # two of the same object
STALLED: Final = "watch stalled"
BLACKHOLE: Final = "blackhole"  # holds all requests for a while; the campaign starts it

ANY_REQUEST: Final = (BEFORE, AFTER, THROTTLED, *ERRORS, SLOW, TRUNCATED)
CONFLICTS: Final = (CONFLICT, TOUCHED)
ON_OPENING: Final = (BEFORE, THROTTLED, *ERRORS, GONE, GONE_EVENT)
ON_LINES: Final = (CUT, TWICE, LATE, SWAPPED, STALLED)
ALL: Final = tuple(dict.fromkeys((*ANY_REQUEST, *CONFLICTS, *ON_OPENING, *ON_LINES, BLACKHOLE)))

Rates = dict[str, dict[str, float]]  # class of request -> fault -> chance


class Plan(NamedTuple):
    """What may go wrong, and for how long the lengthy faults last."""

    requests: Rates
    lines: dict[str, float]  # faults of single watch lines
    slow_seconds: float = 0.4
    stall_lines: int = 3  # how many events wait behind one that stalls its watch
    stall_seconds: float = 1.5  # at most
    hold_seconds: float = 0.5  # how long an event waits for one to overtake it
    burst: int = 3  # failures in a row after a 5xx


QUIET: Final = Plan({}, {})


def stormy(rate: float = 0.15, *, openings: float = 0.4, lines: float = 0.05) -> Plan:
    """Every fault on every request it can strike: in total `rate` per request, others for watches, which are few."""
    requests: Rates = {}
    for what in request_classes.CLASSES:
        kinds = ON_OPENING if what == "watch" else ANY_REQUEST
        if what in ("claim", "claim-status", "lease"):
            kinds = (*kinds, *CONFLICTS)
        elif what in ("pod-status", "binding"):
            kinds = (*kinds, CONFLICT)
        total = openings if what == "watch" else rate
        requests[what] = {kind: total / len(kinds) for kind in kinds}
    return Plan(requests, {kind: lines / len(ON_LINES) for kind in ON_LINES})


def drawn(rates: dict[str, float], chance: random.Random) -> str:
    """The fault that strikes, "" for none. One draw, whatever the rates."""
    left = chance.random()
    for kind, rate in rates.items():
        left -= rate
        if left < 0:
            return kind
    return ""

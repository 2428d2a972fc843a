"""Decides what use in the past is still worth: it fades by half in every half-life, and what is held adds to it.

Use is in unit-seconds: a GPU held for an hour is 3,600 at its end. Shares are not lowered by use as it is but by use as
it was counted last, which is when somebody's had moved by a twentieth of what is held: else a GPU that cannot be
divided would change hands with every look at the clock. Given what was written down. Never keeps it.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from typing import Final

from dovetail.model import queues
from dovetail.schedule import order
from dovetail.schedule.queues import amounts

BAND: Final = 0.05  # of what is held for ever

Uses = Mapping[str, Mapping[str, float]]  # by queue and resource
Parts = dict[str, dict[str, float]]


def decayed(old: float, held: float, seconds: float, half_life: float) -> float:
    """Use after some seconds in which so much was held: what was before fades, and so does what comes on top.

    Exact for any length of time: two steps of an hour give what one of two hours gives.
    """
    if seconds <= 0:
        return old
    kept = math.exp2(-seconds / half_life)
    return old * kept + held * lasting(half_life) * (1 - kept)


def lasting(half_life: float) -> float:
    """What one unit that is held for ever is worth."""
    return half_life / math.log(2)


def read(status: queues.QueueStatus) -> tuple[dict[str, float], datetime.datetime | None]:
    """Use as a queue's status tells it, by resource in its one spelling, and as of when; nothing if nobody can say."""
    since = order.instant(status.usage_time or None)
    if since is order.NEVER or since.tzinfo is None:
        return {}, None
    return _numbers(status.usage), since


def counted(status: queues.QueueStatus) -> dict[str, float]:
    """Use as shares count it."""
    return _numbers(status.usage_counted)


def is_out_of_date(before: Uses, now: Uses, held: Uses, *, half_life: float) -> bool:
    """Whether use has to be counted anew: by queue, as it was counted, as it is, and what is held."""
    most: dict[str, float] = {}
    for listed, worth in ((now, 1.0), (held, lasting(half_life))):
        for one in listed.values():
            for name, value in one.items():
                most[name] = max(most.get(name, 0.0), value * worth)
    return any(
        abs(value - before.get(queue, {}).get(name, 0.0)) > BAND * most[name]
        for queue, one in now.items()
        for name, value in one.items()
    )


def parts(known: Mapping[str, queues.Queue], capacity: Mapping[str, int], *, half_life: float) -> Parts:
    """Past use of every queue as a part of the cluster: 1 for one that always held all of it."""
    return {
        name: {
            resource: value / (there * lasting(half_life))
            for resource, value in counted(queue.status).items()
            if (there := capacity.get(resource, 0) / amounts.scale(resource)) > 0
        }
        for name, queue in known.items()
        if queue.status.usage_counted
    }


def _numbers(listed: Mapping[str, str]) -> dict[str, float]:
    return {amounts.named(name): value for name, text in listed.items() if (value := _number(text)) is not None}


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None

"""Decides what use in the past is still worth: it fades by half in every half-life, and what is held adds to it.

Use is in unit-seconds: a GPU held for an hour is 3,600 at its end. Given what was written down and when; answers what
it is worth now, and as a part of the cluster, which is what fair shares are lowered by. Never keeps it.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping

from dovetail.model import queues
from dovetail.schedule import order
from dovetail.schedule.queues import amounts

Parts = dict[str, dict[str, float]]  # by queue and resource


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
    found: dict[str, float] = {}
    for name, text in status.usage.items():
        value = _number(text)
        if value is not None:
            found[amounts.named(name)] = value
    return found, since


def parts(
    known: Mapping[str, queues.Queue],
    capacity: Mapping[str, int],
    *,
    now: datetime.datetime | None,
    half_life: float,
) -> Parts:
    """Past use of every queue as a part of the cluster: 1 for one that always held all of it."""
    found: Parts = {}
    for name, queue in known.items():
        used, since = read(queue.status)
        if not used or since is None or now is None or half_life <= 0:
            continue
        age = (now - since).total_seconds()
        found[name] = {
            resource: decayed(value, 0, age, half_life) / (there * lasting(half_life))
            for resource, value in used.items()
            if (there := capacity.get(resource, 0) / amounts.scale(resource)) > 0
        }
    return found


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None

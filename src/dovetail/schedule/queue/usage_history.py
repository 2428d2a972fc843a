"""Decides what past usage still counts: it halves with every half-life, and what is held adds to it.

Usage is in unit-seconds: a GPU held for an hour is 3,600 at its end. Fair shares are lowered not by the current
usage but by the usage counted last, which is when that of any queue had moved by a twentieth of what is held:
otherwise a GPU that cannot be divided would change hands with every decision. Given the recorded usage. Never
stores it.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from typing import Final

from dovetail.kubetypes.custom import queues
from dovetail.schedule import pod_order
from dovetail.schedule.queue import amounts

BAND: Final = 0.05  # of the usage that holding the same forever converges to

Uses = Mapping[str, Mapping[str, float]]  # by queue and resource
Parts = dict[str, dict[str, float]]


def decayed(old: float, held: float, seconds: float, half_life: float) -> float:
    """Usage after some seconds in which so much was held: both what was before and what is added decay.

    Exact for any length of time: two steps of an hour give what one of two hours gives.
    """
    if seconds <= 0:
        return old
    decay = math.exp2(-seconds / half_life)
    return old * decay + held * steady_usage(half_life) * (1 - decay)


def steady_usage(half_life: float) -> float:
    """The usage that one unit, held forever, converges to."""
    return half_life / math.log(2)


def read(status: queues.QueueStatus) -> tuple[dict[str, float], datetime.datetime | None]:
    """Usage in a queue's status, by resource in its canonical spelling, and as of when; nothing if unreadable."""
    since = pod_order.instant(status.usage_time or None)
    if since is pod_order.NEVER or since.tzinfo is None:
        return {}, None
    return _numbers(status.usage), since


def counted(status: queues.QueueStatus) -> dict[str, float]:
    """Usage as fair shares count it."""
    return _numbers(status.usage_counted)


def is_out_of_date(before: Uses, now: Uses, held: Uses, *, half_life: float) -> bool:
    """Whether usage has to be counted again, given by queue as it was counted, as it is, and what is held."""
    most: dict[str, float] = {}  # by resource
    for by_queue, factor in ((now, 1.0), (held, steady_usage(half_life))):
        for by_resource in by_queue.values():
            for name, value in by_resource.items():
                most[name] = max(most.get(name, 0.0), value * factor)

    for queue, by_resource in now.items():
        counted_before = before.get(queue, {})
        for name, value in by_resource.items():
            if abs(value - counted_before.get(name, 0.0)) > BAND * most[name]:
                return True
    return False


def parts(
    queue_by_name: Mapping[str, queues.Queue], capacity: Mapping[str, int], *, half_life: float
) -> Parts:
    """Past usage of every queue as a part of the cluster: 1 for a queue that always held all of it."""
    usage: Parts = {}
    for queue_name, queue in queue_by_name.items():
        if not queue.status.usage_counted:
            continue
        by_resource = usage[queue_name] = {}
        for name, value in counted(queue.status).items():
            units = capacity.get(name, 0) / amounts.scale(name)
            if units > 0:
                by_resource[name] = value / (units * steady_usage(half_life))
    return usage


def _numbers(listed: Mapping[str, str]) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for name, text in listed.items():
        value = _number(text)
        if value is not None:
            numbers[amounts.canonical_name(name)] = value
    return numbers


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None

"""Accumulates the past use of queues: charged amounts over time, halved after each half-life.

Given the numbers of every decision; passes them on with past use filled in, so that it is stored in Queue.status and
survives a restart. The value that lowers shares (`usageCounted`) follows in steps, so that shares stay stable in
between. Without a new decision the last charge continues. Never decides, never writes itself.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from dovetail import timestamps
from dovetail.kubetypes.custom import queues
from dovetail.ports import clock as clocks
from dovetail.quantity import quantity
from dovetail.schedule.queue import amounts, usage_history

EVERY_SECONDS: Final = 60.0  # without a decision
DIGITS: Final = 9  # significant digits of stored values

Numbers = Mapping[str, queues.QueueStatus]


class _Use(NamedTuple):
    used: dict[str, float]  # unit-seconds by resource
    charged: dict[str, float]  # units
    at: datetime.datetime


class QueueUsage:
    """The use of every queue at the last report."""

    def __init__(
        self,
        queues_: Mapping[str, queues.Queue],
        publish: Callable[[Numbers], None],
        *,
        clock: clocks.Clock,
        half_life_seconds: float,
    ) -> None:
        self._queues = queues_
        self._publish = publish
        self._clock = clock
        self._half_life = half_life_seconds
        self._uses: dict[str, _Use] = {}
        self._counted: dict[str, dict[str, float]] = {}
        self._last: Numbers = {}

    def publish(self, numbers: Numbers) -> None:
        """Takes the numbers of a decision and passes them on with past use."""
        now = self._clock.now()
        self._last = numbers
        for name in [name for name in self._uses if name not in numbers]:
            del self._uses[name]
            self._counted.pop(name, None)
        for name, status in numbers.items():
            self._add_up(name, status, now)

        used = {name: use.used for name, use in self._uses.items()}
        charged = {name: use.charged for name, use in self._uses.items()}
        if usage_history.is_out_of_date(self._counted, used, charged, half_life=self._half_life):
            self._counted = {name: dict(amounts_) for name, amounts_ in used.items()}

        self._publish({name: self._with_use(name, numbers[name], now) for name in numbers})

    async def run(self) -> None:
        """Reports at intervals, also without decisions, until cancelled."""
        while True:
            await self._clock.sleep(EVERY_SECONDS)
            if self._last:
                self.publish(self._last)

    def _add_up(self, name: str, status: queues.QueueStatus, now: datetime.datetime) -> None:
        before = self._uses.get(name) or self._remembered(name, now)
        seconds = (now - before.at).total_seconds()
        if seconds < 0:  # the clock was set back: what was counted stays
            seconds = 0.0

        charged = {
            amounts.canonical_name(resource): _units(share.charged)
            for resource, share in status.resources.items()
        }
        used = {
            resource: usage_history.decayed(
                before.used.get(resource, 0.0),
                before.charged.get(resource, 0.0),
                seconds,
                self._half_life,
            )
            for resource in before.used.keys() | charged.keys()
        }
        self._uses[name] = _Use(used, charged, now)

    def _with_use(
        self, name: str, status: queues.QueueStatus, now: datetime.datetime
    ) -> queues.QueueStatus:
        spelling = {amounts.canonical_name(resource): resource for resource in status.resources}
        usage = _texts(self._uses[name].used, spelling)
        counted = _texts(self._counted.get(name, {}), spelling)
        when = timestamps.to_text(now) if usage else ""
        return msgspec.structs.replace(status, usage=usage, usage_time=when, usage_counted=counted)

    def _remembered(self, name: str, now: datetime.datetime) -> _Use:
        """The use stored in the queue's status. What was charged since then is unknown."""
        queue = self._queues.get(name)
        if queue is None:
            return _Use({}, {}, now)

        if counted := usage_history.counted(queue.status):
            self._counted[name] = counted
        used, since = usage_history.read(queue.status)
        if since is None:
            return _Use({}, {}, now)
        return _Use(used, {}, min(since, now))


def _texts(values: Mapping[str, float], spelling: Mapping[str, str]) -> dict[str, str]:
    return {
        spelling.get(name, name): f"{value:.{DIGITS}g}"
        for name, value in sorted(values.items())
        if value
    }


def _units(text: str) -> float:
    return quantity.parse(text).nanos / 10**9 if text else 0.0

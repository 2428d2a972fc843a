"""Keeps what queues used in the past: what they were charged is added up over time and fades by half in a half-life.

Given the numbers of every decision; passes them on with past use filled in, so that it stands in Queue.status and is
there after a restart. What shares are lowered by (`usageCounted`) follows in steps, so that they keep still in between.
While nobody reports, use goes on at what was charged last. Never decides, never writes itself.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from dovetail.model import quantity, queues
from dovetail.ports import clock as clocks
from dovetail.schedule.queues import amounts, history

EVERY_SECONDS: Final = 60.0  # without a decision
DIGITS: Final = 9  # significant ones, of what is written down

Numbers = Mapping[str, queues.QueueStatus]


class _Known(NamedTuple):
    used: dict[str, float]  # unit-seconds by resource
    held: dict[str, float]  # units
    at: datetime.datetime


class Usage:
    """Use of every queue as of the last report."""

    def __init__(
        self,
        known: Mapping[str, queues.Queue],
        publish: Callable[[Numbers], None],
        *,
        clock: clocks.Clock,
        half_life_seconds: float,
    ) -> None:
        self._queues = known
        self._publish = publish
        self._clock = clock
        self._half_life = half_life_seconds
        self._known: dict[str, _Known] = {}
        self._counted: dict[str, dict[str, float]] = {}
        self._last: Numbers = {}

    def publish(self, numbers: Numbers) -> None:
        """The numbers of a decision just made; passed on with past use."""
        now = self._clock.now()
        self._last = numbers
        for name in [name for name in self._known if name not in numbers]:
            del self._known[name]
            self._counted.pop(name, None)
        for name, status in numbers.items():
            self._add_up(name, status, now)
        used = {name: one.used for name, one in self._known.items()}
        held = {name: one.held for name, one in self._known.items()}
        if history.is_out_of_date(self._counted, used, held, half_life=self._half_life):
            self._counted = {name: dict(one) for name, one in used.items()}
        self._publish({name: self._told(name, status, now) for name, status in numbers.items()})

    async def run(self) -> None:
        """Goes on reporting where nobody decides, until cancelled."""
        while True:
            await self._clock.sleep(EVERY_SECONDS)
            if self._last:
                self.publish(self._last)

    def _add_up(self, name: str, status: queues.QueueStatus, now: datetime.datetime) -> None:
        before = self._known.get(name) or self._remembered(name, now)
        seconds = (now - before.at).total_seconds()
        if seconds < 0:  # the clock was set back: what was counted stays
            seconds = 0.0
        held = {amounts.named(one): _units(share.charged) for one, share in status.resources.items()}
        used = {
            resource: history.decayed(
                before.used.get(resource, 0.0), before.held.get(resource, 0.0), seconds, self._half_life
            )
            for resource in before.used.keys() | held.keys()
        }
        self._known[name] = _Known(used, held, now)

    def _told(self, name: str, status: queues.QueueStatus, now: datetime.datetime) -> queues.QueueStatus:
        spelled = {amounts.named(one): one for one in status.resources}
        told = _texts(self._known[name].used, spelled)
        counted = _texts(self._counted.get(name, {}), spelled)
        when = _stamp(now) if told else ""
        return msgspec.structs.replace(status, usage=told, usage_time=when, usage_counted=counted)

    def _remembered(self, name: str, now: datetime.datetime) -> _Known:
        """What the queue's status says from before; in between nobody knows what was held."""
        queue = self._queues.get(name)
        if queue is not None and (counted := history.counted(queue.status)):
            self._counted[name] = counted
        used, since = history.read(queue.status) if queue is not None else ({}, None)
        if since is None or since > now:
            return _Known(used if since is not None else {}, {}, now)
        return _Known(used, {}, since)


def _texts(values: Mapping[str, float], spelled: Mapping[str, str]) -> dict[str, str]:
    return {spelled.get(name, name): f"{value:.{DIGITS}g}" for name, value in sorted(values.items()) if value}


def _units(text: str) -> float:
    return quantity.parse(text).nanos / 10**9 if text else 0.0


def _stamp(now: datetime.datetime) -> str:
    return now.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

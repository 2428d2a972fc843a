"""Watches of a recorder that notice when they are interrupted: from when to when the cluster was not watched.

Given the events of watches. A watch that is back within moments missed nothing worth a gap; what an interrupted one
missed has arrived shortly after it is back. Never records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from dovetail.history import history_recorder
from dovetail.kubetypes import registry
from dovetail.live.informer import informer
from dovetail.model.accounting.records import Millis

LOG = logging.getLogger("dovetail.history")
OUTAGE: Final = 5_000  # milliseconds; a shorter interruption is no gap
SETTLE_SECONDS: Final = 1.0  # after an outage: what was missed arrives


class Outages:
    """Since when which watch is interrupted, and which times were not watched."""

    def __init__(self, now: Callable[[], Millis]) -> None:
        self._now = now
        self._broken: set[str] = set()
        self._finished: list[history_recorder.Times] = []
        self._timer: asyncio.TimerHandle | None = None
        self.since: Millis | None = None  # set until everything that was missed has arrived

    def began(self, kind: str) -> None:
        """A watch is interrupted."""
        self._broken.add(kind)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.since is None:
            self.since = self._now()

    def ended(self, kind: str) -> None:
        """It is back; what was missed arrives within moments."""
        self._broken.discard(kind)
        if not self._broken and self.since is not None and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(SETTLE_SECONDS, self._finish)

    def _finish(self) -> None:
        self._timer = None
        if self.since is not None:
            outage = history_recorder.Times(self.since, self._now())
            if outage.now - outage.known_until >= OUTAGE:
                self._finished.append(outage)
        self.since = None

    def take(self) -> list[history_recorder.Times]:
        """The outages that are over and not yet recorded."""
        finished, self._finished = self._finished, []
        return finished


class Sink:
    """Passes the events of one watch on to the informer, and its interruptions to the outages."""

    def __init__(self, informer_: informer.Informer, kind: registry.Kind, outages: Outages) -> None:
        self._feed = informer.Feed(informer_, kind, trouble=log_trouble)
        self._name = kind.name
        self._outages = outages

    def replaced(self, objects: list[Any], resource_version: str, /) -> None:
        self._feed.replaced(objects, resource_version)
        self._outages.ended(self._name)

    def changed(self, item: Any, /) -> None:
        self._feed.changed(item)

    def deleted(self, item: Any, /) -> None:
        self._feed.deleted(item)

    def broken(self, reason: str, /) -> None:
        self._outages.began(self._name)
        self._feed.broken(reason)

    def unreadable(self, name: str, problem: str, /) -> None:
        self._feed.unreadable(name, problem)


def log_trouble(kind: str, reason: str) -> None:
    """For watches: what interrupts them is worth a line."""
    LOG.info("watch.interrupted", extra={"kind": kind, "why": reason})

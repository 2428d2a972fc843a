"""The starts that the scheduler promised, as metrics: when each gang shall start, and how often a promise moved.

Given the Intents in which the scheduler stores its promises. A promise moves when its start becomes later, or is lost;
one that was kept, or became earlier, did not move. Moves before the exporter began are not counted. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from dovetail.kubetypes.custom import intents
from dovetail.live.intents import current_promises
from dovetail.model import plan
from dovetail.model.exposition import Family, Series

FAMILIES: Final = (
    Family(
        "dovetail_promised_start_timestamp_seconds",
        "gauge",
        "The start that a waiting gang was promised, in seconds since 1970.",
    ),
    Family(
        "dovetail_promises_moved_total",
        "counter",
        "Promised starts that became later or were lost, since the exporter began.",
    ),
)


class PromiseSeries:
    """Promises by gang."""

    def __init__(self) -> None:
        self._promises = current_promises.CurrentPromises()
        self._last: dict[plan.GangRef, plan.Promise] = {}
        self._moved: Counter[str] = Counter()
        self._is_listed = False

    def changed(self, intent: intents.Intent) -> None:
        """An Intent as it is now."""
        self._look_at(self._promises.put(intent))

    def deleted(self, intent: intents.Intent) -> None:
        """An Intent that is gone."""
        self._look_at(self._promises.put(intent, is_there=False))

    def replaced(self, listed: Iterable[intents.Intent]) -> None:
        """These are all Intents."""
        for gang in self._promises.replace(listed):
            self._look_at(gang)
        self._is_listed = True

    def series(self) -> Iterator[Series]:
        """All of them. Namespaces with promises count from zero."""
        for gang, promise in sorted(self._last.items()):
            if promise.start is not None:
                labels = {"namespace": gang.namespace, "gang": gang.name}
                start = promise.start.timestamp()
                yield Series("dovetail_promised_start_timestamp_seconds", labels, start)
        for namespace, count in sorted(self._moved.items()):
            yield Series("dovetail_promises_moved_total", {"namespace": namespace}, count)

    def _look_at(self, gang: plan.GangRef | None) -> None:
        if gang is None:
            return
        before = self._last.pop(gang, None)
        promise = self._promises.promise(gang)
        if promise is None:
            return
        self._last[gang] = promise
        self._moved[gang.namespace] += self._has_moved(before, promise)

    def _has_moved(self, before: plan.Promise | None, promise: plan.Promise) -> bool:
        if before is None:
            return self._is_listed and promise.moved_from is not None
        if promise.start is None or before.start is None:
            return before.start is not None
        return promise.start > before.start

"""Says as of when a dump shows its cluster: the newest time that its objects record.

Given the objects; reads the times at which servers, kubelets and controllers wrote something. Times that lie ahead by
their nature, such as that of a deletion, do not count. Never reads a clock.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from typing import Final

from dovetail import timestamps
from dovetail.kubetypes import codec, registry

FIRST_YEAR: Final = 2014  # Kubernetes' first; anything before is a clock that was not set
LAST_YEAR: Final = 2999  # leaves room to add durations

# Fields in which a component writes the current time.
_WRITTEN: Final = re.compile(
    rb'"(?:creationTimestamp|lastTransitionTime|lastHeartbeatTime|lastProbeTime|lastTimestamp'
    rb"|deprecatedLastTimestamp|lastObservedTime|eventTime|renewTime|acquireTime|startTime|startedAt"
    rb'|finishedAt|completionTime|lastScheduleTime|lastUpdateTime|allocationTimestamp|timeAdded)"'
    rb'\s*:\s*"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,18}(?:Z|[+-][0-9:]{5}))"'
)
# Large, and written once: the time of their creation is all they record.
_LARGE: Final = frozenset({registry.SLICE.name, registry.DEVICE_CLASS.name})


def newest(objects: Iterable[codec.Stored]) -> datetime.datetime | None:
    """The newest time that the objects record; None where they record none."""
    texts: set[str] = set()
    for stored in objects:
        if stored.struct.kind in _LARGE:
            texts.add(stored.struct.metadata.creation_timestamp or "")
        else:
            texts.update(each.decode() for each in _WRITTEN.findall(stored.document))
    times = [_time_of(text) for text in texts]
    return max((each for each in times if each is not None), default=None)


def _time_of(text: str) -> datetime.datetime | None:
    time = timestamps.parse_or_none(text)
    if time is None or not FIRST_YEAR <= time.year <= LAST_YEAR:
        return None
    return time.astimezone(datetime.UTC)

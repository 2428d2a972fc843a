"""What a watch has already reported: the version of each object, deletions, and where a lost watch resumes.

Given the metadata of events, possibly repeated or out of order; returns whether an event is new. Versions grow across
all objects of a kind, so an event not newer than the last one of its name is old, whichever object had the name.
Versions that are not numbers cannot be compared: such events count as new.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from dovetail.kubetypes import meta

TOMBSTONES: Final = 10_000
# A lost watch resumes this many events before its last one. Repeated events are dropped, and an event that was
# overtaken by a later one when the connection broke is not lost.
REPLAYED_EVENTS: Final = 100
MOST_DIGITS: Final = 20  # of an unsigned 64-bit number; Python refuses to read very long ones
_BUILD_SLICE: Final = 5_000  # objects noted between two yields to the loop

Key = tuple[str, str]


class LastEvent(NamedTuple):
    """The last event of a name."""

    version: int
    uid: str


class History:
    """Starts at a list's version: no event up to that is new."""

    def __init__(self, resource_version: str) -> None:
        self.resume_at = resource_version
        self._floor = number_of(resource_version) or 0
        self._known: dict[Key, LastEvent] = {}
        self._gone: OrderedDict[Key, int] = OrderedDict()
        self._recent: deque[str] = deque()

    def note(self, about: meta.ObjectMeta) -> None:
        """An object of the list."""
        self._known[key_of(about)] = LastEvent(number_of(about.resource_version) or 0, about.uid)

    def uid_of(self, about: meta.ObjectMeta) -> str:
        """The uid last seen under this name, or empty."""
        version = self._known.get(key_of(about))
        return version.uid if version is not None else ""

    def takes_change(self, about: meta.ObjectMeta) -> bool:
        """Whether a change is new; records it if so."""
        key, version = key_of(about), number_of(about.resource_version)
        if version is not None:
            last_version = self._known.get(key)
            if version <= self._floor or (
                last_version is not None and version <= last_version.version
            ):
                return False
            if version <= self._gone.get(key, 0):
                return False
        self._known[key] = LastEvent(version or 0, about.uid)
        self._pass(about.resource_version)
        return True

    def takes_deletion(self, about: meta.ObjectMeta) -> bool:
        """Whether a deletion is new; records it if so."""
        key, version = key_of(about), number_of(about.resource_version)
        if version is not None:
            last_version = self._known.get(key)
            if version <= self._floor or (
                last_version is not None and version < last_version.version
            ):
                return False
            if version <= self._gone.get(key, 0):
                return False
        self._known.pop(key, None)
        self._bury(key, version or 0)
        self._pass(about.resource_version)
        return True

    def takes_bookmark(self, resource_version: str) -> bool:
        """Whether it fits: if a server's versions went back (a restored backup), everything must be listed again."""
        version, before = number_of(resource_version), number_of(self.resume_at)
        if version is not None and before is not None and version < before:
            return False
        self.resume_at = resource_version
        self._recent.clear()
        return True

    def _bury(self, key: Key, version: int) -> None:
        self._gone[key] = version
        self._gone.move_to_end(key)
        if len(self._gone) > TOMBSTONES:
            self._gone.popitem(last=False)

    def _pass(self, resource_version: str) -> None:
        self._recent.append(resource_version)
        if len(self._recent) > REPLAYED_EVENTS:
            self.resume_at = self._recent.popleft()


async def after_list(listed: Sequence[Any], resource_version: str) -> History:
    """The history that starts with these objects. Yields to the event loop in between."""
    history = History(resource_version)
    for start in range(0, len(listed), _BUILD_SLICE):
        for item in listed[start : start + _BUILD_SLICE]:
            history.note(item.metadata)
        await asyncio.sleep(0)
    return history


def key_of(about: meta.ObjectMeta) -> Key:
    """Namespace and name."""
    return (about.namespace, about.name)


def number_of(resource_version: str) -> int | None:
    """The version as a number; None if it is not one."""
    is_number = (
        resource_version.isascii()
        and resource_version.isdigit()
        and len(resource_version) <= MOST_DIGITS
    )
    return int(resource_version) if is_number else None

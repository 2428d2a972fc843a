"""Who belongs together: the gangs of the cluster, their members, and what is known about each.

Fed pod by pod and gang by gang; where nobody says anything about a gang its oldest member speaks for it. Never counts
what is free, never decides.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dovetail.model import gangs, pods
from dovetail.model.gangs import Gang, GangKey


class Gangs:
    """Gangs by key, and their pods by id."""

    def __init__(self) -> None:
        self._told: dict[GangKey, Gang] = {}
        self._members: dict[GangKey, dict[str, str]] = {}  # pod id -> group
        self._of: dict[str, gangs.Membership] = {}
        self.tied = 0  # gangs of more than one pod

    def of(self, id_: str) -> gangs.Membership | None:
        """The gang of a pod, and its group there."""
        return self._of.get(id_)

    def told(self, key: GangKey) -> Gang | None:
        """What somebody told about a gang."""
        return self._told.get(key)

    def members(self, key: GangKey) -> Mapping[str, str]:
        """The pods of a gang by id, each with its group."""
        return self._members.get(key, {})

    def keys(self) -> Collection[GangKey]:
        """Gangs that have pods."""
        return self._members.keys()

    def put(self, key: GangKey, gang: Gang | None) -> None:
        """Something is known about a gang, or no longer."""
        if gang is None:
            self._told.pop(key, None)
        else:
            self._told[key] = gang

    def join(self, id_: str, pod: pods.Pod | None) -> None:
        """A pod is there, or gone."""
        after = gangs.membership(pod) if pod is not None else None
        before = self._of.get(id_)
        if before == after:
            return
        if before is not None:
            del self._of[id_]
            left = self._members[before.gang]
            del left[id_]
            self.tied -= len(left) == 1
            if not left:
                del self._members[before.gang]
        if after is not None:
            self._of[id_] = after
            joined = self._members.setdefault(after.gang, {})
            joined[id_] = after.group
            self.tied += len(joined) == 2

    @property
    def is_trivial(self) -> bool:
        """Whether every gang is a pod alone that nobody told anything about."""
        return not self.tied and not self._told

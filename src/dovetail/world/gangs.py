"""Who belongs together: the gangs of the cluster, their members, and what is known about each.

Fed pod by pod and gang by gang. A pod says where it belongs; an owner that is known may say that its pods start singly,
or that they do not. Where nobody says anything about a gang its oldest member speaks for it. Never counts what is free,
never decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from dovetail.model import gangs, pods, wishes
from dovetail.model.gangs import Gang, GangKey, Membership
from dovetail.world.journal import Journal


class Gangs:
    """Gangs by key, and their pods by id."""

    def __init__(self) -> None:
        self._told: dict[GangKey, Gang] = {}
        self._members: dict[GangKey, dict[str, str]] = {}  # pod id -> group
        self._of: dict[str, Membership] = {}
        self._pods: dict[str, pods.Pod] = {}
        self._owners: dict[str, GangKey] = {}  # by pod, the gang that its owner may ask for
        self._owned: dict[GangKey, dict[str, None]] = {}  # and by that gang, the pods; all gangs of one family together
        self._stale: dict[GangKey, str] = {}  # since when gangs are below their minimum, as somebody noted
        self._known: dict[GangKey, Gang] = {}  # what was answered, until something changes
        self.log = Journal[tuple[GangKey, bool]]()  # gangs of which something changed, and whether their last pod left
        self._tying = 0  # gangs somebody told about whose pods belong together
        self._asking: set[str] = set()  # pods that state how long they take, or which level they have to be in
        self._together = 0  # pods that are part of something, be they the only ones of it so far
        self.tied = 0  # gangs of more than one pod

    def of(self, id_: str) -> Membership | None:
        """The gang of a pod, and its group there."""
        return self._of.get(id_)

    def told(self, key: GangKey) -> Gang | None:
        """What somebody told about a gang, or about all of its family."""
        found = self._told.get(key)
        if found is None and (family := gangs.family_of(key)) is not None:
            found = self._told.get(family)
        return found

    def native_of(self, pod: pods.Pod) -> Gang | None:
        """What is told about the PodGroup of a pod, be it a gang of its own or part of a larger one."""
        native = pod.spec.scheduling_group
        if native is None or not native.pod_group_name:
            return None
        return self._told.get((pod.metadata.namespace, f"{gangs.POD_GROUP}/{native.pod_group_name}"))

    def known(self, key: GangKey) -> Gang:
        """All that is known about a gang that has pods: what was told, and where that is silent what its pods say."""
        found = self._known.get(key)
        if found is None:
            found = self._described(key)
            if (since := self._stale.get(key)) is not None and found.stale_since is None:
                found = msgspec.structs.replace(found, stale_since=since)
            self._known[key] = found
        return found

    def stale_since(self, key: GangKey) -> str | None:
        """Since when a gang is below its minimum, as it was noted."""
        return self._stale.get(key)

    def note_stale(self, key: GangKey, since: str | None) -> None:
        """A gang is below its minimum since then; None: it is not."""
        if self._stale.get(key) == since:
            return
        self._known.pop(key, None)
        self.log.note((key, False))
        if since is None:
            del self._stale[key]
        else:
            self._stale[key] = since

    def members(self, key: GangKey) -> Mapping[str, str]:
        """The pods of a gang by id, each with its group."""
        return self._members.get(key, {})

    def problems(self, id_: str) -> tuple[str, ...]:
        """What a pod and its owner ask for in vain. Cheap, however large the gang is."""
        owner = self._owners.get(id_)
        told = self._told.get(owner) if owner is not None else None
        said = gangs.implied(self._pods[id_]).problems if id_ in self._pods else ()
        return said if told is None else tuple(dict.fromkeys((*told.problems, *said)))

    def is_owner_unseen(self, id_: str) -> bool:
        """Whether a pod counts as alone only because nothing is known of its owner, who could say otherwise."""
        owner, member = self._owners.get(id_), self._of.get(id_)
        return owner is not None and owner not in self._told and member is not None and not gangs.is_shared(member.gang)

    def owned(self, key: GangKey) -> Collection[str]:
        """The pods, by id, to whom it matters what is told about a gang, be they part of it or not."""
        return (self._owned.get(key) or self._members.get(key, {})).keys()

    def keys(self) -> Collection[GangKey]:
        """Gangs that have pods."""
        return self._members.keys()

    def put(self, key: GangKey, gang: Gang | None) -> None:
        """Something is known about a gang, or no longer."""
        before = self._told.pop(key, None)
        self._tying -= before is not None and not before.is_loose
        if gang is not None:
            self._told[key] = gang
            self._tying += not gang.is_loose
        for id_ in [*self._owned.get(key, ())]:
            self._forget(id_)
            pod = self._pods[id_]
            self._seat(id_, self._resolved(pod, gangs.seat_of(pod)))
        self._known.pop(key, None)
        self.log.note((key, False))

    def join(self, id_: str, pod: pods.Pod | None) -> None:
        """A pod is there, or gone."""
        self._forget(id_)
        asks = pod is not None and not wishes.TOGETHER.isdisjoint(pod.metadata.annotations)
        (self._asking.add if asks else self._asking.discard)(id_)
        if pod is None:
            self._pods.pop(id_, None)
            self._own(id_, None)
            self._seat(id_, None)
            return
        self._pods[id_] = pod
        seat = gangs.seat_of(pod)
        self._own(id_, seat.tied.gang if seat.tied is not None else None)
        self._seat(id_, self._resolved(pod, seat))

    @property
    def is_trivial(self) -> bool:
        """Whether every gang is a pod alone, nobody told of another, and no pod asks for a time or a level."""
        return not self._together and not self._tying and not self._asking

    def _resolved(self, pod: pods.Pod, seat: gangs.Seat) -> Membership:
        """Where a pod belongs: its owner decides if it is known, else the pod."""
        if seat.tied is None:
            return gangs.alone(pod)
        told = self.told(seat.tied.gang)
        if told is not None and told.part_of:
            return Membership((seat.tied.gang[0], told.part_of), told.metadata.name)
        is_tied = seat.is_tied if told is None else not told.is_loose
        return seat.tied if is_tied else gangs.alone(pod)

    def _own(self, id_: str, key: GangKey | None) -> None:
        if key is not None:
            key = gangs.family_of(key) or key
        before = self._owners.get(id_)
        if before == key:
            return
        if before is not None:
            del self._owners[id_]
            owned = self._owned[before]
            del owned[id_]
            if not owned:
                del self._owned[before]
        if key is not None:
            self._owners[id_] = key
            self._owned.setdefault(key, {})[id_] = None

    def _seat(self, id_: str, after: Membership | None) -> None:
        before = self._of.get(id_)
        if before == after:
            return
        if before is not None:
            del self._of[id_]
            self._together -= gangs.is_shared(before.gang)
            left = self._members[before.gang]
            del left[id_]
            self.tied -= len(left) == 1
            if not left:
                del self._members[before.gang]
                self.log.note((before.gang, True))
                self._stale.pop(before.gang, None)
        if after is not None:
            self._of[id_] = after
            self._forget(id_)
            self._together += gangs.is_shared(after.gang)
            joined = self._members.setdefault(after.gang, {})
            joined[id_] = after.group
            self.tied += len(joined) == 2

    def _forget(self, id_: str) -> None:
        if (member := self._of.get(id_)) is not None:
            self._known.pop(member.gang, None)
            self.log.note((member.gang, False))

    def _described(self, key: GangKey) -> Gang:
        """Linear in the members."""
        members = self._members[key]
        first = next(iter(members))
        oldest = self._pods[first] if len(members) == 1 else _oldest(self._pods[id_] for id_ in members)
        said = gangs.implied(oldest)
        owner = self._owners.get(first)
        told = self._told.get(key) or (self._told.get(owner) if owner is not None else None)
        if told is None:
            return said if len(members) == 1 else self._voiced(key, said)
        found = gangs.completed(told, said, key)
        if told.is_loose:
            return msgspec.structs.replace(found, is_loose=False, groups=(gangs.LONE,), min_groups=1, topology=None)
        return _seating(found, set(members.values()))

    def _voiced(self, key: GangKey, said: Gang) -> Gang:
        """Where only pods speak: each group by its own oldest pod."""
        by_group: dict[str, list[pods.Pod]] = {}
        for id_, group in self._members[key].items():
            by_group.setdefault(group, []).append(self._pods[id_])
        if len(by_group) == 1 or gangs.source_of(key) == gangs.LWS:
            return _seating(said, set(by_group))
        groups = tuple(gangs.implied(_oldest(by_group[name])).groups[0] for name in sorted(by_group))
        return msgspec.structs.replace(said, groups=groups, min_groups=len(groups))


def _oldest(members: Iterable[pods.Pod]) -> pods.Pod:
    return min(members, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name))


def _seating(gang: Gang, needed: set[str]) -> Gang:
    """The gang with a group for every member: those nobody told of add to it without being needed."""
    missing = needed - {group.name for group in gang.groups if not group.holds_groups}
    if not missing:
        return gang
    more = tuple(gangs.Group(name=name, min=0) for name in sorted(missing))
    return msgspec.structs.replace(gang, groups=(*gang.groups, *more), min_groups=gang.min_groups + len(more))

"""Index of gangs: their members, and the definition of each.

Given pods one by one and declared gangs (from PodGroups, Jobs, LeaderWorkerSets and other owners). A pod names the
gang it belongs to; a declared owner may say that its pods start individually, or that they do not. An undeclared
gang is described by its oldest member. Never counts free capacity, never decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from dovetail.kubetypes.core import pods
from dovetail.model import gangs, workload_annotations
from dovetail.model.gangs import Gang, GangKey, Membership
from dovetail.world.change_log import ChangeLog


class GangIndex:
    """Gangs by key, and their pods by id."""

    def __init__(self) -> None:
        self._declared: dict[GangKey, Gang] = {}
        self._pods: dict[str, pods.Pod] = {}
        self._of: dict[str, Membership] = {}  # pod id -> gang and group
        self._members: dict[GangKey, dict[str, str]] = {}  # gang -> pod id -> group
        # The gang that a pod's owner may declare, and the reverse. The gangs of one family are filed together.
        self._owners: dict[str, GangKey] = {}
        self._owned: dict[GangKey, dict[str, None]] = {}
        self._stale: dict[GangKey, str] = {}  # when gangs fell below their minimum, as recorded
        self._described: dict[GangKey, Gang] = {}  # answers of `known`, until something changes
        # Gangs that changed, and whether their last pod left.
        self.log = ChangeLog[tuple[GangKey, bool]]()
        self.tied = 0  # gangs of more than one pod

        # Counts behind `is_trivial`.
        self._tying = 0  # declared gangs whose pods start together
        self._together = 0  # pods that belong to a gang, even if they are its only member so far
        self._asking: set[str] = set()  # pods that state a run time or a topology level

    # Questions

    def of(self, pod_id: str) -> Membership | None:
        """The gang of a pod, and its group there."""
        return self._of.get(pod_id)

    def declared(self, key: GangKey) -> Gang | None:
        """The declaration of a gang, or of its whole family."""
        declared = self._declared.get(key)
        if declared is None and (family := gangs.family_of(key)) is not None:
            declared = self._declared.get(family)
        return declared

    def native_of(self, pod: pods.Pod) -> Gang | None:
        """The declaration of a pod's PodGroup, whether it is a gang itself or part of a larger one."""
        native = pod.spec.scheduling_group
        if native is None or not native.pod_group_name:
            return None
        name = f"{gangs.POD_GROUP}/{native.pod_group_name}"
        return self._declared.get((pod.metadata.namespace, name))

    def definition(self, key: GangKey) -> Gang:
        """The definition of a gang that has pods: its declaration, completed by what its pods say."""
        gang = self._described.get(key)
        if gang is None:
            gang = self._describe(key)
            since = self._stale.get(key)
            if since is not None and gang.stale_since is None:
                gang = msgspec.structs.replace(gang, stale_since=since)
            self._described[key] = gang
        return gang

    def stale_since(self, key: GangKey) -> str | None:
        """The recorded time at which a gang fell below its minimum."""
        return self._stale.get(key)

    def members(self, key: GangKey) -> Mapping[str, str]:
        """The pods of a gang by id, each with its group."""
        return self._members.get(key, {})

    def problems(self, pod_id: str) -> tuple[str, ...]:
        """Invalid settings of a pod and its owner. Cheap, however large the gang is."""
        pod = self._pods.get(pod_id)
        of_pod = gangs.gang_of_pod(pod).problems if pod is not None else ()
        owner = self._owners.get(pod_id)
        declared = self._declared.get(owner) if owner is not None else None
        if declared is None:
            return of_pod
        return tuple(dict.fromkeys((*declared.problems, *of_pod)))

    def is_owner_unseen(self, pod_id: str) -> bool:
        """Whether a pod counts as a gang of one only because its owner, which could say otherwise, is not known yet."""
        owner = self._owners.get(pod_id)
        membership = self._of.get(pod_id)
        if owner is None or membership is None:
            return False
        return owner not in self._declared and not gangs.is_shared(membership.gang)

    def owned(self, key: GangKey) -> Collection[str]:
        """The pods, by id, that a gang's declaration affects, whether they are members or not."""
        return (self._owned.get(key) or self._members.get(key, {})).keys()

    def keys(self) -> Collection[GangKey]:
        """Gangs that have pods."""
        return self._members.keys()

    @property
    def is_trivial(self) -> bool:
        """Whether every gang is a single pod, none is declared, and no pod states a run time or a topology level."""
        return not self._together and not self._tying and not self._asking

    # Changes

    def put(self, key: GangKey, gang: Gang | None) -> None:
        """Declares a gang, or withdraws its declaration. Its pods may change their membership by it."""
        before = self._declared.pop(key, None)
        self._tying -= before is not None and not before.is_loose
        if gang is not None:
            self._declared[key] = gang
            self._tying += not gang.is_loose
        for pod_id in [*self._owned.get(key, ())]:
            self._invalidate(pod_id)
            pod = self._pods[pod_id]
            self._move(pod_id, self._resolved(pod, gangs.candidate_of(pod)))
        self._described.pop(key, None)
        self.log.note((key, False))

    def put_pod(self, pod_id: str, pod: pods.Pod | None) -> None:
        """Adds or replaces a pod; None removes it."""
        self._invalidate(pod_id)
        asks = pod is not None and not workload_annotations.TOGETHER.isdisjoint(
            pod.metadata.annotations
        )
        (self._asking.add if asks else self._asking.discard)(pod_id)
        if pod is None:
            self._pods.pop(pod_id, None)
            self._set_owner(pod_id, None)
            self._move(pod_id, None)
            return
        self._pods[pod_id] = pod
        seat = gangs.candidate_of(pod)
        self._set_owner(pod_id, seat.membership.gang if seat.membership is not None else None)
        self._move(pod_id, self._resolved(pod, seat))

    def note_stale(self, key: GangKey, since: str | None) -> None:
        """Records since when a gang is below its minimum; None if it is not."""
        if self._stale.get(key) == since:
            return
        self._described.pop(key, None)
        self.log.note((key, False))
        if since is None:
            del self._stale[key]
        else:
            self._stale[key] = since

    def _resolved(self, pod: pods.Pod, seat: gangs.GangCandidate) -> Membership:
        """The membership of a pod: its owner decides if it is declared, else the pod."""
        if seat.membership is None:
            return gangs.lone_membership(pod)
        declared = self.declared(seat.membership.gang)
        if declared is not None and declared.part_of:
            namespace = seat.membership.gang[0]
            return Membership((namespace, declared.part_of), declared.metadata.name)
        is_tied = seat.is_member if declared is None else not declared.is_loose
        return seat.membership if is_tied else gangs.lone_membership(pod)

    def _set_owner(self, pod_id: str, key: GangKey | None) -> None:
        """Files a pod under the gang its owner may declare."""
        if key is not None:
            key = gangs.family_of(key) or key
        before = self._owners.get(pod_id)
        if before == key:
            return
        if before is not None:
            del self._owners[pod_id]
            owned = self._owned[before]
            del owned[pod_id]
            if not owned:
                del self._owned[before]
        if key is not None:
            self._owners[pod_id] = key
            self._owned.setdefault(key, {})[pod_id] = None

    def _move(self, pod_id: str, after: Membership | None) -> None:
        """Moves a pod from its gang to another; None: to none."""
        before = self._of.get(pod_id)
        if before == after:
            return
        if before is not None:
            self._leave(pod_id, before)
        if after is not None:
            self._of[pod_id] = after
            self._invalidate(pod_id)
            self._together += gangs.is_shared(after.gang)
            members = self._members.setdefault(after.gang, {})
            members[pod_id] = after.group
            self.tied += len(members) == 2

    def _leave(self, pod_id: str, before: Membership) -> None:
        del self._of[pod_id]
        self._together -= gangs.is_shared(before.gang)
        members = self._members[before.gang]
        del members[pod_id]
        self.tied -= len(members) == 1
        if not members:
            del self._members[before.gang]
            self.log.note((before.gang, True))
            self._stale.pop(before.gang, None)

    def _invalidate(self, pod_id: str) -> None:
        """Drops the cached definition of a pod's gang and logs the change."""
        if (membership := self._of.get(pod_id)) is not None:
            self._described.pop(membership.gang, None)
            self.log.note((membership.gang, False))

    # Definitions

    def _describe(self, key: GangKey) -> Gang:
        """Works a gang's definition out. Linear in the members."""
        members = self._members[key]
        first = next(iter(members))
        if len(members) == 1:
            oldest = self._pods[first]
        else:
            oldest = _oldest(self._pods[pod_id] for pod_id in members)
        owner = self._owners.get(first)
        declared = self._declared.get(key)
        if declared is None and owner is not None:
            declared = self._declared.get(owner)
        if declared is None and len(members) == 1:
            return gangs.gang_of_pod(oldest, self._of[first])  # by itself, as it was resolved
        implied = gangs.gang_of_pod(oldest)
        if declared is None:
            return self._implied_by_groups(key, implied)

        gang = gangs.completed(declared, implied, key)
        if declared.is_loose:
            # The owner's pods start individually: this one is a gang by itself, whatever the owner's groups are.
            return msgspec.structs.replace(
                gang, is_loose=False, groups=(gangs.LONE_GROUP,), min_groups=1, topology=None
            )
        return _with_groups(gang, set(members.values()))

    def _implied_by_groups(self, key: GangKey, implied: Gang) -> Gang:
        """The definition of an undeclared gang: each group is described by its own oldest pod."""
        by_group: dict[str, list[pods.Pod]] = {}
        for pod_id, group in self._members[key].items():
            by_group.setdefault(group, []).append(self._pods[pod_id])
        if len(by_group) == 1 or gangs.source_of(key) == gangs.LWS:
            return _with_groups(implied, set(by_group))
        groups = tuple(
            gangs.gang_of_pod(_oldest(by_group[name])).groups[0] for name in sorted(by_group)
        )
        return msgspec.structs.replace(implied, groups=groups, min_groups=len(groups))


def _oldest(members: Iterable[pods.Pod]) -> pods.Pod:
    return min(members, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name))


def _with_groups(gang: Gang, needed: set[str]) -> Gang:
    """The gang with a group for every member. Groups that were not declared join it without being required."""
    missing = needed - {group.name for group in gang.groups if not group.holds_groups}
    if not missing:
        return gang
    optional = tuple(gangs.Group(name=name, min=0) for name in sorted(missing))
    return msgspec.structs.replace(
        gang, groups=(*gang.groups, *optional), min_groups=gang.min_groups + len(optional)
    )

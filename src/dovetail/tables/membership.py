"""Which gang and which queue the pods of a cluster belong to, as the scheduler reads it.

Given the objects of a cluster. Builds its World once, and only for tables that need it. Never decides anything.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.core import pods
from dovetail.model.queue import queue_access
from dovetail.world import events
from dovetail.world.owners import facts_of_objects

NONE: Final = ""
# What decides to which gang and queue a pod belongs, besides the pod.
KINDS: Final = (registry.NAMESPACE, registry.QUEUE, *registry.OWNERS, *registry.PARENTS)


class Membership(NamedTuple):
    """A pod's gang and queue; empty if it starts alone or has no queue."""

    gang: str
    queue: str


class Memberships:
    """The memberships of one cluster's pods."""

    def __init__(self, objects: object_set.ObjectSet) -> None:
        self._world = facts_of_objects.world_of(_reduced(objects))
        self._access = queue_access.QueueAccess(self._world.queues, self._world.namespaces)

    def of(self, pod: pods.Pod) -> Membership:
        """The gang and queue of a pod; both empty once it has ended."""
        member = self._world.gangs.of(events.pod_id(pod))
        if member is None:
            return Membership(NONE, NONE)
        gang = self._world.gangs.definition(member.gang)
        queue = self._access.resolve(
            gang.labels, gang.metadata.namespace, named=gang.queue
        ).requested_queue
        name = gang.metadata.name
        if name == _lone(pod):
            name = NONE
        return Membership(name, queue or NONE)

    def work_of(self, pod: pods.Pod) -> str:
        """What is scheduled as one: gang/llama, job/train, pod/notebook. Ended pods go by their owner."""
        if member := self._world.gangs.of(events.pod_id(pod)):
            return self._world.gangs.definition(member.gang).metadata.name
        return _owner(pod) or _lone(pod)

    def workload_of(self, pod: pods.Pod) -> str:
        """What people submitted: as `work_of`, but pods that start one by one go by their owner as well."""
        work = self.work_of(pod)
        return _owner(pod) or work if work == _lone(pod) else work

    def runtime_seconds(self, pod: pods.Pod) -> int | None:
        """How long it runs, as far as its work states it."""
        stated: list[int | None] = [pod.spec.active_deadline_seconds]
        if member := self._world.gangs.of(events.pod_id(pod)):
            gang = self._world.gangs.definition(member.gang)
            stated = [gang.expected_runtime, gang.max_runtime, *stated]
        return next((seconds for seconds in stated if seconds is not None), None)


def _lone(pod: pods.Pod) -> str:
    return f"pod/{pod.metadata.name}"


def _owner(pod: pods.Pod) -> str:
    owners = [each for each in pod.metadata.owner_references if each.controller]
    return f"{owners[0].kind.lower()}/{owners[0].name}" if owners else NONE


def _reduced(objects: object_set.ObjectSet) -> object_set.ObjectSet:
    """What memberships follow from: nodes and devices would make most of the World's cost."""
    names = {kind.unique_name for kind in (registry.POD, *KINDS)}
    by_kind = {kind: table for kind, table in objects.by_kind.items() if kind in names}
    return object_set.ObjectSet(objects.cluster, objects.revision, by_kind)

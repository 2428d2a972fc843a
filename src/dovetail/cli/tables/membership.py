"""Which gang and which queue the pods of a cluster belong to, as the scheduler reads it.

Given the objects of a cluster. Builds its World once, and only for tables that need it. Never decides anything.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.core import pods
from dovetail.live.gangs import facts_of_objects
from dovetail.model.queue import queue_access
from dovetail.world import events

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
        self._world = facts_of_objects.world_of(objects)
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
        if name == f"pod/{pod.metadata.name}":
            name = NONE
        return Membership(name, queue or NONE)

"""Which gang and which queue the pods of a cluster belong to, as the scheduler reads it.

Given a cluster in memory. Builds its World once, so only whoever asks pays for it. Never decides anything.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dovetail.model import pods, queueuse
from dovetail.sim import cluster as clusters
from dovetail.sim import control
from dovetail.world import events

NOBODY: Final = ""


class Place(NamedTuple):
    """A pod's gang and queue; empty where it starts alone, or where no queue is meant."""

    gang: str
    queue: str


class Belonging:
    """Answers for one cluster."""

    def __init__(self, cluster: clusters.Cluster) -> None:
        self._world = control.world_of(cluster)
        self._doors = queueuse.Doors(self._world.queues, self._world.namespaces)

    def of(self, pod: pods.Pod) -> Place:
        """Where a pod belongs. One that ended belongs nowhere."""
        member = self._world.gangs.of(events.pod_id(pod))
        if member is None:
            return Place(NOBODY, NOBODY)
        gang = self._world.gangs.known(member.gang)
        queue = self._doors.resolve(gang.labels, gang.metadata.namespace, named=gang.queue).named
        name = gang.metadata.name
        return Place(NOBODY if name == f"pod/{pod.metadata.name}" else name, queue or NOBODY)

"""Keeps the status of queues in the cluster in memory: whether each is in order, and the numbers of the last decision.

Given a cluster and what was decided; answers the queues to write. What only time changes is not written: another look
at the same cluster writes nothing. Never decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from dovetail.model import objects, queues, queuestatus, queuetree
from dovetail.sim import cluster as clusters


def told(cluster: clusters.Cluster, numbers: Mapping[str, queues.QueueStatus], *, now: str) -> Iterator[objects.Stored]:
    """Queues whose status is not what it should be, with the one they should have."""
    found = {one.struct.metadata.name: one for one in clusters.listed(cluster, "Queue")}
    known = {name: one.struct for name, one in found.items() if isinstance(one.struct, queues.Queue)}
    problems = queuetree.problems(known)
    for name, queue in known.items():
        wanted = queuestatus.told(queue, problems.get(name), numbers.get(name), now=now)
        if queuestatus.is_news(queue.status, wanted):
            yield objects.replace(found[name], msgspec.structs.replace(queue, status=wanted))

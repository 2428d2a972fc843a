"""Keeps the status of queues in the cluster in memory: whether each is in order, and the numbers of the last decision.

Given a cluster and what was decided; answers the queues to write. What only time changes is not written: another look
at the same cluster writes nothing. Never decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from dovetail.kubetypes import codec
from dovetail.kubetypes.custom import queues
from dovetail.model.queue import queue_status, queue_tree
from dovetail.sim.local import local_cluster


def told(
    cluster: local_cluster.Cluster, numbers: Mapping[str, queues.QueueStatus], *, now: str
) -> Iterator[codec.Stored]:
    """Queues whose status is not what it should be, with the one they should have."""
    found = {one.struct.metadata.name: one for one in local_cluster.listed(cluster, "Queue")}
    known = {
        name: one.struct for name, one in found.items() if isinstance(one.struct, queues.Queue)
    }
    problems = queue_tree.problems(known)
    for name, queue in known.items():
        wanted = queue_status.status_for(queue, problems.get(name), numbers.get(name), now=now)
        if queue_status.has_news(queue.status, wanted):
            yield codec.replace(found[name], msgspec.structs.replace(queue, status=wanted))

"""Asks the engine what a smaller device brings: how many more pods of the work fit, and whether its own pods start.

Given a replica, the pods of a family and the patches as edits. Both sides are decided by the scheduler's own engine on
the replica, which is as it was afterwards. Never changes a cluster.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail import errors
from dovetail.answer.capacity import room_left, shapes
from dovetail.answer.replica import started_pods
from dovetail.answer.replica.replica import Replica
from dovetail.answer.right_size.right_size_answer import MoreFit
from dovetail.answer.why.fixes.change_set import ChangeSet
from dovetail.kubetypes.core import pods
from dovetail.world import events


def more_fit(replica: Replica, work: Sequence[pods.Pod], change: ChangeSet) -> MoreFit | None:
    """What the engine says; None where the shape of the pods is not known."""
    try:
        before = _room(replica, work[0])
        ids = [change.new_ids.get(pod_id, pod_id) for pod_id in map(events.pod_id, work)]
        with replica.edited(change.edits):
            waiting = {events.pod_id(pod) for pod in replica.world.pending()}
            decided = replica.decide(among=[pod_id for pod_id in ids if pod_id in waiting])
            with replica.edited(started_pods.edits(replica, decided)):
                started = [pod_id for pod_id in ids if replica.world.pods[pod_id].spec.node_name]
                after = _room(replica, replica.world.pods[ids[0]])
    except errors.InputError:
        return None
    refusals = [refusal.summary for refusal in decided.refusals]
    return MoreFit(
        fit_before=before.now,
        fit_after=after.now,
        pods=len(ids),
        pods_start=len(started),
        waits=refusals[0] if refusals else after.waits,
    )


def _room(replica: Replica, pod: pods.Pod) -> room_left.ShapeCapacity:
    return room_left.of_shape(replica, shapes.shape_of(replica, pod), moves=False)

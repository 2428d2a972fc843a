"""The pod that a controller creates in place of one that was evicted or lost its node.

Given the pod that is gone and the time. It keeps its name here, and waits, younger than everything else. Returns the
pod; never decides whether a controller creates it, never stores it.
"""

from __future__ import annotations

import datetime

import msgspec

from dovetail import timestamps
from dovetail.kubetypes.core import pods


def recreated(pod: pods.Pod, now: datetime.datetime) -> pods.Pod:
    """The pod as it is created again: pending, without a node, without the claim the scheduler made for it."""
    conditions = tuple(
        condition for condition in pod.status.conditions if condition.type != "PodScheduled"
    )
    status = msgspec.structs.replace(
        pod.status,
        phase="Pending",
        start_time=None,
        nominated_node_name="",
        extended_resource_claim_status=None,
        conditions=conditions,
    )
    spec = msgspec.structs.replace(pod.spec, node_name="")
    metadata = msgspec.structs.replace(
        pod.metadata, creation_timestamp=timestamps.to_text(now), deletion_timestamp=None
    )
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec, status=status)

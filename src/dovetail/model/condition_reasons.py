"""Decides the reason of a pending pod's PodScheduled condition: one word, on which other controllers act.

Cluster Autoscaler and Karpenter add nodes for pods whose reason is `Unschedulable`, and for no others. So a pod keeps
that word only where one more node could start it. Given the refusal; where the refusal cannot decide it, the engine
must (`answer/scale_up`). Never decides itself whether a node would help.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dovetail.kubetypes.core import pods
from dovetail.model import plan
from dovetail.model.reasons import ReasonCode

UNSCHEDULABLE: Final = "Unschedulable"  # one more node would start it
SCHEDULER_ERROR: Final = "SchedulerError"  # undecided, or a write failed
GATED: Final = "SchedulingGated"  # what the API server itself writes for gated pods
OVER_QUOTA: Final = "QuotaExceeded"
QUEUE_UNUSABLE: Final = "QueueUnusable"
INCOMPLETE: Final = "GangIncomplete"
POWER_CAP: Final = "PowerCapReached"
NOT_READY: Final = "ClaimNotReady"
NOT_PREPARED: Final = "DevicesNotPrepared"  # placed; a driver prepares its devices
NO_NODE_FITS: Final = "NoNodeFits"  # no node would help, whatever it is like

_NO_NODE_HELPS: Final[Mapping[ReasonCode, str]] = {  # what no node changes
    ReasonCode.GATED: GATED,
    ReasonCode.QUEUE_LIMIT: OVER_QUOTA,
    ReasonCode.QUEUE_QUOTA: OVER_QUOTA,
    ReasonCode.QUEUE_UNUSABLE: QUEUE_UNUSABLE,
    ReasonCode.CLAIM_QUEUE: QUEUE_UNUSABLE,
    ReasonCode.GANG_INCOMPLETE: INCOMPLETE,
    ReasonCode.POWER_CAP: POWER_CAP,
    ReasonCode.CLAIM_MISSING: NOT_READY,
    ReasonCode.CLAIM_NOT_MADE: NOT_READY,
    ReasonCode.CLAIM_DELETING: NOT_READY,
    ReasonCode.CLAIM_RETURNING: NOT_READY,
    ReasonCode.CLAIM_NOT_OURS: NOT_READY,
    ReasonCode.CLAIM_FULL: NOT_READY,
    ReasonCode.VOLUME_MISSING: NOT_READY,
    ReasonCode.VOLUME_DELETING: NOT_READY,
    ReasonCode.VOLUME_NOT_OURS: NOT_READY,
    ReasonCode.VOLUME_UNBOUND: NOT_READY,
    ReasonCode.ANNOTATION: NO_NODE_FITS,
    ReasonCode.INPUT: NO_NODE_FITS,
    ReasonCode.LIMIT: NO_NODE_FITS,
}


def reason_for(pod: pods.Pod, refusal: plan.Refusal) -> str | None:
    """The reason, where the refusal alone decides it; None where it depends on whether a node would help."""
    if pod.spec.scheduling_gates:
        return GATED
    if refusal.is_undecided:
        return SCHEDULER_ERROR
    codes = [obstacle.reason.code for obstacle in refusal.obstacles]
    if not codes or any(code not in _NO_NODE_HELPS for code in codes):
        return None  # nodes are in the way as well
    return _NO_NODE_HELPS[codes[0]]

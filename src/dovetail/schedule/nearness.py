"""Says how near nodes came to taking a pod, from the reason that ruled them out.

Given one reason. The further a node got through the filters, the nearer it came; among nodes that one filter ruled out,
those that lack the smaller part of what is needed. Never counts nodes, and never decides.
"""

from __future__ import annotations

from typing import Final

from dovetail.model.reasons import Reason, ReasonCode

# Farthest first, in the order in which nodes are filtered, with one exception: room for cpu and memory is filtered
# before devices, so nothing is known about the devices of nodes that lack it. Such nodes come nearer than those that
# were shown to have other devices than the pod needs, but not as near as those that have the right ones, in use.
_FILTERS: Final = (
    # Whose node it is, and whether it takes such pods at all.
    ReasonCode.NOT_OWNED,
    ReasonCode.OTHER_NODE,
    ReasonCode.CORDONED,
    ReasonCode.NODE_TAINT,
    # What the node is.
    ReasonCode.NODE_LABELS,
    ReasonCode.NODE_FEATURES,
    ReasonCode.IMAGE_REQUIREMENTS,
    ReasonCode.CLAIM_ELSEWHERE,
    # What devices it has, in use or not.
    ReasonCode.INVALID_POOL,
    ReasonCode.INCOMPLETE_POOL,
    ReasonCode.CLASS,
    ReasonCode.CEL_ERROR,
    ReasonCode.SELECTOR,
    ReasonCode.CAPACITY_POLICY,
    ReasonCode.INPUT,
    ReasonCode.LIMIT,
    # What is left of the node and of its devices.
    ReasonCode.ROOM,
    ReasonCode.TAINT,
    ReasonCode.IN_USE,
    ReasonCode.ALL_DEVICES,
    ReasonCode.CAPACITY,
    ReasonCode.COUNTERS,
    ReasonCode.CONSTRAINT,
    ReasonCode.COMBINATION,
    ReasonCode.BUDGET,
    # Only nodes that suit otherwise are compared with other pods, volumes and reservations.
    ReasonCode.VOLUME_DRIVER,
    ReasonCode.VOLUME_NODE,
    ReasonCode.VOLUME_NONE,
    ReasonCode.VOLUME_SPACE,
    ReasonCode.VOLUME_LIMIT,
    ReasonCode.VOLUME_IN_USE,
    ReasonCode.SPREAD_LABEL,
    ReasonCode.POD_AFFINITY,
    ReasonCode.POD_ANTI_AFFINITY,
    ReasonCode.SPREAD,
    ReasonCode.HOST_PORT,
    ReasonCode.NOMINATED,
    ReasonCode.PROMISED,
)
# Filters that people would not tell apart. A node with few devices of all classes has no fewer of the one that is
# needed than a node with many.
_SAME: Final = {ReasonCode.NO_DEVICES: ReasonCode.CLASS}
_RANKS: Final = {code: rank for rank, code in enumerate(_FILTERS, start=1)}


def nearness(reason: Reason) -> tuple[int, float]:
    """Higher is nearer: the filter that ruled nodes out, then which part of what is needed they have."""
    code = _SAME.get(reason.code, reason.code)
    if code is ReasonCode.NOT_OWNED and reason.subject:
        code = ReasonCode.TAINT  # about single devices of another scheduler, not about the node
    return _RANKS.get(code, 0), _part_had(reason)


def _part_had(reason: Reason) -> float:
    """From 0, nothing of it, to 1; 0 for filters that compare no amounts."""
    if reason.need is None or reason.have is None:
        return 0.0
    if reason.need <= 0:
        return 1.0
    return min(max(reason.have, 0) / reason.need, 1.0)

"""What other pods, host ports, volumes and nominations keep a pod off a node for, and whether that ends with them.

Given a pod and the World in a trial. The same filters are asked twice: about the pods that are there, and about none.
Never reads rooms or devices.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dovetail.answer.why.cause_codes import CauseCode
from dovetail.answer.why.obstacles.blocks import Block, Layer, Step
from dovetail.kubetypes.core import nodes, pods
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule.node.filters import relational
from dovetail.world.world import World

_CODES: Final = {
    ReasonCode.HOST_PORT: (Step.PORTS, CauseCode.HOST_PORT),
    ReasonCode.VOLUME_NODE: (Step.VOLUMES, CauseCode.VOLUME_ELSEWHERE),
    ReasonCode.VOLUME_NONE: (Step.VOLUMES, CauseCode.VOLUME_NONE),
    ReasonCode.VOLUME_SPACE: (Step.VOLUMES, CauseCode.VOLUME_NONE),
    ReasonCode.VOLUME_LIMIT: (Step.VOLUMES, CauseCode.VOLUME_LIMIT),
    ReasonCode.VOLUME_DRIVER: (Step.VOLUMES, CauseCode.VOLUME_DRIVER),
    ReasonCode.VOLUME_IN_USE: (Step.VOLUMES, CauseCode.VOLUME_IN_USE),
    ReasonCode.SPREAD: (Step.SPREAD, CauseCode.SPREAD),
    ReasonCode.SPREAD_LABEL: (Step.SPREAD, CauseCode.SPREAD),
    ReasonCode.POD_AFFINITY: (Step.AFFINITY, CauseCode.POD_AFFINITY),
    ReasonCode.POD_ANTI_AFFINITY: (Step.AFFINITY, CauseCode.POD_ANTI_AFFINITY),
    ReasonCode.NOMINATED: (Step.KEPT, CauseCode.PROMISED),
}
_ENDS_WITH_PODS: Final = frozenset(
    {ReasonCode.VOLUME_LIMIT, ReasonCode.VOLUME_IN_USE, ReasonCode.NOMINATED, ReasonCode.HOST_PORT}
)


class RelationBlocks:
    """The filters of one pod that depend on other objects."""

    def __init__(self, pod: pods.Pod, world: World) -> None:
        self._filters = _rulings(pod, world)
        self._filters_alone = _rulings(pod, _without_pods(world)) if self._filters else ()

    def of(self, node: nodes.Node) -> Iterator[Block]:
        """What keeps the pod off the node, filter by filter."""
        alone: dict[ReasonCode, Reason] | None = None
        for filter_ in self._filters:
            reason = filter_.misfit(node)
            if reason is None:
                continue
            if alone is None:
                alone = self._alone(node)
            step, code = _CODES.get(reason.code, (Step.KEPT, CauseCode.PROMISED))
            is_gone = reason.code in _ENDS_WITH_PODS or reason.code not in alone
            layer = Layer.OTHERS if is_gone else Layer.CONFIG
            if code is CauseCode.VOLUME_DRIVER:
                layer = Layer.PLATFORM
            yield Block(
                layer,
                step,
                code,
                reason.subject,
                reason.need or 0,
                reason.have or 0,
                detail=reason.detail,
            )

    def _alone(self, node: nodes.Node) -> dict[ReasonCode, Reason]:
        reasons = (filter_.misfit(node) for filter_ in self._filters_alone)
        return {reason.code: reason for reason in reasons if reason is not None}


def pod_reasons(pod: pods.Pod, world: World) -> tuple[Reason, ...]:
    """What about its volumes keeps the pod from every node."""
    filters = relational.filters_of(pod, world)
    if filters is None or isinstance(filters, relational.RelationalFilters):
        return ()
    return filters


def _rulings(pod: pods.Pod, world: World) -> tuple[relational.Filter, ...]:
    filters = relational.filters_of(pod, world)
    return filters.ruling if isinstance(filters, relational.RelationalFilters) else ()


def _without_pods(world: World) -> World:
    """The same nodes, namespaces and volumes, and no pod: all that these filters read."""
    alone = World()
    alone.nodes = world.nodes
    alone.namespaces = world.namespaces
    alone.storage = world.storage
    return alone

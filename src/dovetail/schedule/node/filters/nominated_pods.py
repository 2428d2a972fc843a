"""Decides whether a node has room next to the pods that are nominated for it.

As kube-scheduler does after preemption: nominated pods of at least equal priority count as if they ran on their node,
and the filters that depend on other pods run once more with them; less important ones do not count. Devices are not
read: a nominated pod holds none. Never forces a nominated pod onto its node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from dovetail.kubetypes.core import nodes, pods
from dovetail.model import pod_requests
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.world.events import pod_id
from dovetail.world.world import World


class Ruling(Protocol):
    """A filter that may rule a node out."""

    def misfit(self, node: nodes.Node) -> Reason | None:
        """Why the node is ruled out."""


Again = Callable[
    [], tuple[Ruling, ...] | None
]  # the pod's other ties as they are now; None: it could go nowhere


class NominatedPodsFilter:
    """The pods that are nominated for nodes, as a filter."""

    def __init__(
        self,
        pod: pods.Pod,
        world: World,
        *,
        expected: Mapping[str, Mapping[str, pods.Pod]],
        again: Again,
    ) -> None:
        self._need = pod_requests.pod_request(pod)
        self._world = world
        self._expected = expected
        self._again = again

    def misfit(self, node: nodes.Node) -> Reason | None:
        """Which nominated pods the pod would leave no room for there."""
        nominated = self._expected.get(node.metadata.name)
        if not nominated or (self._has_room(node, nominated) and self._gets_along(node, nominated)):
            return None
        names = ", ".join(
            sorted(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in nominated.values())[
                :3
            ]
        )
        return Reason(code=ReasonCode.NOMINATED, subject=f"nominated pods such as {names}")

    def _has_room(self, node: nodes.Node, nominated: Mapping[str, pods.Pod]) -> bool:
        free = self._world.free(node.metadata.name)
        for pod in nominated.values():
            free = free.minus(pod_requests.pod_request(pod))
        # Resources the node does not offer are served by devices, which nominations do not reserve.
        offered = self._world.offered(node.metadata.name)
        need = self._need.without(
            [name for name, _ in self._need.scalars if offered.scalar(name) <= 0]
        )
        return not pod_requests.shortages(need, free)

    def _gets_along(self, node: nodes.Node, nominated: Mapping[str, pods.Pod]) -> bool:
        crowd = self._world.pod_index
        for nominated_id, pod in nominated.items():
            crowd.put(nominated_id, pod, node.metadata.name)
        try:
            ruling = self._again()
            return ruling is not None and all(filter_.misfit(node) is None for filter_ in ruling)
        finally:
            for nominated_id in nominated:
                crowd.drop(nominated_id)


def filter_(pod: pods.Pod, world: World, *, again: Again) -> NominatedPodsFilter | None:
    """The filter for nominated pods that are not less important than the pod; None where there are none."""
    expected: dict[str, dict[str, pods.Pod]] = {}
    for nominated_id, candidate in world.pod_index.nominated().items():
        is_other = nominated_id != pod_id(pod) and nominated_id not in world.assumed
        if is_other and (candidate.spec.priority or 0) >= (pod.spec.priority or 0):
            expected.setdefault(candidate.status.nominated_node_name, {})[nominated_id] = candidate
    return NominatedPodsFilter(pod, world, expected=expected, again=again) if expected else None

"""Decides whether a node has room beside the pods somebody keeps it free for: those that name it as nominated.

As kube-scheduler does for preemption: pods at least as important count as if they were there, on their node only, and
everything that ties the pod to others is judged once more with them; less important ones do not count. Devices are not
read: a nominated pod holds none. Never gives a nominated pod its node by force.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from dovetail.model import nodes, pods, requests
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.world.events import pod_id
from dovetail.world.world import World


class Ruling(Protocol):
    """Whatever may rule a node out."""

    def misfit(self, node: nodes.Node) -> Reason | None:
        """Why the node is out of the question."""


Again = Callable[[], tuple[Ruling, ...] | None]  # the pod's other ties as they are now; None: it could go nowhere


class NominationTie:
    """The pods that nodes are kept free for."""

    def __init__(
        self, pod: pods.Pod, world: World, *, expected: Mapping[str, Mapping[str, pods.Pod]], again: Again
    ) -> None:
        self._need = requests.pod_request(pod)
        self._world = world
        self._expected = expected
        self._again = again

    def misfit(self, node: nodes.Node) -> Reason | None:
        """Why the pod would take what is kept free there."""
        others = self._expected.get(node.metadata.name)
        if not others or (self._has_room(node, others) and self._gets_along(node, others)):
            return None
        names = ", ".join(sorted(f"{one.metadata.namespace}/{one.metadata.name}" for one in others.values())[:3])
        return Reason(code=ReasonCode.NOMINATED, subject=f"nominated pods such as {names}")

    def _has_room(self, node: nodes.Node, others: Mapping[str, pods.Pod]) -> bool:
        left = self._world.free(node.metadata.name)
        for other in others.values():
            left = left.minus(requests.pod_request(other))
        # Resources the node does not offer are served by devices, which nobody keeps free.
        offered = self._world.offered(node.metadata.name)
        need = self._need.without([name for name, _ in self._need.scalars if offered.scalar(name) <= 0])
        return not requests.shortages(need, left)

    def _gets_along(self, node: nodes.Node, others: Mapping[str, pods.Pod]) -> bool:
        crowd = self._world.crowd
        for id_, other in others.items():
            crowd.put(id_, other, node.metadata.name)
        try:
            ruling = self._again()
            return ruling is not None and all(one.misfit(node) is None for one in ruling)
        finally:
            for id_ in others:
                crowd.drop(id_)


def tie(pod: pods.Pod, world: World, *, again: Again) -> NominationTie | None:
    """The tie of a pod with those that are nominated and not less important; None where there are none."""
    expected: dict[str, dict[str, pods.Pod]] = {}
    for id_, other in world.crowd.expected().items():
        is_other = id_ != pod_id(pod) and id_ not in world.assumed
        if is_other and (other.spec.priority or 0) >= (pod.spec.priority or 0):
            expected.setdefault(other.status.nominated_node_name, {})[id_] = other
    return NominationTie(pod, world, expected=expected, again=again) if expected else None

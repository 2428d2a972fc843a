"""Says cheaply that preemption cannot help a pod: what its node would have free without all pods of lower priority.

Counts what nodes share out, such as cpu, memory and extended resources, not devices of claims. A yes proves nothing; a
no spares the cluster a decision about everybody. Given a world; never tries anything.
"""

from __future__ import annotations

from dovetail.model import pods, policy, requests
from dovetail.world.world import World

NEVER = "Never"  # a preemptionPolicy


class Prospects:
    """What would be free on each node, by the priority of the pod that asks."""

    def __init__(self, world: World, policy_: policy.Policy) -> None:
        self._world = world
        self._names = policy_.scheduler_names
        self._is_on = policy.Step.PREEMPT in policy_.steps
        self._lowest: int | None = None
        self._has_lowest = False
        self._rooms: dict[int, dict[str, requests.Resources]] = {}

    def might_help(self, pod: pods.Pod) -> bool:
        """Whether the pod may preempt others, and some node might have room for it then; or did, and waits for it."""
        if self._is_on and pod.status.nominated_node_name:
            return True  # those who were ended for it may be about to leave, or their devices to be given back
        priority = pod.spec.priority or 0
        if not self._is_on or pod.spec.preemption_policy == NEVER or not self._is_above_any(priority):
            return False
        need = requests.pod_request(pod)
        return any(self._holds(node, room, need) for node, room in self._without_lower(priority).items())

    def _is_above_any(self, priority: int) -> bool:
        if not self._has_lowest:
            self._lowest = self._world.lowest_priority(self._names)
            self._has_lowest = True
        return self._lowest is not None and self._lowest < priority

    def _without_lower(self, priority: int) -> dict[str, requests.Resources]:
        """By node with such pods, what would be free were all pods below this priority gone."""
        known = self._rooms.get(priority)
        if known is None:
            known = self._rooms[priority] = {}
            for id_, (node, held) in self._world.running().items():
                spec = self._world.pods[id_].spec
                if (spec.priority or 0) >= priority or node not in self._world.nodes:
                    continue
                if self._names and spec.scheduler_name not in self._names:
                    continue
                known[node] = (known[node] if node in known else self._world.free(node)).plus(held)
        return known

    def _holds(self, node: str, room: requests.Resources, need: requests.Resources) -> bool:
        # Resources the node does not offer are served by devices, of which nothing is counted here.
        offered = self._world.offered(node)
        counted = need.without([name for name, _ in need.scalars if offered.scalar(name) <= 0])
        return not requests.shortages(counted, room)

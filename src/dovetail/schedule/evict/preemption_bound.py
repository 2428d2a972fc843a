"""Rules out preemption for a pod cheaply, by what each node would have free without its pods of lower priority.

Counts what nodes share out, such as cpu, memory and extended resources, not the devices of claims. The bound is
optimistic: a yes proves nothing, a no saves a decision about the whole cluster. Given a World; never tries
anything.
"""

from __future__ import annotations

from dovetail.kubetypes.core import pods
from dovetail.model import pod_requests, policy
from dovetail.world.world import World

NEVER = "Never"  # a preemptionPolicy


class PreemptionBound:
    """What would be free on each node, by the priority of the preempting pod."""

    def __init__(self, world: World, policy_: policy.Policy) -> None:
        self._world = world
        self._names = policy_.scheduler_names
        self._is_on = policy.Step.PREEMPT in policy_.steps
        self._lowest_priority: int | None = None
        self._has_lowest_priority = False
        self._free_by_priority: dict[int, dict[str, pod_requests.Resources]] = {}

    def might_help(self, pod: pods.Pod) -> bool:
        """Whether the pod may preempt, and some node might have room for it then; or it did and waits for the room."""
        if not self._is_on:
            return False
        if pod.status.nominated_node_name:
            return True  # its victims may be about to leave, or to release their devices
        priority = pod.spec.priority or 0
        if pod.spec.preemption_policy == NEVER or not self._is_above_any(priority):
            return False

        request = pod_requests.pod_request(pod)
        return any(
            self._holds(node, free, request)
            for node, free in self._free_without_lower(priority).items()
        )

    def never_preempts(self, pod: pods.Pod) -> bool:
        """Whether only its own policy keeps the pod from preempting others of lower priority."""
        is_never = self._is_on and pod.spec.preemption_policy == NEVER
        return is_never and self._is_above_any(pod.spec.priority or 0)

    def _is_above_any(self, priority: int) -> bool:
        if not self._has_lowest_priority:
            self._lowest_priority = self._world.lowest_priority(self._names)
            self._has_lowest_priority = True
        return self._lowest_priority is not None and self._lowest_priority < priority

    def _free_without_lower(self, priority: int) -> dict[str, pod_requests.Resources]:
        """By node with such pods, what would be free without all pods below this priority."""
        free_by_node = self._free_by_priority.get(priority)
        if free_by_node is not None:
            return free_by_node

        free_by_node = self._free_by_priority[priority] = {}
        for pod_id, (node, request) in self._world.running().items():
            spec = self._world.pods[pod_id].spec
            if (spec.priority or 0) >= priority or node not in self._world.nodes:
                continue
            if self._names and spec.scheduler_name not in self._names:
                continue
            free = free_by_node.get(node)
            if free is None:
                free = self._world.free(node)
            free_by_node[node] = free.plus(request)
        return free_by_node

    def _holds(
        self, node: str, free: pod_requests.Resources, request: pod_requests.Resources
    ) -> bool:
        # Devices serve the resources that the node itself does not offer, and devices are not counted here.
        offered = self._world.offered(node)
        by_devices = [name for name, _ in request.scalars if offered.scalar(name) <= 0]
        return not pod_requests.shortages(request.without(by_devices), free)

"""Prices what a pending pod waits for: the least that would serve it, on the one GPU ledger.

Given the World. Keeps the prices of equal pods until what they depend on changes: devices, classes, nodes. Pure.
"""

from __future__ import annotations

from dovetail.kubetypes.core import pods
from dovetail.model import pod_requests, policy
from dovetail.schedule.queue import amounts
from dovetail.schedule.queue.pricing import Pricing
from dovetail.world.devices import gpu_ledger
from dovetail.world.world import World

MICRO_PER_MILLI = 1_000


class WaitingGpus:
    """Prices pending pods of one World."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._versions: tuple[int, int, int] | None = None
        self._pricing: Pricing | None = None

    def micro_gpu(self, pod: pods.Pod) -> int:
        """What the pod waits for; 0 if that is no GPU."""
        if not pod.spec.resource_claims and not self._may_want(pod):
            return 0
        versions = (
            self._world.slices_version,
            self._world.classes_version,
            self._world.nodes_version,
        )
        if self._pricing is None or versions != self._versions:
            self._pricing = Pricing(self._world, policy.Batch(), ())
            self._versions = versions
        return self._pricing.waiting(pod).least.get(amounts.GPU, 0) * MICRO_PER_MILLI

    def _may_want(self, pod: pods.Pod) -> bool:
        """Whether a resource of the pod may be GPUs. A quick look."""
        names = [name for name, _ in pod_requests.pod_request(pod).scalars]
        if any(gpu_ledger.plugin_cost(name, 1, {}) for name in names):
            return True
        classes = self._world.classes.values()
        behind = {each.spec.extended_resource_name for each in classes}
        return any(name in behind or name.startswith("deviceclass.") for name in names)

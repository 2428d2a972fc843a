"""The GPUs of a World in numbers: total, used and free by type, what waits, and what is stranded; and what they cost.

All amounts are thousandths of a GPU on the common ledger. **Stranded** are free GPUs on nodes that have fewer free GPUs
than the smallest waiting pod needs, while a pod with GPUs waits; where none waits, nothing is stranded. Free GPUs of
cordoned nodes are counted apart: nothing starts there. Reads a World, never changes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import msgspec

from dovetail.answer.what_if import node_selection
from dovetail.kubetypes.core import pods
from dovetail.model import policy
from dovetail.schedule.queue import amounts, pricing
from dovetail.world.devices import gpu_ledger
from dovetail.world.world import World


class TypeNumbers(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """GPUs of one type, in thousandths."""

    nodes: int = 0
    total: int = 0
    used: int = 0
    free: int = 0
    cordoned: int = 0  # unused, on nodes that take no new pods


class GpuNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """All GPUs."""

    by_type: dict[str, TypeNumbers]
    stranded: int
    waiting: int  # requested by pending pods, at least
    waiting_pods: int

    def total(self, field: str) -> int:
        """The sum over all types."""
        return sum(getattr(numbers, field) for numbers in self.by_type.values())


class Stock:
    """Counts the GPUs of one World."""

    def __init__(self, world: World, policy_: policy.Policy) -> None:
        self._world = world
        self._names = policy_.scheduler_names
        self._pricing = pricing.Pricing(world, policy_.batch, ())
        self._ledger = gpu_ledger.Ledger()

    def numbers(self) -> GpuNumbers:
        """All GPUs. Linear in nodes and pending pods."""
        pending = [pod for pod in self._world.pending() if self._is_ours(pod)]
        needs = [self.needed(pod) for pod in pending]
        smallest = min((need for need in needs if need), default=0)
        by_type: dict[str, TypeNumbers] = {}
        stranded = 0
        for name in sorted(self._world.nodes):
            type_ = node_selection.gpu_type(self._world, name)
            if type_ == node_selection.NO_GPUS:
                continue
            total, free = self._of_node(name)
            is_open = not self._world.nodes[name].spec.unschedulable
            if is_open and free < smallest:
                stranded += free
            so_far = by_type.get(type_, TypeNumbers())
            by_type[type_] = TypeNumbers(
                nodes=so_far.nodes + 1,
                total=so_far.total + total,
                used=so_far.used + total - free,
                free=so_far.free + (free if is_open else 0),
                cordoned=so_far.cordoned + (0 if is_open else free),
            )
        return GpuNumbers(
            by_type=dict(sorted(by_type.items())),
            stranded=stranded,
            waiting=sum(needs),
            waiting_pods=len(pending),
        )

    def needed(self, pod: pods.Pod) -> int:
        """What a pending pod requests at least."""
        return self._pricing.waiting(pod).least.get(amounts.GPU, 0)

    def held(self, pod: pods.Pod) -> int:
        """What a pod on a node holds."""
        total = self._pricing.cost_on_node(pod, pod.spec.node_name).get(amounts.GPU, 0)
        for key in self._world.claims_used(pod):
            allocation = self._world.allocation(key)
            if allocation is not None:
                total += self._pricing.cost_of_claim(key, allocation).get(amounts.GPU, 0)
        return total

    def _of_node(self, name: str) -> tuple[int, int]:
        """All of a node's GPUs, and the free ones."""
        labels = self._world.nodes[name].metadata.labels
        total = self._pricing.gpus_of(self._world.offered(name), labels)
        free = max(self._pricing.gpus_of(self._world.free(name), labels), 0)
        for pool in self._world.view(name).pools:
            if all(origin.node_name == name for origin in pool.devices.origins):
                total += self._ledger.whole_milli_gpu(pool.devices)
                free += self._ledger.free_milli_gpu(pool)
        return total, free

    def _is_ours(self, pod: pods.Pod) -> bool:
        return not self._names or pod.spec.scheduler_name in self._names


def cost_per_hour(
    numbers: GpuNumbers, prices: Mapping[str, Fraction]
) -> tuple[Fraction, tuple[str, ...]]:
    """What all GPUs cost an hour, used or not, by the price of one GPU-hour; and the types without a price."""
    cost = Fraction(0)
    unpriced: list[str] = []
    for type_, counted in numbers.by_type.items():
        price = price_of(type_, prices)
        if price is None:
            unpriced.append(type_)
        else:
            cost += price * counted.total / gpu_ledger.WHOLE
    return cost, tuple(unpriced)


def price_of(type_: str, prices: Mapping[str, Fraction]) -> Fraction | None:
    """The price of a type: that with the most words in common where several names fit."""
    fitting = [name for name in prices if node_selection.fits(name, type_)]
    return prices[max(fitting, key=lambda name: (len(name), name))] if fitting else None

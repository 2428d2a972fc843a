"""The `dovetail` policy: what capacity does a placement make unusable, or take from work that can run nowhere else?

Given the state of a cluster and a mix. Every node with room gets a cost in milli-GPU, the sum of five terms: unusable
idle GPU, lost sharing patterns, scarce GPU models, scarce places for pods with several GPUs, and a slight best fit by
CPU. The lowest cost wins. Nothing is refused and nothing is reserved. Never places a pod.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from dovetail.study import workload
from dovetail.study.placement import effective_sizes, scarcity, sharing_candidates, unusable
from dovetail.study.placement.cluster_state import (
    NO_DEVICE,
    Booleans,
    ClusterState,
    Floats,
    Integers,
)

REPEATED_SHARE = 0.05  # of the repeated fill in unusable idle GPU
PATTERN_WEIGHT = 6 * workload.MILLI  # milli-GPU per lost GPU of pattern
SLOT_WEIGHT = workload.MILLI / 10  # milli-GPU per lost GPU of scarce places
CPU_WEIGHT = 10 / 128_000  # milli-GPU per milli-CPU left over
_DECIMALS = 6  # equal costs may differ by rounding errors


class ExpectedLoss:
    """Costs of nodes for one mix."""

    def __init__(self, cluster: ClusterState, mix: workload.Mix) -> None:
        """Tables for this mix; an empty one leaves best fit by CPU."""
        self._cluster = cluster
        self._kept: dict[tuple[int, int, int], _Kept] = {}
        self._has_mix = any(shape.gpus for shape, _ in mix.counts)
        if self._has_mix:
            self._unusable = unusable.UnusableGpu(
                cluster, workload.typical(mix), repeated_share=REPEATED_SHARE
            )
            self._patterns = effective_sizes.EffectiveSizes(_sharing_sizes(mix))
            self._models = scarcity.ModelPrices(cluster, mix)
            self._slots = scarcity.SlotPrices(cluster, mix)

    def choose(self, shape: workload.Shape, feasible: Booleans) -> tuple[int, int]:
        """The node with the lowest cost; of equal ones the one with less CPU left, then the first."""
        cluster = self._cluster
        cpu_left = cluster.cpu - shape.cpu_milli
        costs = CPU_WEIGHT * cpu_left
        if not self._has_mix:
            node = _lowest(costs, cpu_left, feasible)
            return node, cluster.best_fit_device(shape, node) if shape.is_sharing else NO_DEVICE

        kept = self._refreshed(shape)
        costs += kept.costs
        prices = self._models.by_model() if shape.gpus else None
        if prices is not None:
            costs += shape.total_gpu_milli * prices[cluster.model]
        if self._slots.is_needed:
            costs += SLOT_WEIGHT * self._slots.cost(shape, kept.devices)
        node = _lowest(costs, cpu_left, feasible)
        return node, int(kept.devices[node])

    def _refreshed(self, shape: workload.Shape) -> _Kept:
        """Unusable GPU and lost patterns, kept by request and computed again only for nodes that changed."""
        changed = self._cluster.changed
        request = (shape.cpu_milli, shape.gpus, shape.gpu_milli)
        kept = self._kept.get(request)
        if kept is None:
            kept = self._kept[request] = _Kept(len(self._cluster.nodes))
            nodes = np.arange(len(self._cluster.nodes))
        elif kept.up_to == len(changed):
            return kept
        else:
            nodes = np.array(sorted(set(changed[kept.up_to :])), dtype=np.intp)
        kept.up_to = len(changed)
        self._unusable.refresh()
        if shape.is_sharing:
            self._cost_sharing(shape, nodes, kept)
        else:
            self._cost_whole(shape, nodes, kept)
        return kept

    def _cost_sharing(self, shape: workload.Shape, nodes: Integers, kept: _Kept) -> None:
        options = sharing_candidates.with_room(self._cluster, shape, nodes)
        if not len(options.nodes):
            return
        after = self._unusable.after_sharing(shape, options.nodes, options.free)
        costs = self._more_unusable(options.nodes, after)
        steps = (options.free / effective_sizes.STEP_MILLI).astype(np.intp)
        costs = costs + PATTERN_WEIGHT * self._patterns.loss(shape.gpu_milli)[steps]
        costs = np.round(costs, _DECIMALS)

        # By node, then cost, then the fullest device: the first of each node is its best.
        order = np.lexsort((options.free, costs, options.nodes))
        best = order[options.starts]
        kept.costs[options.nodes[best]] = costs[best]
        kept.devices[options.nodes[best]] = options.devices[best]

    def _cost_whole(self, shape: workload.Shape, nodes: Integers, kept: _Kept) -> None:
        nodes = sharing_candidates.with_room_for_whole(self._cluster, shape, nodes)
        if len(nodes):
            kept.costs[nodes] = self._more_unusable(nodes, self._unusable.after_whole(shape, nodes))

    def _more_unusable(self, nodes: Integers, after: Floats) -> Floats:
        return (after - self._unusable.by_node[nodes]) / self._unusable.scale


class _Kept:
    """Costs of one kind of request as of a number of placements, and the device of each."""

    def __init__(self, nodes: int) -> None:
        self.costs = np.zeros(nodes)
        self.devices = np.full(nodes, NO_DEVICE, dtype=np.intp)
        self.up_to = 0


def _lowest(costs: Floats, cpu_left: Floats, feasible: Booleans) -> int:
    nodes = np.flatnonzero(feasible)
    costs = np.round(costs[nodes], _DECIMALS)
    cheapest = nodes[costs == costs.min()]
    return int(cheapest[np.argmin(cpu_left[cheapest])])


def _sharing_sizes(mix: workload.Mix) -> Counter[int]:
    sizes: Counter[int] = Counter()
    for shape, count in mix.counts:
        if shape.is_sharing:
            sizes[shape.gpu_milli] += count
    return sizes

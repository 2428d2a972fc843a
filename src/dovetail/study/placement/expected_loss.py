"""The `dovetail` policy: what capacity does a placement make unusable, or take from work that can run nowhere else?

Given the state of a cluster and a mix. Every node with room gets a cost in milli-GPU, the sum of five terms: unusable
idle GPU, lost sharing patterns, scarce GPU models, scarce places for pods with several GPUs, and a slight best fit by
CPU. The lowest cost wins. Nothing is refused and nothing is reserved. Never places a pod.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from dovetail.model import pod_mix
from dovetail.schedule.node.score import effective_sizes
from dovetail.study.placement import (
    kept_scores,
    scarcity,
    sharing_candidates,
    unusable,
)
from dovetail.study.placement.cluster_state import (
    NO_DEVICE,
    Booleans,
    ClusterState,
    Floats,
    Integers,
)

REPEATED_SHARE = 0.05  # of the repeated fill in unusable idle GPU
PATTERN_WEIGHT = 6 * pod_mix.MILLI  # milli-GPU per lost GPU of pattern
SLOT_WEIGHT = pod_mix.MILLI / 10  # milli-GPU per lost GPU of scarce places
CPU_WEIGHT = 10 / 128_000  # milli-GPU per milli-CPU left over
_DECIMALS = 6  # equal costs may differ by rounding errors


class ExpectedLoss:
    """Costs of nodes for one mix."""

    def __init__(self, cluster: ClusterState, mix: pod_mix.Mix) -> None:
        """Tables for this mix; an empty one leaves best fit by CPU."""
        self._cluster = cluster
        self._kept = kept_scores.ScoresByRequest(cluster, self._cost, initial=0.0)
        self._has_mix = any(shape.gpus for shape, _ in mix.counts)
        if self._has_mix:
            self._unusable = unusable.UnusableGpu(
                cluster, pod_mix.typical(mix), repeated_share=REPEATED_SHARE
            )
            self._patterns = effective_sizes.EffectiveSizes(_sharing_sizes(mix))
            self._models = scarcity.ModelPrices(cluster, mix)
            self._slots = scarcity.SlotPrices(cluster, mix)

    def choose(self, shape: pod_mix.Shape, feasible: Booleans) -> tuple[int, int]:
        """The node with the lowest cost; of equal ones the one with less CPU left, then the first."""
        cluster = self._cluster
        cpu_left = cluster.cpu - shape.cpu_milli
        costs = CPU_WEIGHT * cpu_left
        if not self._has_mix:
            node = _lowest(costs, cpu_left, feasible)
            return node, cluster.best_fit_device(shape, node) if shape.is_sharing else NO_DEVICE

        kept = self._kept.of(shape)
        costs += kept.scores
        prices = self._models.by_model() if shape.gpus else None
        if prices is not None:
            costs += shape.total_gpu_milli * prices[cluster.model]
        if self._slots.is_needed:
            costs += SLOT_WEIGHT * self._slots.cost(shape, kept.devices)
        node = _lowest(costs, cpu_left, feasible)
        return node, int(kept.devices[node])

    def _cost(self, shape: pod_mix.Shape, nodes: Integers, kept: kept_scores.KeptScores) -> None:
        """Unusable GPU and lost patterns."""
        self._unusable.refresh()
        if shape.is_sharing:
            self._cost_sharing(shape, nodes, kept)
        else:
            self._cost_whole(shape, nodes, kept)

    def _cost_sharing(
        self, shape: pod_mix.Shape, nodes: Integers, kept: kept_scores.KeptScores
    ) -> None:
        options = sharing_candidates.with_room(self._cluster, shape, nodes)
        if not len(options.nodes):
            return
        after = self._unusable.after_sharing(shape, options.nodes, options.free)
        costs = self._more_unusable(options.nodes, after)
        steps = (options.free / effective_sizes.STEP_MILLI).astype(np.intp)
        costs = costs + PATTERN_WEIGHT * np.array(self._patterns.loss(shape.gpu_milli))[steps]
        costs = np.round(costs, _DECIMALS)

        # By node, then cost, then the fullest device: the first of each node is its best.
        order = np.lexsort((options.free, costs, options.nodes))
        best = order[options.starts]
        kept.scores[options.nodes[best]] = costs[best]
        kept.devices[options.nodes[best]] = options.devices[best]

    def _cost_whole(
        self, shape: pod_mix.Shape, nodes: Integers, kept: kept_scores.KeptScores
    ) -> None:
        nodes = sharing_candidates.with_room_for_whole(self._cluster, shape, nodes)
        if len(nodes):
            kept.scores[nodes] = self._more_unusable(
                nodes, self._unusable.after_whole(shape, nodes)
            )

    def _more_unusable(self, nodes: Integers, after: Floats) -> Floats:
        return (after - self._unusable.by_node[nodes]) / self._unusable.scale


def _lowest(costs: Floats, cpu_left: Floats, feasible: Booleans) -> int:
    nodes = np.flatnonzero(feasible)
    costs = np.round(costs[nodes], _DECIMALS)
    cheapest = nodes[costs == costs.min()]
    return int(cheapest[np.argmin(cpu_left[cheapest])])


def _sharing_sizes(mix: pod_mix.Mix) -> Counter[int]:
    sizes: Counter[int] = Counter()
    for shape, count in mix.counts:
        if shape.is_sharing:
            sizes[shape.gpu_milli] += count
    return sizes

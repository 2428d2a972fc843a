"""GPU clustering: pods of one size of GPU request go to nodes that run such pods already.

Given the state of a cluster and every placement. Sizes are a share of a GPU, or 1, 2, 4 ... whole GPUs. The scores are
the published simulator's. Never places a pod.
"""

from __future__ import annotations

import numpy as np

from dovetail.model import pod_mix
from dovetail.study.placement.cluster_state import ClusterState, Floats
from dovetail.study.placement.packing_policies import LARGEST_NODE_GPU, MAX_SCORE

_QUARTER = MAX_SCORE // 4


class GpuClustering:
    """Which sizes of GPU request run on each node."""

    def __init__(self, cluster: ClusterState) -> None:
        """No pod runs yet."""
        self._cluster = cluster
        self._runs: dict[int, Floats] = {}  # by size: 1 on nodes that run such a pod

    def scores(self, shape: pod_mix.Shape) -> Floats:
        """Nodes with this size only, nodes with it among others, empty nodes, other nodes; fuller ones first."""
        cluster = self._cluster
        nothing = np.zeros(len(cluster.nodes))
        if not shape.gpus:
            return nothing
        runs_same = self._runs.get(_size(shape), nothing) > 0
        sizes = sum(self._runs.values(), start=nothing)
        tier = np.where(runs_same, np.where(sizes == 1, 3, 2), np.where(sizes == 0, 1, 0))
        fullness = np.floor(_QUARTER * (LARGEST_NODE_GPU - cluster.idle) / LARGEST_NODE_GPU)
        scores: Floats = fullness + _QUARTER * tier
        return scores

    def placed(self, shape: pod_mix.Shape, node: int) -> None:
        """Remembers what a node runs."""
        if shape.gpus:
            runs = self._runs.setdefault(_size(shape), np.zeros(len(self._cluster.nodes)))
            runs[node] = 1


def _size(shape: pod_mix.Shape) -> int:
    return 0 if shape.is_sharing else shape.gpus

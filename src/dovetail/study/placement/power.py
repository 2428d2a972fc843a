"""PWR (CCGrid'25): FGD mixed with a preference for nodes whose power grows least.

Given the state of a cluster and a mix. Watts are a model, never measured: a GPU draws its full power as soon as any
part of it is allocated, and CPU packages of 16 cores are on or idle. Both scores are stretched to 0 to 100 over the
nodes with room; power counts 200 of 1000, one of the published settings. The device is FGD's. How the published plugin
rounds and picks devices is not known here, so its allocation is not reproduced. Never places a pod.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from dovetail.model import pod_mix
from dovetail.study.placement import fgd
from dovetail.study.placement.cluster_state import Booleans, ClusterState, Floats, Integers
from dovetail.study.placement.packing_policies import MAX_SCORE

POWER_WEIGHT = 200
FGD_WEIGHT = 1000 - POWER_WEIGHT
CORES_A_PACKAGE = 16_000  # milli-CPU
PACKAGE_WATTS = 120 - 15  # more when a package is in use than when it is idle
# By model, more watts when a GPU is in use than when it is idle. Models without public data stand in for near ones.
GPU_WATTS: Final = {
    "T4": 70 - 10,
    "A10": 150 - 30,
    "G2": 150 - 30,
    "P100": 250 - 25,
    "V100M16": 300 - 30,
    "V100M32": 300 - 30,
    "A100": 400 - 50,
    "G3": 400 - 50,
}
OTHER_GPU_WATTS = 300 - 30


class PowerAware:
    """Scores for one mix."""

    def __init__(self, cluster: ClusterState, mix: pod_mix.Mix) -> None:
        """Tables for this mix."""
        self._cluster = cluster
        self._fgd = fgd.Fgd(cluster, mix)
        watts = [GPU_WATTS.get(node.model, OTHER_GPU_WATTS) for node in cluster.nodes]
        self._gpu_watts = np.array(watts, dtype=np.float64)
        capacity = [node.cpu_milli for node in cluster.nodes]
        self._cpu_capacity = np.array(capacity, dtype=np.float64)

    def choose(self, shape: pod_mix.Shape, feasible: Booleans) -> tuple[int, int]:
        """The first node with the highest mixed score."""
        nodes = np.flatnonzero(feasible)
        kept = self._fgd.kept(shape)
        saved = -self._more_watts(shape, kept.devices)[nodes]
        mixed = POWER_WEIGHT * _stretched(saved) + FGD_WEIGHT * _stretched(kept.scores[nodes])
        node = int(nodes[np.argmax(mixed)])
        return node, int(kept.devices[node])

    def _more_watts(self, shape: pod_mix.Shape, devices: Integers) -> Floats:
        """For every node, if the pod ran there; a sharing pod on this device."""
        cluster = self._cluster
        used_cpu = self._cpu_capacity - cluster.cpu
        packages_before = np.ceil(used_cpu / CORES_A_PACKAGE)
        packages_after = np.ceil((used_cpu + shape.cpu_milli) / CORES_A_PACKAGE)
        more: Floats = PACKAGE_WATTS * (packages_after - packages_before)
        if not shape.is_sharing:
            return more + shape.gpus * self._gpu_watts
        every_node = np.arange(len(cluster.nodes))
        opens_device = cluster.devices[every_node, devices] == pod_mix.MILLI
        return more + np.where(opens_device, self._gpu_watts, 0.0)


def _stretched(scores: Floats) -> Floats:
    """From 0 for the lowest to 100 for the highest; all 0 if they are equal."""
    lowest = scores.min()
    width = scores.max() - lowest
    if not width:
        return np.zeros(len(scores))
    stretched: Floats = np.floor(MAX_SCORE * (scores - lowest) / width)
    return stretched

"""The nodes and devices a pod could take; of equal devices of a node only the first.

Given the state of a cluster. Never places a pod and never compares candidates.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.model import pod_mix
from dovetail.study.placement.cluster_state import ClusterState, Floats, Integers


class Candidates(NamedTuple):
    """Pairs of node and device, ordered by node and then by device."""

    nodes: Integers
    devices: Integers
    free: Floats  # milli-GPU free on the device

    @property
    def starts(self) -> Integers:
        """Where the candidates of each node begin."""
        is_new = np.ones(len(self.nodes), dtype=np.bool_)
        is_new[1:] = self.nodes[1:] != self.nodes[:-1]
        return np.flatnonzero(is_new)


def with_room(cluster: ClusterState, shape: pod_mix.Shape, nodes: Integers) -> Candidates:
    """Every device of these nodes with room, one of several equal ones."""
    nodes = nodes[cluster.cpu[nodes] >= shape.cpu_milli]
    free = cluster.devices[nodes]
    is_repeated = np.zeros(free.shape, dtype=np.bool_)
    for device in range(1, free.shape[1]):
        is_repeated[:, device] = (free[:, :device] == free[:, device, None]).any(axis=1)
    rows, devices = np.nonzero((free >= shape.gpu_milli) & ~is_repeated)
    return Candidates(nodes=nodes[rows], devices=devices, free=free[rows, devices])


def with_room_for_whole(cluster: ClusterState, shape: pod_mix.Shape, nodes: Integers) -> Integers:
    """These nodes as far as they have the CPU and the whole GPUs the pod asks for."""
    has_room = (cluster.cpu[nodes] >= shape.cpu_milli) & (cluster.full[nodes] >= shape.gpus)
    return nodes[has_room]

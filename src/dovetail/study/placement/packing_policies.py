"""The rules the FGD paper compares with, and plain ones: each a function that scores all nodes for one pod.

Given the state of a cluster and the shape of a pod. Higher is better; the run takes the first node with the highest
score among those with room. The published rules keep the integer scores of the published simulator, because its
rounding decides between nodes. Never looks at the mix of pods, never places one.
"""

from __future__ import annotations

import numpy as np

from dovetail.model import pod_mix
from dovetail.study.placement.cluster_state import ClusterState, Floats

MAX_SCORE = 100
LARGEST_NODE_CPU = 128_000  # milli, the published simulator's
LARGEST_NODE_GPU = 8 * pod_mix.MILLI


def first_fit(cluster: ClusterState, shape: pod_mix.Shape) -> Floats:
    """All nodes alike: the first with room is taken."""
    return np.zeros(len(cluster.nodes))


def spread(cluster: ClusterState, shape: pod_mix.Shape) -> Floats:
    """Nodes with much free GPU and CPU first: the opposite of best fit, without rounding."""
    scores: Floats = cluster.idle / LARGEST_NODE_GPU + cluster.cpu / LARGEST_NODE_CPU
    return scores


def best_fit(cluster: ClusterState, shape: pod_mix.Shape) -> Floats:
    """Little left over of CPU and GPU, each counting half."""
    cpu_left = (cluster.cpu - shape.cpu_milli) / LARGEST_NODE_CPU * 0.5
    gpu_left = (cluster.idle - shape.total_gpu_milli) / LARGEST_NODE_GPU * 0.5
    scores: Floats = np.trunc((1.0 - (cpu_left + gpu_left)) * MAX_SCORE)
    return scores


def dot_product(cluster: ClusterState, shape: pod_mix.Shape) -> Floats:
    """A small product of what is free and what is asked: nodes the pod would leave unbalanced come last."""
    cpu = cluster.cpu / LARGEST_NODE_CPU * (shape.cpu_milli / LARGEST_NODE_CPU)
    gpu = cluster.idle / LARGEST_NODE_GPU * (shape.total_gpu_milli / LARGEST_NODE_GPU)
    scores: Floats = np.trunc(MAX_SCORE * (1.0 - (cpu + gpu) / 2))
    return scores


def gpu_packing(cluster: ClusterState, shape: pod_mix.Shape) -> Floats:
    """Devices in use first, then free devices of nodes in use, then empty nodes."""
    if not shape.gpus:
        return np.zeros(len(cluster.nodes))
    on_empty_node = np.maximum(MAX_SCORE // 3 - cluster.full, cluster.full)

    if shape.is_sharing:
        free = np.where(cluster.devices >= shape.gpu_milli, cluster.devices, np.inf)
        tightest = free.min(axis=1)
        takes_whole = tightest >= pod_mix.MILLI
        with np.errstate(invalid="ignore"):
            free_percent = np.floor(tightest * 100 / pod_mix.MILLI)
            on_used_device = np.maximum(MAX_SCORE - np.floor(free_percent / 10), MAX_SCORE // 2)
    else:
        takes_whole = np.ones(len(cluster.nodes), dtype=np.bool_)
        on_used_device = np.zeros(len(cluster.nodes))

    on_used_node = max(MAX_SCORE // 2 - shape.gpus, MAX_SCORE // 3)
    scores = np.where(takes_whole, on_used_node, on_used_device)
    return np.where(cluster.full == cluster.gpus, on_empty_node, scores)

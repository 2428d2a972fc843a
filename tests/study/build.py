"""Small clusters and shapes for tests of placement policies."""

from __future__ import annotations

from dovetail.model import pod_mix
from dovetail.study import workload
from dovetail.study.placement import cluster_state


def node(
    name: str,
    *,
    gpus: int = 2,
    model: str = "T4",
    cpu_milli: int = 32_000,
    memory_mib: int = 64_000,
) -> workload.Node:
    return workload.Node(
        name=name, cpu_milli=cpu_milli, memory_mib=memory_mib, gpus=gpus, model=model
    )


def cluster(*nodes: workload.Node) -> cluster_state.ClusterState:
    return cluster_state.ClusterState(nodes)


def share(
    gpu_milli: int, *, cpu_milli: int = 1_000, models: tuple[str, ...] = (), memory_mib: int = 0
) -> pod_mix.Shape:
    return pod_mix.Shape(
        cpu_milli=cpu_milli, gpu_milli=gpu_milli, gpus=1, models=models, memory_mib=memory_mib
    )


def whole(
    gpus: int, *, cpu_milli: int = 1_000, models: tuple[str, ...] = (), memory_mib: int = 0
) -> pod_mix.Shape:
    return pod_mix.Shape(
        cpu_milli=cpu_milli, gpu_milli=1000, gpus=gpus, models=models, memory_mib=memory_mib
    )


def cpu_only(cpu_milli: int) -> pod_mix.Shape:
    return pod_mix.Shape(cpu_milli=cpu_milli, gpu_milli=0, gpus=0, models=())


def mix(*counts: tuple[pod_mix.Shape, int]) -> pod_mix.Mix:
    return pod_mix.mix_of_counts(dict(counts))

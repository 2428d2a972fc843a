"""Scarcity prices: how much of what is free is needed by work that can run nowhere else.

Given the state of a cluster and a mix, and the assumption that the cluster fills up with that mix. `ModelPrices` prices
GPU models that some pods insist on; `SlotPrices` prices the places that pods with several GPUs need. Prices lie between
0 (plenty) and 1 (all of it is needed). Never places a pod.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from dovetail.model import pod_mix
from dovetail.study.placement.cluster_state import NO_DEVICE, ClusterState, Floats, Integers

EXPONENT = 2  # little scarcity costs very little


class ModelPrices:
    """By GPU model: the share of its idle GPUs that pods bound to some models are expected to need, squared."""

    def __init__(self, cluster: ClusterState, mix: pod_mix.Mix) -> None:
        """For the whole mix: rare models are the ones to protect."""
        self._cluster = cluster
        demand: Counter[tuple[str, ...]] = Counter()
        for shape, count in mix.counts:
            if shape.gpus and shape.models:
                demand[shape.models] += shape.total_gpu_milli * count
        self._share = np.array(list(demand.values()), dtype=np.float64) / max(
            1, mix.total_gpu_milli
        )
        accepted = [[model in models for model in cluster.models] for models in demand]
        self._accepts = np.array(accepted, dtype=np.float64).reshape(
            len(demand), len(cluster.models)
        )

    def by_model(self) -> Floats | None:
        """Prices now, in the order of the cluster's models; None if no pod of the mix insists on a model."""
        if not len(self._share):
            return None
        idle = self._cluster.idle_by_model
        idle_of_accepted = np.maximum(self._accepts @ idle, 1.0)
        # Needed on a model, divided by what is idle there: idle of the model cancels out.
        needed_of_idle = (self._share * idle.sum() / idle_of_accepted) @ self._accepts
        prices: Floats = np.minimum(1.0, needed_of_idle) ** EXPONENT
        return prices


class SlotPrices:
    """Places for pods with two or more GPUs: how many each node has, how many a placement takes, what one is worth."""

    def __init__(self, cluster: ClusterState, mix: pod_mix.Mix) -> None:
        """Counts the places of all nodes, for every such shape of the whole mix."""
        self._cluster = cluster
        shapes = [(shape, count) for shape, count in mix.counts if shape.gpus >= 2]
        self.is_needed = bool(shapes)
        self._gpus = np.array([shape.gpus for shape, _ in shapes], dtype=np.float64)
        self._cpu = np.array([max(1, shape.cpu_milli) for shape, _ in shapes], dtype=np.float64)
        self._memory = np.array([max(1, shape.memory_mib) for shape, _ in shapes], dtype=np.float64)
        counts = np.array([count for _, count in shapes], dtype=np.float64)
        self._pods_by_milli = counts / max(1, mix.total_gpu_milli)
        accepts = [[shape.accepts(model) for shape, _ in shapes] for model in cluster.models]
        self._accepts = np.array(accepts, dtype=np.float64)
        self._slots = self._count(
            np.arange(len(cluster.nodes)), cluster.full, cluster.cpu, cluster.memory
        )
        self._total = self._slots.sum(axis=0)
        self._up_to = len(cluster.changed)
        self._kept: dict[tuple[int, int, int, int], _KeptLosses] = {}

    def cost(self, shape: pod_mix.Shape, devices: Integers) -> Floats:
        """For every node: GPUs of the places that the pod would take away, each at its price.

        `devices` says which device of each node a sharing pod would take.
        """
        self._refresh()
        idle = self._cluster.idle_by_model.sum()
        expected = idle * self._pods_by_milli
        scarcity = np.minimum(1.0, expected / np.maximum(self._total, 1e-9)) ** EXPONENT
        costs: Floats = self._losses(shape, devices).astype(np.float64) @ (self._gpus * scarcity)
        return costs

    def _refresh(self) -> None:
        cluster = self._cluster
        if self._up_to == len(cluster.changed):
            return
        nodes = cluster.changed_since(self._up_to)
        self._up_to = len(cluster.changed)
        slots = self._count(nodes, cluster.full[nodes], cluster.cpu[nodes], cluster.memory[nodes])
        self._total += slots.sum(axis=0) - self._slots[nodes].sum(axis=0)
        self._slots[nodes] = slots

    def _losses(self, shape: pod_mix.Shape, devices: Integers) -> npt.NDArray[np.int8]:
        """Places that each node would lose, kept by request and computed again only for nodes that changed."""
        cluster = self._cluster
        request = (shape.cpu_milli, shape.memory_mib, shape.gpus, shape.gpu_milli)
        kept = self._kept.get(request)
        if kept is None:
            losses = np.zeros(self._slots.shape, dtype=np.int8)
            kept = self._kept[request] = _KeptLosses(losses)
            nodes = np.arange(len(cluster.nodes))
        elif kept.up_to == len(cluster.changed):
            return kept.losses
        else:
            nodes = cluster.changed_since(kept.up_to)
        kept.up_to = len(cluster.changed)

        if shape.is_sharing:
            device = np.maximum(devices[nodes], 0)
            has_device = devices[nodes] != NO_DEVICE
            whole_taken = (cluster.devices[nodes, device] == pod_mix.MILLI) & has_device
        else:
            whole_taken = shape.gpus
        after = self._count(
            nodes,
            np.maximum(cluster.full[nodes] - whole_taken, 0),
            np.maximum(cluster.cpu[nodes] - shape.cpu_milli, 0),
            np.maximum(cluster.memory[nodes] - shape.memory_mib, 0),
        )
        kept.losses[nodes] = self._slots[nodes] - after
        return kept.losses

    def _count(self, nodes: Integers, full: Floats, cpu: Floats, memory: Floats) -> Floats:
        """Places on these nodes with so much free, one column per shape."""
        slots = np.minimum(np.floor(full[:, None] / self._gpus), np.floor(cpu[:, None] / self._cpu))
        slots = np.minimum(slots, np.floor(memory[:, None] / self._memory))
        return slots * self._accepts[self._cluster.model[nodes]]


class _KeptLosses:
    """Losses for one request as of a number of placements."""

    def __init__(self, losses: npt.NDArray[np.int8]) -> None:
        self.losses = losses
        self.up_to = 0

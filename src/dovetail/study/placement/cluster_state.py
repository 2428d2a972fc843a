"""The state of every node of a run in arrays: free CPU, memory and milli-GPU of each device.

Given nodes in the order that decides between equal scores. Changed by placements only; nothing ever departs. All
figures are whole numbers kept as floats, so that sums of products are exact in any order. Never chooses a node.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dovetail.model import pod_mix
from dovetail.study import workload

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.intp]

NO_DEVICE = -1  # for pods that take whole GPUs or none


class ClusterState:
    """Free capacity by node, and the order in which nodes changed."""

    def __init__(self, nodes: Sequence[workload.Node]) -> None:
        """All nodes empty."""
        self.nodes = tuple(nodes)
        self.models = tuple(sorted({node.model for node in nodes}))
        model_numbers = {model: number for number, model in enumerate(self.models)}
        most_devices = max(node.gpus for node in nodes)

        self.model = np.array([model_numbers[node.model] for node in nodes], dtype=np.intp)
        self.gpus = np.array([node.gpus for node in nodes], dtype=np.float64)
        self.cpu = np.array([node.cpu_milli for node in nodes], dtype=np.float64)
        self.memory = np.array([node.memory_mib for node in nodes], dtype=np.float64)
        self.devices = np.zeros((len(nodes), most_devices), dtype=np.float64)
        for number, node in enumerate(nodes):
            self.devices[number, : node.gpus] = pod_mix.MILLI

        self.idle = self.devices.sum(axis=1)
        self.full = self.gpus.copy()  # devices that are wholly free
        self.largest = self.devices.max(axis=1)
        self.idle_by_model = np.bincount(self.model, weights=self.idle, minlength=len(self.models))
        self.allocated_gpu_milli = 0
        self.changed: list[int] = []  # nodes in the order of placements
        self._accepting: dict[tuple[str, ...], Booleans] = {}

    def feasible(self, shape: pod_mix.Shape) -> Booleans:
        """Which nodes have room for such a pod."""
        is_feasible = (self.cpu >= shape.cpu_milli) & (self.memory >= shape.memory_mib)
        if shape.is_sharing:
            is_feasible &= self.largest >= shape.gpu_milli
        elif shape.gpus:
            is_feasible &= self.full >= shape.gpus
        if shape.models and shape.gpus:
            is_feasible &= self.accepting(shape.models)
        return is_feasible

    def accepting(self, models: tuple[str, ...]) -> Booleans:
        """Which nodes have GPUs of one of these models."""
        if models not in self._accepting:
            names = np.array(self.models)[self.model]
            self._accepting[models] = np.isin(names, models)
        return self._accepting[models]

    def changed_since(self, placements: int) -> Integers:
        """Nodes that changed after so many placements, in their order."""
        return np.array(sorted(set(self.changed[placements:])), dtype=np.intp)

    def best_fit_device(self, shape: pod_mix.Shape, node: int) -> int:
        """The fullest device of the node with room for a sharing pod; of equal ones the first."""
        free = self.devices[node]
        return int(np.argmin(np.where(free >= shape.gpu_milli, free, np.inf)))

    def place(self, shape: pod_mix.Shape, node: int, device: int) -> None:
        """Takes what the pod asks for. A pod with whole GPUs takes the first devices that are wholly free."""
        free = self.devices[node]
        if shape.is_sharing:
            if free[device] < shape.gpu_milli:
                raise AssertionError(f"device {device} of node {node} has no room for {shape}")
            free[device] -= shape.gpu_milli
        elif shape.gpus:
            whole = np.flatnonzero(free == pod_mix.MILLI)[: shape.gpus]
            free[whole] = 0

        self.cpu[node] -= shape.cpu_milli
        self.memory[node] -= shape.memory_mib
        self.idle[node] -= shape.total_gpu_milli
        self.full[node] = np.count_nonzero(free == pod_mix.MILLI)
        self.largest[node] = free.max()
        self.idle_by_model[self.model[node]] -= shape.total_gpu_milli
        self.allocated_gpu_milli += shape.total_gpu_milli
        self.changed.append(node)

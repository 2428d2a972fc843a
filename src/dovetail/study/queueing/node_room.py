"""Counts the free GPUs of nodes and finds room for the pods of a job: best fit, all pods or none.

Given the GPUs of every node. The same placement for every queue policy, so that only their order differs. Whole GPUs
only. Never decides which job is next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


class GpuNodes:
    """Free GPUs by node. Finding room is linear in the GPUs of the largest node."""

    def __init__(self, gpus_by_node: Sequence[int]) -> None:
        self.total = sum(gpus_by_node)
        self.free_total = self.total
        self._free = list(gpus_by_node)
        self._largest = max(gpus_by_node, default=0)
        # Nodes by the number of their free GPUs; a dict keeps the order in which they came to it.
        self._nodes_by_free: list[dict[int, None]] = [{} for _ in range(self._largest + 1)]
        for node, free in enumerate(gpus_by_node):
            self._nodes_by_free[free][node] = None

    def counts(self) -> Iterator[tuple[int, int]]:
        """How many nodes have so many free GPUs."""
        for free in range(1, self._largest + 1):
            yield free, len(self._nodes_by_free[free])

    def fits(self, pods: int, gpus_per_pod: int) -> bool:
        """Whether all pods have room now."""
        if pods * gpus_per_pod > self.free_total:
            return False
        room = 0
        for free in range(gpus_per_pod, self._largest + 1):
            room += len(self._nodes_by_free[free]) * (free // gpus_per_pod)
            if room >= pods:
                return True
        return False

    def place(self, pods: int, gpus_per_pod: int) -> tuple[int, ...] | None:
        """The node of every pod, each the fullest with room; None if not all have room."""
        if not self.fits(pods, gpus_per_pod):
            return None
        return tuple(self._place_pod(gpus_per_pod) for _ in range(pods))

    def release(self, nodes: Iterable[int], gpus_per_pod: int) -> None:
        """Takes a placement back."""
        for node in nodes:
            self._set_free(node, self._free[node] + gpus_per_pod)

    def take(self, nodes: Iterable[int], gpus_per_pod: int) -> None:
        """Repeats a placement that was released."""
        for node in nodes:
            self._set_free(node, self._free[node] - gpus_per_pod)

    def _place_pod(self, gpus: int) -> int:
        free = next(free for free in range(gpus, self._largest + 1) if self._nodes_by_free[free])
        node = next(iter(self._nodes_by_free[free]))
        self._set_free(node, free - gpus)
        return node

    def _set_free(self, node: int, free: int) -> None:
        before = self._free[node]
        del self._nodes_by_free[before][node]
        self._nodes_by_free[free][node] = None
        self._free[node] = free
        self.free_total += free - before

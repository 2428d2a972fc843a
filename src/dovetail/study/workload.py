"""What a study replays: nodes, the order in which pods arrive, and the mix they are drawn from.

Given by a reader of traces. Frozen data; never reads a file and never places a pod.
"""

from __future__ import annotations

import msgspec

from dovetail.model import pod_mix


class Node(msgspec.Struct, frozen=True):
    """One machine: what it has in all, and the model of its GPUs."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


class Workload(msgspec.Struct, frozen=True):
    """A run's input. Nodes stand in the order that decides between equal scores, best first."""

    name: str
    seed: int
    nodes: tuple[Node, ...]
    arrivals: tuple[pod_mix.Shape, ...]
    mix: pod_mix.Mix
    has_published_order: bool

    @property
    def gpu_milli(self) -> int:
        """Capacity of all nodes."""
        return pod_mix.MILLI * sum(node.gpus for node in self.nodes)

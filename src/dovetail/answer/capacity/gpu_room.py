"""The free GPUs of a node, as DRA drivers or a device plugin count them.

Given a World. In thousandths of GPUs. Never decides what could use them.
"""

from __future__ import annotations

from dovetail.world.devices import gpu_ledger
from dovetail.world.world import World


def free_milli_gpu(world: World, node: str) -> int:
    """The free GPUs of a node: of DRA drivers, and counted by a device plugin."""
    ledger = gpu_ledger.Ledger()
    free = sum(ledger.free_milli_gpu(pool) for pool in world.view(node).pools)
    labels = world.nodes[node].metadata.labels
    for name, count in world.free(node).scalars:
        free += gpu_ledger.plugin_cost(name, max(count, 0), labels)
    return free

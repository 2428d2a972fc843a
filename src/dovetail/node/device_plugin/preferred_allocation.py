"""Which of the free devices a container should get: GPUs that are well connected, shares that are spread or packed.

Given the devices of a resource and the kubelet's request, returns ids. Whole GPUs: the set with the most NVLink between
its members, then the one that leaves the best connected rest. Others: spread over GPUs, or packed on few. The kubelet
may choose differently. Never touches a GPU.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final

from dovetail.node.device_plugin.resources import PluginDevice
from dovetail.node.inventory import Gpu

MOST_SETS: Final = 20_000  # C(16, 8) is 12,870: a DGX-2 is still searched through

# What a pair of GPUs is worth. One step outweighs all pairs of the step below: 16 GPUs have 120 pairs.
_NVLINK: Final = 1_000_000
_SAME_ROOT: Final = 1_000
_SAME_NUMA: Final = 1


class Spread(StrEnum):
    """How shares and MIG devices are chosen."""

    DISTRIBUTED = "distributed"  # the GPU with the most free ones first
    PACKED = "packed"  # the GPU with the fewest free ones first


def preferred(
    devices: Iterable[PluginDevice],
    *,
    available: Collection[str],
    required: Collection[str],
    size: int,
    spread: Spread = Spread.DISTRIBUTED,
) -> list[str]:
    """Ids for a container, the required ones among them; fewer than `size` if there are not enough."""
    by_id = {device.id: device for device in devices}
    fixed = [by_id[id_] for id_ in required if id_ in by_id]
    free = [device for id_, device in by_id.items() if id_ in available and id_ not in required]
    wanted = min(max(size - len(fixed), 0), len(free))
    are_whole_gpus = all(device.id == device.gpu.uuid for device in by_id.values())
    if are_whole_gpus:
        chosen = _connected(free, fixed, wanted)
    else:
        chosen = _spread(free, fixed, wanted, spread)
    return [device.id for device in (*fixed, *chosen)]


def _connected(
    free: Sequence[PluginDevice], fixed: Sequence[PluginDevice], wanted: int
) -> list[PluginDevice]:
    if wanted == 0:
        return []
    if math.comb(len(free), wanted) > MOST_SETS:
        return _greedy(free, fixed, wanted)

    # Each pair is looked at once: the sets share them.
    fixed_worth = {
        device.id: sum(_pair_worth(device.gpu, member.gpu) for member in fixed) for device in free
    }
    pair_worth = {
        (first.id, second.id): _pair_worth(first.gpu, second.gpu)
        for first, second in itertools.combinations(free, 2)
    }
    every_id = [device.id for device in free]

    def worth(chosen: Collection[str]) -> tuple[int, int]:
        rest = [id_ for id_ in every_id if id_ not in chosen]
        inside = sum(pair_worth[pair] for pair in itertools.combinations(chosen, 2))
        inside += sum(fixed_worth[id_] for id_ in chosen)
        outside = sum(pair_worth[pair] for pair in itertools.combinations(rest, 2))
        return (inside, outside)

    # Of equal sets `max` takes the first, which has the lowest minor numbers.
    sets: Iterator[Collection[str]] = itertools.combinations(every_id, wanted)
    best = max(sets, key=worth)
    return [device for device in free if device.id in best]


def _greedy(
    free: Sequence[PluginDevice], fixed: Sequence[PluginDevice], wanted: int
) -> list[PluginDevice]:
    """Adds the best neighbour again and again. Quadratic; for nodes with more GPUs than can be searched through."""
    chosen: list[PluginDevice] = []
    rest = list(free)
    while len(chosen) < wanted:
        members = [device.gpu for device in (*fixed, *chosen)]
        candidates = members or [device.gpu for device in rest]
        best = max(rest, key=lambda device: sum(_pair_worth(device.gpu, gpu) for gpu in candidates))
        chosen.append(best)
        rest.remove(best)
    return chosen


def _spread(
    free: Sequence[PluginDevice], fixed: Sequence[PluginDevice], wanted: int, spread: Spread
) -> list[PluginDevice]:
    chosen: list[PluginDevice] = []
    rest = list(free)
    taken = Counter(device.gpu.minor for device in fixed)
    while len(chosen) < wanted:
        room = Counter(device.gpu.minor for device in rest)
        sign = -1 if spread is Spread.DISTRIBUTED else 1
        # A container that asks for several gets different GPUs while there are any.
        best = min(
            rest,
            key=lambda device: (taken[device.gpu.minor], sign * room[device.gpu.minor]),
        )
        chosen.append(best)
        rest.remove(best)
        taken[best.gpu.minor] += 1
    return chosen


def _pair_worth(first: Gpu, second: Gpu) -> int:
    worth = 0
    if second.pci_bus_id in first.nvlink_peers or first.pci_bus_id in second.nvlink_peers:
        worth += _NVLINK
    if first.pcie_root is not None and first.pcie_root == second.pcie_root:
        worth += _SAME_ROOT
    if first.numa_node is not None and first.numa_node == second.numa_node:
        worth += _SAME_NUMA
    return worth

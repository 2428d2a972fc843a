"""The nearest way for a pod to start: on which nodes, and what keeps it off them.

Given the blocks of every node. Nodes with the same blocks are one way; the least that has to change decides between
ways: other pods end, the platform is healthy, an object is written differently. Never looks at the engine's reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from dovetail.answer.why.cause_codes import CauseCode
from dovetail.answer.why.obstacles.blocks import Block, Blocks, Layer, layer_of

# Idle nodes that the platform or a taint keeps the pod off count as the cause from this part of the full nodes on:
# a single drained node does not explain why a large cluster is full.
IDLE_PART: Final = 4
CONTROL_PLANE: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_CROWDED: Final = frozenset({CauseCode.BUSY, CauseCode.DEVICES_BUSY})


class Way(NamedTuple):
    """Nodes that the same things keep the pod off."""

    nodes: tuple[str, ...]
    blocks: Blocks  # those of its first node, in the order of the filters
    layer: int
    is_reserved: bool = (
        False  # idle nodes of others, while all nodes that are meant for it are full
    )

    @property
    def codes(self) -> tuple[CauseCode, ...]:
        """The causes, each once, in the order of the filters."""
        return tuple(dict.fromkeys(block.code for block in self.blocks))


def all_ways(by_node: Mapping[str, Blocks]) -> list[Way]:
    """Every way, by what keeps the pod off."""
    nodes_by_key: dict[tuple[object, ...], list[str]] = {}
    for name, blocks in by_node.items():
        key = tuple((block.layer, block.code, block.subject) for block in blocks)
        nodes_by_key.setdefault(key, []).append(name)
    return [
        Way(tuple(names), by_node[names[0]], layer_of(by_node[names[0]]))
        for names in nodes_by_key.values()
    ]


def nearest(ways: Iterable[Way], weight: Callable[[Block], float]) -> Way | None:
    """The way that takes least; None where there are no nodes. `weight` knows values that are nearly right."""
    listed = list(ways)
    if not listed:
        return None
    free = [way for way in listed if not way.blocks]
    if free:
        return _largest(free, weight)
    full = [way for way in listed if way.layer == Layer.OTHERS]
    idle = [way for way in listed if _is_idle(way, Layer.PLATFORM)]
    reserved = [way for way in listed if _is_tainted_only(way)]
    if full:
        if _are_many(idle, full):
            return _largest(idle, weight)
        if _are_many(reserved, full):
            is_crowded = any(code in _CROWDED for way in full for code in way.codes)
            return _largest(reserved, weight)._replace(is_reserved=is_crowded)
        return _largest(full, weight)
    for layer in (Layer.PLATFORM, Layer.OWNER):
        within = [way for way in listed if way.layer <= layer]
        if within:
            return _largest(within, weight)
    return _largest(listed, weight)


def _largest(ways: list[Way], weight: Callable[[Block], float]) -> Way:
    """The lightest; of equal ones that with most nodes, then the first by name."""

    def rank(way: Way) -> tuple[float, int, str]:
        return sum(map(weight, way.blocks)), -len(way.nodes), min(way.nodes)

    return min(ways, key=rank)


def _is_idle(way: Way, layer: Layer) -> bool:
    return bool(way.blocks) and all(block.layer is layer for block in way.blocks)


def _is_tainted_only(way: Way) -> bool:
    """Whether only taints keep the pod off; nodes of the control plane are for no one's pods."""
    return all(
        block.code is CauseCode.TAINT and not block.subject.startswith(CONTROL_PLANE)
        for block in way.blocks
    )


def _are_many(idle: list[Way], full: list[Way]) -> bool:
    idle_nodes = sum(len(way.nodes) for way in idle)
    full_nodes = sum(len(way.nodes) for way in full)
    return idle_nodes > 0 and idle_nodes * IDLE_PART >= full_nodes

"""Divides the unusable GPUs of each node among the free parts of its GPUs.

Given what is open (GPUs, and what is allocated of them), the nodes, and how much of each node the observed mix of work
cannot use, as the engine measured it. The smallest free part of a node counts first: a part of a GPU is of less use
than a whole one, and so a new measurement changes few records. Nodes that take no work have no usable GPUs at all.
Small changes of a measurement change nothing. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from dovetail.kubetypes.core import nodes
from dovetail.model.accounting.records import MICRO_GPU, Allocation, Asset, Unusable

FRAGMENTED: Final = "fragmented"
CORDONED: Final = "cordoned"
NOT_READY: Final = "not ready"
STEP: Final = MICRO_GPU // 20  # a measurement that differs by less is the same one
# Taints of the node controller: not-ready, unreachable, memory-pressure and their like.
_CONDITION_TAINTS: Final = "node.kubernetes.io/"
_SOFT: Final = "PreferNoSchedule"


def free_parts(
    assets: Iterable[Asset], allocations: Iterable[Allocation]
) -> dict[str, dict[str, int]]:
    """What is free, in millionths of a GPU, by node and asset."""
    held: dict[str, int] = {}
    for allocation in allocations:
        held[allocation.asset] = held.get(allocation.asset, 0) + allocation.micro_gpu
    free: dict[str, dict[str, int]] = {}
    for asset in assets:
        left = asset.count * MICRO_GPU - held.get(asset.asset, 0)
        if left > 0:
            free.setdefault(asset.node, {})[asset.asset] = left
    return free


def unusable(
    free: Mapping[str, Mapping[str, int]],
    fragmented: Mapping[str, int],
    known_nodes: Mapping[str, nodes.Node],
    before: Iterable[Unusable],
) -> list[Unusable]:
    """The unusable parts of all GPUs. They begin at 0: the recorder knows when."""
    before_by_node: dict[str, list[Unusable]] = {}
    for part in before:
        before_by_node.setdefault(part.node, []).append(part)
    parts: list[Unusable] = []
    for node, own in free.items():
        why = _closed(known_nodes.get(node))
        if why:
            parts += [Unusable(asset, node, micro, 0, why=why) for asset, micro in own.items()]
            continue
        former = [part for part in before_by_node.get(node, ()) if part.why == FRAGMENTED]
        parts += _fragmented(node, own, fragmented.get(node, 0), former)
    return parts


def _closed(node: nodes.Node | None) -> str:
    """Why a node takes no work; empty if it does."""
    if node is None:
        return ""
    if node.spec.unschedulable:
        return CORDONED
    is_kept_off = any(
        taint.key.startswith(_CONDITION_TAINTS) and taint.effect != _SOFT
        for taint in node.spec.taints
    )
    return NOT_READY if is_kept_off else ""


def _fragmented(
    node: str, free: Mapping[str, int], micro_gpu: int, former: list[Unusable]
) -> list[Unusable]:
    if _still_holds(free, micro_gpu, former):
        return former
    parts: list[Unusable] = []
    left = micro_gpu
    for asset, size in sorted(free.items(), key=lambda item: (item[1], item[0])):
        share = min(size, left)
        if share <= 0:
            break
        parts.append(Unusable(asset, node, share, 0, why=FRAGMENTED))
        left -= share
    return parts


def _still_holds(free: Mapping[str, int], micro_gpu: int, former: list[Unusable]) -> bool:
    """Whether what is recorded of a node is near enough, and still free."""
    if not former or not micro_gpu:
        return False
    total = sum(part.micro_gpu for part in former)
    is_near = abs(total - micro_gpu) < STEP
    return is_near and all(part.micro_gpu <= free.get(part.asset, 0) for part in former)

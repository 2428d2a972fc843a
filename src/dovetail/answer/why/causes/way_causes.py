"""Turns the nearest way for a pod to start into causes: what stands in its way first, then what stands there as well.

Given the way, and all blocks it was chosen from. Blocks of one cause become one sentence. Never chooses the way.
"""

from __future__ import annotations

from dovetail.answer.why.cause_codes import CauseCode
from dovetail.answer.why.causes import device_sentences, node_sentences, relation_sentences
from dovetail.answer.why.causes.reason_causes import cause
from dovetail.answer.why.obstacles.blocks import Block, Layer, Step
from dovetail.answer.why.obstacles.node_blocks import NodeBlocks
from dovetail.answer.why.obstacles.ways import Way
from dovetail.answer.why.why_answer import Cause

_RELATIONS = frozenset({Step.PORTS, Step.VOLUMES, Step.SPREAD, Step.AFFINITY, Step.KEPT})


def causes_of(way: Way, obstacles: NodeBlocks) -> tuple[Cause, ...]:
    """The causes of a way, the first being what has to change first."""
    groups: dict[CauseCode, list[Block]] = {}
    for block in sorted(way.blocks, key=lambda block: _rank(block, way)):
        groups.setdefault(block.code, []).append(block)
    return tuple(_cause(blocks, way, obstacles) for blocks in groups.values())


def _rank(block: Block, way: Way) -> tuple[int, int]:
    """Where other pods are in the way, what is short; else what only a change of objects lifts, first rules first."""
    return -block.layer, block.step


def _cause(blocks: list[Block], way: Way, obstacles: NodeBlocks) -> Cause:
    step = blocks[0].step
    if step is Step.DEVICES:
        return cause(*device_sentences.sentence(blocks, way, obstacles))
    if step in _RELATIONS:
        return cause(*relation_sentences.sentence(blocks, way, obstacles))
    return cause(*node_sentences.sentence(blocks, way, obstacles))


def is_waiting(way: Way) -> bool:
    """Whether the pod waits for other pods and for nothing else."""
    return way.layer == Layer.OTHERS

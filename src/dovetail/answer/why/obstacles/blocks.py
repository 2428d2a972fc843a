"""What keeps a pod off a node, one thing at a time, and what would lift it. Plain data with its order.

A block names the rule, its cause, and its layer: whether the block would be gone if no other pod ran, if the platform
were healthy, if nodes had no other owner, or only after a change of an object. Computes nothing.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from dovetail.answer.why.cause_codes import CauseCode


class Layer(IntEnum):
    """What has to change for a block to be gone, from the least to the most."""

    OTHERS = 1  # other pods end
    PLATFORM = 2  # the platform is healthy
    OWNER = 3  # the node or its devices belong to this scheduler
    CONFIG = 4  # an object is written differently


class Step(IntEnum):
    """The filters in the order in which nodes pass them."""

    OWNED = 1
    NAME = 2
    CORDON = 3
    TAINT = 4
    LABELS = 5
    FEATURES = 6
    GPU_CHOICE = 7
    DRIVER = 8
    CLAIMS = 9
    ROOM = 10
    DEVICES = 11
    PORTS = 12
    VOLUMES = 13
    SPREAD = 14
    AFFINITY = 15
    KEPT = 16


class Block(NamedTuple):
    """One thing that keeps the pod off a node."""

    layer: Layer
    step: Step
    code: CauseCode
    subject: str = ""  # the taint, the condition on labels, the resource, the request
    need: int = 0
    have: int = 0
    detail: str = ""
    weight: float = 1.0  # how much of what the pod is for is given up to lift it

    @property
    def key(self) -> tuple[CauseCode, str]:
        """Equal on all nodes that the same thing keeps the pod off."""
        return self.code, self.subject


Blocks = tuple[Block, ...]


def layer_of(blocks: Blocks) -> int:
    """The layer at which a node takes the pod; 0 where nothing keeps it off."""
    return max((block.layer for block in blocks), default=0)


def weight_of(blocks: Blocks) -> float:
    """What it takes to lift all of them."""
    return sum(block.weight for block in blocks)

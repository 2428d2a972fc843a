"""Reads the sentence with which the scheduler says why a pod is evicted: for whom, by which rule, where it goes on.

Given the message of a DisruptionTarget condition or the note of an event, as `live/evict` writes them. Never evicts.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from dovetail.model import plan

RULES: Final = frozenset(str(rule) for rule in plan.Rule)
_MESSAGE: Final = re.compile(
    r"(?:yields to (?P<beneficiary>\S+)|is taken back) \((?P<rule>\w+)\)"
    r"(?:: (?P<detail>.*?))?(?:; node (?P<node>\S+) is reserved for its replacement)?",
    re.DOTALL,
)


class EvictionMessage(NamedTuple):
    """What the sentence says; an empty node where the pod is not moved."""

    rule: str
    beneficiary: str
    detail: str
    node: str

    @property
    def is_move(self) -> bool:
        """Whether the pod goes on elsewhere."""
        return bool(self.node) or self.rule == plan.Rule.CONSOLIDATED


def read(message: str) -> EvictionMessage | None:
    """What the sentence says; None where it is not one of the scheduler."""
    match = _MESSAGE.fullmatch(message.strip())
    if match is None or match["rule"] not in RULES:
        return None
    return EvictionMessage(
        match["rule"], match["beneficiary"] or "", match["detail"] or "", match["node"] or ""
    )

"""What the devices refused by a selector lack: the failing parts of the expression, with the values they read."""

from __future__ import annotations

from collections import Counter
from typing import Final

from dovetail.allocate.index.device_bits import NodeDevices
from dovetail.allocate.index.pool_index import bits
from dovetail.cel import explain_verdict, selectors
from dovetail.cel.effort import Effort, Unfinished

NEAREST: Final = "; nearest: "  # begins the note, after the chain of rules
_LOOKED_AT = 32  # refused devices explained at most; more would repeat the same
_SHOWN = 3


def nearest_text(node: NodeDevices, refused: int, expression: str, effort: Effort) -> str:
    """The failing parts of the devices that came nearest, most frequent first; empty if no device was refused.

    Covers as many devices as the effort allows. Nearest are the devices with the fewest failing parts.
    """
    program = selectors.selector(expression).program
    fewest = None
    nearest: Counter[tuple[str, ...]] = Counter()
    for number, device in enumerate(bits(refused)):
        if number >= _LOOKED_AT:
            break
        pool, index = node.place(device)
        try:
            parts = explain_verdict.explain(program, node.pools[pool].devices.view(index), effort)
        except Unfinished:
            break
        failing = tuple(
            _described_part(part, expression) for part in parts if part.verdict != "true"
        )
        if fewest is None or len(failing) < fewest:
            fewest = len(failing)
            nearest.clear()
        if len(failing) == fewest:
            nearest[failing] += 1
    descriptions = [
        f"{' and '.join(failing)} ({times} devices)"
        for failing, times in nearest.most_common(_SHOWN)
        if failing
    ]
    return NEAREST + "; ".join(descriptions) if descriptions else ""


def _described_part(part: explain_verdict.Part, expression: str) -> str:
    """What was false, and the values it read; those alone where it is all of the expression."""
    values = ", ".join(f"{read.name} is {read.value}" for read in part.reads)
    if values and part.verdict == "false" and part.text == expression:
        return values
    reason = f": {part.reason}" if part.reason else ""
    where = f" where {values}" if values else ""
    return f"`{part.text}` is {part.verdict}{reason}{where}"

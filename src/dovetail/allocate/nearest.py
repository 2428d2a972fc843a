"""What the devices that a selector refuses lack: the parts of the expression that fail, with the values they read."""

from __future__ import annotations

from collections import Counter

from dovetail.allocate.facts import bits
from dovetail.allocate.ground import Ground
from dovetail.cel import explain, selectors
from dovetail.cel.effort import Effort, Unfinished

_LOOKED_AT = 32  # refused devices explained at most; more would tell the same
_SHOWN = 3


def described(ground: Ground, refused: int, expression: str, effort: Effort) -> str:
    """The failing parts of the devices that came nearest, most frequent first; empty if nobody was refused.

    Of as many devices as the effort suffices for.
    """
    program = selectors.selector(expression).program
    fewest = None
    seen: Counter[tuple[str, ...]] = Counter()
    for number, device in enumerate(bits(refused)):
        if number >= _LOOKED_AT:
            break
        pool, index = ground.place(device)
        try:
            parts = explain.explain(program, ground.pools[pool].devices.view(index), effort)
        except Unfinished:
            break
        failing = tuple(_told(part) for part in parts if part.verdict != "true")
        if fewest is None or len(failing) < fewest:
            fewest = len(failing)
            seen.clear()
        if len(failing) == fewest:
            seen[failing] += 1
    told = [f"{' and '.join(failing)} ({times} devices)" for failing, times in seen.most_common(_SHOWN) if failing]
    return f"nearest: {'; '.join(told)}" if told else ""


def _told(part: explain.Part) -> str:
    read = ", ".join(f"{one.name} is {one.value}" for one in part.reads)
    why = f": {part.reason}" if part.reason else ""
    return f"`{part.text}` is {part.verdict}{why}" + (f" where {read}" if read else "")

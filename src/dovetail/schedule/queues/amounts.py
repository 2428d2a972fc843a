"""Amounts of resources by name, as queues are charged: thousandths of a cpu and of a GPU, bytes, counts.

A name that is missing counts as zero, or, in a quota or limit, as without end. Never rounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

CPU: Final = "cpu"
MEMORY: Final = "memory"
GPU: Final = "gpu"
ENDLESS: Final = math.inf

Amounts = dict[str, int]
Bounds = Mapping[str, float]  # a missing name has no bound


def plus(one: Mapping[str, int], other: Mapping[str, int]) -> Amounts:
    """Both together."""
    found = dict(one)
    add(found, other)
    return found


def minus(one: Mapping[str, int], other: Mapping[str, int]) -> Amounts:
    """What the other leaves of the one."""
    found = dict(one)
    add(found, other, sign=-1)
    return found


def add(to: Amounts, other: Mapping[str, int], *, sign: int = 1) -> None:
    """Adds in place, or takes away."""
    for name, amount in other.items():
        to[name] = to.get(name, 0) + sign * amount


def total(listed: Iterable[Mapping[str, int]]) -> Amounts:
    """All together."""
    found: Amounts = {}
    for one in listed:
        add(found, one)
    return found


def unit(name: str) -> int:
    """What is handed out at a time: whole GPUs, else the base unit."""
    return 1000 if name == GPU or name.startswith("gpu/") else 1

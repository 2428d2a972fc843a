"""How much GPU memory work needs: the largest seen, with headroom for what a later period may bring.

Given the largest memory in each part of a window. Headroom grows with how much those differ, with how rarely the
largest was reached, with how short the window was, and with programs that ran out of memory. The default rule was
chosen by `python -m bench right-size`. Never returns less than the largest seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

PARTS: Final = 24  # that a window is divided into, so that a day is looked at by the hour
WEEK_DAYS: Final = 7.0  # a window that has seen every day of the week is not short
SHORTEST_DAYS: Final = 0.01  # a quarter of an hour: below it windows are equally short
NEAR_LARGEST: Final = 0.97  # of the largest: a part that reached so much reached the largest


class HeadroomRule(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of the largest memory is added to it, by what was seen."""

    floor: float = 0.15
    per_spread: float = 3.0  # times the standard deviation between parts, relative to the largest
    per_rarity: float = 0.1  # times the share of parts that did not reach the largest
    shortness: float = 0.2  # exponent: how many weeks would fit the window, for the two above
    out_of_memory: float = 0.25  # where programs ran out of memory
    most: float = 1.0


DEFAULT: Final = HeadroomRule()


class MemorySeen(NamedTuple):
    """The largest memory in each part of the window, of each run."""

    parts: tuple[int, ...]  # at least one
    days: float
    out_of_memory: int = 0  # times

    @property
    def largest(self) -> int:
        """The largest of all."""
        return max(self.parts)


class Headroom(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is added to the largest memory, relative to it, and why."""

    total: float
    floor: float
    spread: float
    rarity: float
    out_of_memory: float


def headroom(seen: MemorySeen, rule: HeadroomRule = DEFAULT) -> Headroom:
    """What is added."""
    weeks = WEEK_DAYS / max(seen.days, SHORTEST_DAYS)
    short = max(1.0, weeks**rule.shortness)
    for_spread = rule.per_spread * short * spread(seen.parts)
    for_rarity = rule.per_rarity * short * rarity(seen.parts)
    for_failures = rule.out_of_memory if seen.out_of_memory else 0.0
    total = min(rule.most, rule.floor + for_spread + for_rarity) + for_failures
    return Headroom(
        total=total,
        floor=rule.floor,
        spread=for_spread,
        rarity=for_rarity,
        out_of_memory=for_failures,
    )


def need(seen: MemorySeen, rule: HeadroomRule = DEFAULT) -> int:
    """The bytes that a device should have, rounded up."""
    largest = seen.largest
    return largest + math.ceil(largest * headroom(seen, rule).total)


def spread(parts: Sequence[int]) -> float:
    """The standard deviation between parts, relative to the largest."""
    largest = max(parts)
    if not largest:
        return 0.0
    mean = sum(parts) / len(parts)
    variance = sum((part - mean) ** 2 for part in parts) / len(parts)
    return math.sqrt(variance) / largest


def rarity(parts: Sequence[int]) -> float:
    """The share of parts that did not reach the largest; one part alone says little, and counts as two."""
    enough = NEAR_LARGEST * max(parts)
    reached = sum(part >= enough for part in parts)
    return 1 - reached / (len(parts) + 1)

"""Arithmetic of cost: saturating ranges of unsigned 64-bit numbers, and the basic prices.

Used by the cost at run time and by the static estimate. Fractions are doubles on purpose: how 0.1
rounds decides whether 30 characters cost 3 or 4, and clusters refuse expressions by that number.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

MAX: Final = 2**64 - 1

# cel-go, common/cost.go
IDENT_COST: Final = 1  # also a field selection
LIST_COST: Final = 10
MAP_COST: Final = 30
STRUCT_COST: Final = 40
TRAVERSAL: Final = 0.1  # per character of a string that is walked once
REGEX: Final = 0.25  # per character of a pattern

CALL_COST: Final = 1  # dispatching a function that has no better price

# apiserver, pkg/cel/library/cost.go
AUTHORIZATION_COST: Final = 350_000
REQUIREMENTS_PER_CHARACTER: Final = 0.5
REQUIREMENT_COST: Final = float(LIST_COST + STRUCT_COST)


class Range(NamedTuple):
    """The least and the most a size or a cost can be."""

    min: int
    max: int

    def plus(self, other: Range) -> Range:
        """The sum, end by end."""
        return Range(min(self.min + other.min, MAX), min(self.max + other.max, MAX))

    def times(self, other: Range) -> Range:
        """The product, end by end."""
        return Range(min(self.min * other.min, MAX), min(self.max * other.max, MAX))

    def scaled(self, factor: float) -> Range:
        """Each end times a factor, rounded up."""
        return Range(_scaled(self.min, factor), _scaled(self.max, factor))

    def union(self, other: Range) -> Range:
        """The smallest range holding both."""
        return Range(min(self.min, other.min), max(self.max, other.max))


UNKNOWN: Final = Range(0, MAX)
NOTHING: Final = Range(MAX, 0)  # the neutral element of union
ZERO: Final = Range(0, 0)
ONE: Final = Range(1, 1)


def exactly(value: int) -> Range:
    """A range of one number."""
    return Range(value, value)


def wrapped(value: int) -> int:
    """A number modulo 2**64; a few upstream formulas wrap instead of saturating."""
    return value & MAX


def to_unsigned(value: float) -> int:
    """A number as 64 bits, as Go on amd64 converts a double: one that is too large becomes 2**63."""
    return int(value) if value < 2.0**64 else 2**63


def selector_cost(length: Range) -> Range:
    """Parsing a field or label selector: one traversal, and one requirement for every two characters."""
    requirements = length.scaled(REQUIREMENTS_PER_CHARACTER).scaled(REQUIREMENT_COST)
    return exactly(LIST_COST).plus(length.scaled(TRAVERSAL)).plus(requirements)


def _scaled(value: int, factor: float) -> int:
    as_double = float(value)
    if as_double > 0 and factor > 0 and as_double > 2.0**64 / factor:
        return MAX
    return min(math.ceil(as_double * factor), MAX)

"""Turns values into places on a chart, and chooses which values the axes name. Linear, and logarithmic from 1 on.

Given the range of the data. Returns floats and texts; never draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

_NICE: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
_TIMES: Final = (  # seconds that people have names for
    (1, "1 s"),
    (10, "10 s"),
    (60, "1 min"),
    (600, "10 min"),
    (3600, "1 h"),
    (6 * 3600, "6 h"),
    (86_400, "1 day"),
    (7 * 86_400, "1 week"),
    (30 * 86_400, "30 days"),
)


class Tick(NamedTuple):
    """A value that an axis names."""

    value: float
    label: str


class Scale(NamedTuple):
    """Values from `low` to `high` lie from place `begin` to place `end`."""

    low: float
    high: float
    begin: float
    end: float
    is_log: bool = False

    def at(self, value: float) -> float:
        """The place of a value; values outside lie on the border."""
        low, high = self.low, self.high
        if self.is_log:
            low, high, value = math.log1p(low), math.log1p(high), math.log1p(max(value, 0))
        part = (value - low) / (high - low) if high > low else 0.0
        return round(self.begin + min(max(part, 0.0), 1.0) * (self.end - self.begin), 1)


def amounts(high: float, *, count: int = 4) -> list[Tick]:
    """Round values from 0 to at least `high`."""
    step = _step(high / count if high > 0 else 1.0)
    return [
        Tick(number * step, amount(number * step))
        for number in range(math.ceil(high / step - 1e-9) + 1)
    ]


def between(low: float, high: float, *, count: int = 5) -> list[Tick]:
    """Round values from at most `low` to at least `high`."""
    step = _step(max(high - low, abs(high) / 100, 1e-3) / count)
    first = math.floor(low / step + 1e-9)
    last = max(math.ceil(high / step - 1e-9), first + 1)
    return [Tick(number * step, f"{number * step:,.6g}") for number in range(first, last + 1)]


def days(seconds: float) -> list[Tick]:
    """Days of a run, or hours where it is short."""
    unit, name = (86_400.0, "day") if seconds > 2 * 86_400 else (3600.0, "hour")
    step = max(1.0, _step(seconds / unit / 8))
    count = int(seconds / unit / step)
    return [Tick(number * step * unit, f"{name} {number * step:g}") for number in range(count + 1)]


def times(high: float) -> list[Tick]:
    """Durations for a logarithmic axis."""
    return [Tick(float(value), label) for value, label in _TIMES if value <= high]


def duration(seconds: float) -> str:
    """A duration as people say it."""
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.0f} s"


def amount(value: float) -> str:
    """A number without more digits than help."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.2g}" if abs(value) < 1 else f"{value:.1f}"


def highest(values: Sequence[float | None]) -> float:
    """The largest of the values that are defined."""
    return max((value for value in values if value is not None), default=0.0)


def _step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least)) if least > 0 else 1.0
    return next(nice * power for nice in _NICE if nice * power >= least - 1e-12)

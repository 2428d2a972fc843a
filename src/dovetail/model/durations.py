"""Reads lengths of time as people write them: 90s, 10m, 2h, 1h30m, 1.5h, 1:30:00, 2-12:00:00, or plain seconds.

Given text, answers whole seconds or nothing. Never raises.
"""

from __future__ import annotations

import re
from typing import Final

LONGEST_SECONDS: Final = 100 * 365 * 24 * 3600  # beyond a century nobody means it
_UNITS: Final = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART: Final = r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|[dhms])"
_PARTS: Final = re.compile(rf"(?:{_PART})+", re.ASCII)
_ONE: Final = re.compile(_PART, re.ASCII)
_CLOCK: Final = re.compile(r"(?:([0-9]{1,6})-)?([0-9]{1,6}):([0-5]?[0-9])(?::([0-5]?[0-9]))?", re.ASCII)
_PLAIN: Final = re.compile(r"[0-9]{1,12}", re.ASCII)


def seconds(text: str) -> int | None:
    """Whole seconds, rounded up; None where it is no length of time. `1:30:00` and `1:30` are hours first."""
    written = text.strip()
    if _PLAIN.fullmatch(written):
        return _bounded(float(written))
    if clock := _CLOCK.fullmatch(written):
        days, hours, minutes, rest = (int(part or 0) for part in clock.groups())
        return _bounded(days * 86_400 + hours * 3600 + minutes * 60 + rest)
    if _PARTS.fullmatch(written):
        return _bounded(sum(float(number) * _UNITS[unit] for number, unit in _ONE.findall(written)))
    return None


def _bounded(amount: float) -> int | None:
    whole = int(-(-amount // 1))
    return whole if whole <= LONGEST_SECONDS else None

"""Plain text for people: tables without borders, ages, amounts, short names.

Given values, returns strings. Never prints, never inspects the terminal.
"""

import datetime
import re
from collections.abc import Sequence

from dovetail import timestamps
from dovetail.model import plaintext

GAP = "   "
CUT = "..."  # ends what was cut
_UNITS = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with aligned columns, uppercase headers first. No trailing blanks."""
    lines = [[header.upper() for header in headers]]
    for row in rows:
        lines.append([cell or "-" for cell in row])
    return aligned(lines)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with aligned columns. No trailing blanks."""
    lines = [[plaintext.escaped(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [GAP.join(map(str.ljust, line, widths)).rstrip() for line in lines]


def fitted(line: str, columns: int) -> str:
    """The line, cut to so many columns; what is cut off is marked."""
    if len(line) <= columns:
        return line
    return line[: max(0, columns - len(CUT))].rstrip() + CUT


def age(since: str | None, now: datetime.datetime) -> str:
    """How long ago, as kubectl writes it: 5s, 3m20s, 5h, 2d4h."""
    then = timestamps.parse_or_none(since)
    if then is None:
        return "-"

    # The thresholds of apimachinery's duration.HumanDuration.
    seconds = max(0, int((now - then).total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _two_units(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two_units(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two_units(days, "d", hours % 24, "h")
    return f"{days}d" if days < 730 else f"{days // 365}y"


def _two_units(large: int, large_unit: str, small: int, small_unit: str) -> str:
    """`3m20s`, or `3m` if nothing is left."""
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


def binary(amount: int) -> str:
    """Bytes in the largest unit that keeps the number above one: 79.6Gi, 2Ti."""
    value, unit = float(amount), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f}".removesuffix(".0") + _UNITS[unit]


def product(name: str) -> str:
    """A product name without the maker: "H100 80GB HBM3"."""
    return name.removeprefix("NVIDIA ")


def short_id(identity: str) -> str:
    """Cuts a uuid to its first group and keeps the text around it: GPU-3abab05b, 1c2d3e4f.0."""
    return re.sub(r"([0-9a-f]{8})(-[0-9a-f]{4}){3}-[0-9a-f]{12}", r"\1", identity)


def natural(name: str) -> list[tuple[int, int, str]]:
    """A sort key that reads numbers: gpu-2 before gpu-10."""
    parts = re.findall(r"[0-9]+|[^0-9]+", name)
    return [_counting(part) if part.isdecimal() else (1, 0, part) for part in parts]


def counted(number: int, noun: str) -> str:
    """`1 node`, `3 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _counting(digits: str) -> tuple[int, int, str]:
    """Orders digits by value without converting them: names may have more digits than int() accepts."""
    significant = digits.lstrip("0")
    return (0, len(significant), significant)

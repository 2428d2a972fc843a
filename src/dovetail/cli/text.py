"""Plain text for people: tables without borders, ages, amounts, short names.

Given values, returns strings. Never prints, never asks what the terminal is like.
"""

import datetime
import re
from collections.abc import Sequence

from dovetail.model import plaintext

GAP = "   "
_UNITS = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with aligned columns, uppercase headers first. No trailing blanks."""
    shown = ([plaintext.escaped(cell) or "-" for cell in row] for row in rows)
    lines = [[header.upper() for header in headers], *shown]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def age(since: str | None, now: datetime.datetime) -> str:
    """How long ago, as kubectl writes it: 5s, 3m20s, 5h, 2d4h."""
    moment = _moment(since)
    if moment is None:
        return "-"
    seconds = max(0, int((now - moment).total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    return f"{days}d" if days < 730 else f"{days // 365}y"


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
    """A uuid to its first group, whatever stands around it: GPU-3abab05b, 1c2d3e4f.0."""
    return re.sub(r"([0-9a-f]{8})(-[0-9a-f]{4}){3}-[0-9a-f]{12}", r"\1", identity)


def natural(name: str) -> list[tuple[int, int, str]]:
    """A sort key that counts: gpu-2 before gpu-10."""
    parts = re.findall(r"[0-9]+|[^0-9]+", name)
    return [_counting(part) if part.isdecimal() else (1, 0, part) for part in parts]


def counted(number: int, thing: str) -> str:
    """`1 node`, `3 nodes`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _counting(digits: str) -> tuple[int, int, str]:
    """Numbers in order without making one: of more digits than a number may have, there are names too."""
    significant = digits.lstrip("0")
    return (0, len(significant), significant)


def _moment(written: str | None) -> datetime.datetime | None:
    try:
        moment = datetime.datetime.fromisoformat(written or "")
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)

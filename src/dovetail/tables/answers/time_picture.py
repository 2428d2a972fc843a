"""What pictures of nodes over time share: the line of time, the GPUs in service under it, the document around them.

Given times and texts; returns pieces of an SVG that needs nothing else, or an HTML page around one. Every text is
escaped, there is no script, and colours follow the reader's light or dark setting. Never decides what is drawn.
"""

from __future__ import annotations

import datetime
import html
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from dovetail import timestamps

WIDTH: Final = 960
LEFT: Final = 170  # of the names
RIGHT: Final = 16
ROW: Final = 16
LOW_ROW: Final = 4  # where there are many nodes: only waves are named
MOST_NAMED: Final = 80
CURVE: Final = 90  # height of the GPUs in service
SHOWN_NAME: Final = 22  # characters
TICKS: Final = 6
_STEPS: Final = (300, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800)  # seconds

STYLE: Final = """
.rollout { font: 12px system-ui, sans-serif; color-scheme: light dark; background: light-dark(#fff, #16181d); }
.rollout text { fill: light-dark(#1c1f24, #e7e9ee); }
.rollout .quiet { fill: light-dark(#5b6270, #a4abb8); }
.rollout .grid { stroke: light-dark(#d9dde3, #343943); stroke-width: 1; }
.rollout .curve { fill: none; stroke: light-dark(#1a6e2e, #7fd694); stroke-width: 2; }
.rollout .low { stroke-dasharray: 4 3; }
"""


class Scale(NamedTuple):
    """Times to places from left to right."""

    begin: datetime.datetime
    seconds: float

    def x(self, written: str) -> float:
        """The place of a written time."""
        return self.place(timestamps.parse(written))

    def place(self, moment: datetime.datetime) -> float:
        """The place of a time."""
        return self.at((moment - self.begin).total_seconds())

    def at(self, seconds: float) -> float:
        """The place so many seconds after the beginning."""
        share = min(max(seconds / self.seconds, 0.0), 1.0)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


class Curve(NamedTuple):
    """GPUs in service from each time on."""

    kind: str  # classes of its line
    levels: Sequence[tuple[str, int]]


def document(
    title: str, description: str, parts: Iterable[str], *, height: float, style: str
) -> str:
    """The picture."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="rollout" role="img" viewBox="0 0 {WIDTH} '
        f'{height:g}" width="{WIDTH}" height="{height:g}" aria-labelledby="rollout-title rollout-text">',
        f'<title id="rollout-title">{escaped(title)}</title>',
        f'<desc id="rollout-text">{escaped(description)}</desc>',
        f"<style>{STYLE}{style}</style>",
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def page(title: str, picture: str, lines: Iterable[str]) -> str:
    """A page with the picture, and text under it."""
    heading = escaped(title)
    text = "\n".join(map(escaped, lines))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{heading}</title>\n<style>:root {{ color-scheme: light dark; }} "
        "body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; } "
        ".wide { overflow-x: auto; } h1 { font-size: 1.3rem; }</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{heading}</h1>\n<div class="wide">\n{picture}</div>\n'
        f'<div class="wide"><pre>{text}</pre></div>\n</main>\n</body>\n</html>\n'
    )


def grid(scale: Scale, top: float, bottom: float) -> Iterator[str]:
    """Lines and texts of times."""
    wanted = scale.seconds / TICKS
    step = next((step for step in _STEPS if step >= wanted), math.ceil(wanted))
    for number in range(int(scale.seconds // step) + 1):
        x = scale.at(number * step)
        at = scale.begin + datetime.timedelta(seconds=number * step)
        label = at.strftime("%d %b %H:%M" if scale.seconds > 20 * 3600 else "%H:%M")
        yield f'<line class="grid" x1="{x:g}" x2="{x:g}" y1="{top - 6:g}" y2="{bottom:g}"/>'
        yield f'<text class="quiet" x="{x:g}" y="{top - 12:g}" text-anchor="middle">{label}</text>'


def service(
    curves: Sequence[Curve],
    total: int,
    scale: Scale,
    top: float,
    *,
    note: str,
    until: str | None = None,
) -> Iterator[str]:
    """GPUs in service as lines of steps, the last of which counts; nothing where no GPUs are known."""
    if not total:
        return
    lowest = min((gpus for _, gpus in curves[-1].levels), default=total)
    yield f'<text x="8" y="{top + 12:g}">GPUs in service</text>'
    yield f'<text class="quiet" x="8" y="{top + 28:g}">{total} of the nodes here,</text>'
    yield f'<text class="quiet" x="8" y="{top + 44:g}">at least {lowest}{note}</text>'
    end = scale.x(until) if until is not None else WIDTH - RIGHT
    for kind, levels_ in curves:
        points = [f"M {scale.at(0):g} {top:g}"]
        for at, gpus in levels_:
            y = top + CURVE * (1 - gpus / total)
            points.append(f"H {scale.x(at):g} V {y:.1f}")
        points.append(f"H {end:g}")
        yield f'<path class="{kind}" d="{" ".join(points)}"/>'
    y = top + CURVE
    yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:g}" y2="{y:g}"/>'


def row_height(nodes: int) -> int:
    """The height of a row, so that many nodes fit on a page."""
    return ROW if nodes <= MOST_NAMED else LOW_ROW


def short(name: str) -> str:
    """The name, as far as it fits."""
    return name if len(name) <= SHOWN_NAME else f"{name[: SHOWN_NAME - 1]}…"


def escaped(text: str) -> str:
    """The text as it may stand in a document."""
    return html.escape(text)

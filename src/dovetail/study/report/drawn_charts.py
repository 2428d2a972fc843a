"""Draws charts as SVG: lines over time, distributions, bars, and points beside a line that means "as if alone".

Given numbers and names. Every name is escaped; colours are classes of the page (`c0`, `c1`, ... by policy), so that
they follow light and dark and a policy can be hidden. Returns text; never chooses what to show.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from dovetail.study.report import chart_scales

WIDTH: Final = 1000
HEIGHT: Final = 260
LEFT: Final = 64
RIGHT: Final = 18
TOP: Final = 12
BOTTOM: Final = 26
BAR: Final = 20
ROW: Final = 28


class Series(NamedTuple):
    """Values of one policy; `kind` is its class."""

    name: str
    kind: str
    values: Sequence[float]


class Spot(NamedTuple):
    """A point of a scatter plot; `text` shows under the pointer."""

    x: float
    y: float
    kind: str
    text: str


class Amount(NamedTuple):
    """A bar of one policy."""

    name: str
    kind: str
    value: float | None
    text: str


def lines(title: str, series: Sequence[Series], *, seconds: float, top: float | None = None) -> str:
    """Curves over time; `top` draws a line that means all there is."""
    high = max(chart_scales.highest([value for each in series for value in each.values]), top or 0)
    ticks = chart_scales.amounts(high or 1)
    x = chart_scales.Scale(0, seconds, LEFT, WIDTH - RIGHT)
    y = chart_scales.Scale(0, ticks[-1].value, HEIGHT - BOTTOM, TOP)
    parts = [*_across(ticks, y, WIDTH), *_down(chart_scales.days(seconds), x, HEIGHT)]
    if top is not None:
        at = y.at(top)
        parts.append(f'<line class="limit" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>')
    for each in series:
        step = seconds / max(len(each.values), 1)
        points = [
            f"{x.at((number + 0.5) * step)},{y.at(value)}"
            for number, value in enumerate(each.values)
        ]
        parts.append(_polyline(each, points))
    return _svg(title, WIDTH, HEIGHT, parts)


def distribution(
    title: str,
    series: Sequence[Series],
    percents: Sequence[float],
    *,
    high: float,
    width: int = WIDTH,
    height: int = HEIGHT,
) -> str:
    """What percent of jobs waited at most so long; time is logarithmic."""
    x = chart_scales.Scale(0, max(high, 60.0), LEFT, width - RIGHT, is_log=True)
    y = chart_scales.Scale(0, 100, height - BOTTOM, TOP)
    ticks = [chart_scales.Tick(percent, f"{percent:g} %") for percent in (0, 25, 50, 75, 100)]
    times = [chart_scales.Tick(0, "0"), *chart_scales.times(x.high)]
    if width < WIDTH:
        times = [tick for tick in times if tick.label in ("0", "1 min", "1 h", "1 day")]
    parts = [*_across(ticks, y, width), *_down(times, x, height)]
    for each in series:
        if each.values:
            places = zip(each.values, percents, strict=True)
            points = [f"{x.at(value)},{y.at(percent)}" for value, percent in places]
            parts.append(_polyline(each, [f"{LEFT},{y.at(0)}", *points]))
    return _svg(title, width, height, parts)


def bars(title: str, amounts: Sequence[Amount], *, mark: float | None = None) -> str:
    """A bar for each policy, with its value; `mark` draws a line across."""
    width, left, right = 480, 96, 84
    height = ROW * len(amounts) + 8
    high = max(chart_scales.highest([each.value for each in amounts]), mark or 0) or 1.0
    x = chart_scales.Scale(0, high, left, width - right)
    parts: list[str] = []
    for number, each in enumerate(amounts):
        parts += _bar(each, x, 4 + ROW * number, left)
    if mark is not None:
        at = x.at(mark)
        parts.append(f'<line class="limit" x1="{at}" x2="{at}" y1="0" y2="{height}"/>')
    return _svg(title, width, height, parts)


def points(
    title: str,
    rows: Mapping[str, Sequence[tuple[str, str, float | None]]],
    *,
    mark: float,
    say: Callable[[float], str],
) -> str:
    """A row for each queue with a point for each policy; `mark` draws a line down."""
    left, foot = 150, 26
    height = ROW * len(rows) + foot + 6
    values = [value for row in rows.values() for _, _, value in row]
    ticks = chart_scales.amounts(max(chart_scales.highest(values), mark * 1.2), count=6)
    x = chart_scales.Scale(0, ticks[-1].value, left, WIDTH - RIGHT)
    parts = list(_down(ticks, x, height))
    at = x.at(mark)
    parts.append(f'<line class="limit" x1="{at}" x2="{at}" y1="2" y2="{height - foot}"/>')
    for number, (name, row) in enumerate(rows.items()):
        middle = 6 + ROW * number + ROW / 2
        parts.append(
            f'<text x="{left - 12}" y="{middle + 4}" text-anchor="end">{_escaped(name)}</text>'
        )
        parts.append(
            f'<line class="grid" x1="{left}" x2="{WIDTH - RIGHT}" y1="{middle}" y2="{middle}"/>'
        )
        for policy, kind, value in row:
            if value is not None:
                title_ = f"<title>{_escaped(f'{name}, {policy}: {say(value)}')}</title>"
                place = f'cx="{x.at(value)}" cy="{middle}" r="6"'
                parts.append(f'<circle class="dot {kind}" {place}>{title_}</circle>')
    return _svg(title, WIDTH, height, parts)


def scatter(title: str, spots: Sequence[Spot], *, across: str, up: str) -> str:
    """Spots by two amounts; the axes begin near the smallest ones and are named `across` and `up`."""
    x, x_ticks = _near(spots, lambda spot: spot.x, begin=LEFT, end=WIDTH - RIGHT)
    y, y_ticks = _near(spots, lambda spot: spot.y, begin=HEIGHT - BOTTOM, end=TOP + 14)
    parts = [*_across(y_ticks, y, WIDTH), *_down(x_ticks, x, HEIGHT)]
    parts.append(f'<text x="{LEFT}" y="{TOP}">{_escaped(up)}</text>')
    parts.append(
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT + 10}" text-anchor="end">{_escaped(across)}</text>'
    )
    for spot in spots:
        place = f'cx="{x.at(spot.x)}" cy="{y.at(spot.y)}" r="6"'
        label = f"<title>{_escaped(spot.text)}</title>"
        parts.append(f'<circle class="dot {spot.kind}" {place}>{label}</circle>')
    return _svg(title, WIDTH, HEIGHT + 16, parts)


def _near(
    spots: Sequence[Spot], value: Callable[[Spot], float], *, begin: float, end: float
) -> tuple[chart_scales.Scale, list[chart_scales.Tick]]:
    """A scale around the values, so that small differences are seen."""
    ticks = chart_scales.between(min(map(value, spots)), max(map(value, spots)))
    return chart_scales.Scale(ticks[0].value, ticks[-1].value, begin, end), ticks


def _bar(each: Amount, x: chart_scales.Scale, y: float, left: float) -> Iterator[str]:
    middle = y + BAR / 2 + 4
    yield f'<g class="{each.kind}"><title>{_escaped(f"{each.name}: {each.text}")}</title>'
    yield f'<text x="{left - 8}" y="{middle}" text-anchor="end">{_escaped(each.name)}</text>'
    end = x.at(each.value or 0)
    length = max(end - left, 1.5)
    yield f'<rect class="bar" x="{left}" y="{y}" width="{length:.1f}" height="{BAR}" rx="3"/>'
    yield f'<text class="value" x="{left + length + 7:.1f}" y="{middle}">{_escaped(each.text)}</text></g>'


def _polyline(each: Series, places: Sequence[str]) -> str:
    points = " ".join(places)
    title = f"<title>{_escaped(each.name)}</title>"
    return f'<polyline class="line {each.kind}" points="{points}">{title}</polyline>'


def _across(
    ticks: Sequence[chart_scales.Tick], y: chart_scales.Scale, width: float
) -> Iterator[str]:
    for tick in ticks:
        at = y.at(tick.value)
        yield f'<line class="grid" x1="{LEFT}" x2="{width - RIGHT}" y1="{at}" y2="{at}"/>'
        yield f'<text class="quiet" x="{LEFT - 8}" y="{at + 4}" text-anchor="end">{tick.label}</text>'


def _down(
    ticks: Sequence[chart_scales.Tick], x: chart_scales.Scale, height: float
) -> Iterator[str]:
    for tick in ticks:
        at = x.at(tick.value)
        yield f'<line class="grid" x1="{at}" x2="{at}" y1="{TOP}" y2="{height - BOTTOM}"/>'
        # The last label would leave the picture.
        anchor = "end" if at > x.end - 20 else "middle"
        yield f'<text class="quiet" x="{at}" y="{height - 8}" text-anchor="{anchor}">{tick.label}</text>'


def _svg(title: str, width: float, height: float, parts: Sequence[str]) -> str:
    head = (
        f'<svg role="img" viewBox="0 0 {width} {height}" aria-label="{_escaped(title)}" '
        'xmlns="http://www.w3.org/2000/svg">'
    )
    return "\n".join((head, *parts, "</svg>"))


def _escaped(text: str) -> str:
    return html.escape(text)

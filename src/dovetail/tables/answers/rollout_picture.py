"""The plan of a roll-out as a picture: a row per node over time, GPUs in service under it, starts that move.

Given the plan; returns an SVG that needs nothing else, or an HTML page around it. The same plan gives the same bytes.
Every text of the cluster is escaped; there is no script, and colours follow the reader's light or dark setting. What
happens to a node inside its time (drain, installation, validation) has no times of its own in a plan. Never writes.
"""

from __future__ import annotations

import datetime
import html
import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from dovetail import timestamps
from dovetail.answer.rollout import rollout_answer as answers
from dovetail.tables.answers import rollout_table

WIDTH: Final = 960
LEFT: Final = 170  # of the names
RIGHT: Final = 16
ROW: Final = 16
LOW_ROW: Final = 4  # where there are many nodes: only waves are named
MOST_NAMED: Final = 80
CURVE: Final = 90  # height of the GPUs in service
SHOWN_SLIPS: Final = 20
SHOWN_NAME: Final = 22  # characters
TICKS: Final = 6
LEGEND: Final = (
    "dark: out of service to p50; pale: to p90; brown: canary; red edge: work leaves the node"
)
_STEPS: Final = (300, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800)  # seconds

STYLE: Final = """
.rollout { font: 12px system-ui, sans-serif; color-scheme: light dark; background: light-dark(#fff, #16181d); }
.rollout text { fill: light-dark(#1c1f24, #e7e9ee); }
.rollout .quiet { fill: light-dark(#5b6270, #a4abb8); }
.rollout .grid { stroke: light-dark(#d9dde3, #343943); stroke-width: 1; }
.rollout .node { fill: light-dark(#2f6fb3, #6aa9ea); } .rollout .late { fill: light-dark(#a9c7e6, #2f5379); }
.rollout .canary { fill: light-dark(#8a5a00, #e0ac4c); } .rollout .drain { fill: light-dark(#a3140a, #ff9d93); }
.rollout .curve { fill: none; stroke: light-dark(#1a6e2e, #7fd694); stroke-width: 2; }
.rollout .low { stroke-dasharray: 4 3; } .rollout .slip { stroke: light-dark(#a3140a, #ff9d93); stroke-width: 2; }
"""


class _Scale(NamedTuple):
    """Times to places from left to right."""

    begin: datetime.datetime
    seconds: float

    def x(self, written: str) -> float:
        return self.at((timestamps.parse(written) - self.begin).total_seconds())

    def at(self, seconds: float) -> float:
        share = min(max(seconds / self.seconds, 0.0), 1.0)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def svg(plan: answers.Plan) -> str:
    """The picture."""
    scale = _scale(plan)
    row = ROW if plan.nodes <= MOST_NAMED else LOW_ROW
    top = 54.0
    bottom = top + row * sum(len(wave.nodes) for wave in plan.waves)
    slips = plan.slips[:SHOWN_SLIPS]
    curve_top = bottom + 34
    slip_top = curve_top + CURVE + 34
    height = slip_top + (ROW * len(slips) + 24 if slips else 0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="rollout" role="img" viewBox="0 0 {WIDTH} '
        f'{height:g}" width="{WIDTH}" height="{height:g}" aria-labelledby="rollout-title rollout-text">',
        f'<title id="rollout-title">{_escaped(rollout_table.sentence(plan))}</title>',
        f'<desc id="rollout-text">{_escaped(_description(plan))}</desc>',
        f"<style>{STYLE}</style>",
        f'<text class="quiet" x="{LEFT}" y="18">{LEGEND}</text>',
        *_grid(scale, top, curve_top + CURVE),
        *_rows(plan, scale, top, row),
        *_curve(plan, scale, curve_top),
        *_slips(slips, len(plan.slips), scale, slip_top),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def page(plan: answers.Plan) -> str:
    """The picture with the plan's text under it."""
    title = _escaped(rollout_table.sentence(plan))
    lines = "\n".join(map(_escaped, rollout_table.lines(plan, is_wide=True)))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>:root {{ color-scheme: light dark; }} "
        "body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; } "
        ".wide { overflow-x: auto; } h1 { font-size: 1.3rem; }</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{title}</h1>\n<div class="wide">\n{svg(plan)}</div>\n'
        f'<div class="wide"><pre>{lines}</pre></div>\n</main>\n</body>\n</html>\n'
    )


def _scale(plan: answers.Plan) -> _Scale:
    """From the start to the latest end, or to the latest start of work that is put off."""
    begin = timestamps.parse(plan.start)
    ends = [plan.late_end, *(slip.after for slip in plan.slips[:SHOWN_SLIPS] if slip.after)]
    last = max(timestamps.parse(written) for written in ends)
    return _Scale(begin, max(1.0, (last - begin).total_seconds()))


def _description(plan: answers.Plan) -> str:
    waves = [
        f"{_wave_name(wave)} from {wave.start} to {wave.end}, p90 {wave.late_end}: "
        f"{len(wave.nodes)} nodes, {wave.lost_gpu_hours:g} GPU-hours lost"
        for wave in plan.waves
    ]
    return "; ".join(waves)


def _grid(scale: _Scale, top: float, bottom: float) -> Iterator[str]:
    wanted = scale.seconds / TICKS
    step = next((step for step in _STEPS if step >= wanted), math.ceil(wanted))
    for number in range(int(scale.seconds // step) + 1):
        x = scale.at(number * step)
        at = scale.begin + datetime.timedelta(seconds=number * step)
        label = at.strftime("%d %b %H:%M" if scale.seconds > 20 * 3600 else "%H:%M")
        yield f'<line class="grid" x1="{x:g}" x2="{x:g}" y1="{top - 6:g}" y2="{bottom:g}"/>'
        yield f'<text class="quiet" x="{x:g}" y="{top - 12:g}" text-anchor="middle">{label}</text>'


def _rows(plan: answers.Plan, scale: _Scale, top: float, row: int) -> Iterator[str]:
    y = top
    for wave in plan.waves:
        displacing = {name for each in wave.work for name in each.before}
        if row == LOW_ROW:
            yield f'<text x="8" y="{y + 9:g}">{_escaped(_wave_name(wave))}</text>'
        for name in wave.nodes:
            yield from _row(wave, name, scale, y, row, has_work=name in displacing)
            y += row


def _row(
    wave: answers.Wave, name: str, scale: _Scale, y: float, row: int, *, has_work: bool
) -> Iterator[str]:
    start, end, late = scale.x(wave.start), scale.x(wave.end), scale.x(wave.late_end)
    bar = max(row - 4, 2)
    kind = "node canary" if wave.is_canary else "node"
    drained = ", work leaves it" if has_work else ", empty"
    title = f"{name}: {_wave_name(wave)}, fenced {wave.start}, back {wave.end}, p90 {wave.late_end}"
    yield f"<g><title>{_escaped(title + drained)}</title>"
    if row == ROW:
        yield f'<text x="8" y="{y + 10:g}">{_escaped(_short(name))}</text>'
    yield f'<rect class="late" x="{end:g}" y="{y:g}" width="{max(late - end, 0):.1f}" height="{bar}"/>'
    yield f'<rect class="{kind}" x="{start:g}" y="{y:g}" width="{max(end - start, 1):.1f}" height="{bar}"/>'
    if has_work:
        yield f'<rect class="drain" x="{start:g}" y="{y:g}" width="3" height="{bar}"/>'
    yield "</g>"


def _curve(plan: answers.Plan, scale: _Scale, top: float) -> Iterator[str]:
    """GPUs in service by the likely ends, and dashed by the late ones."""
    total = sum(wave.gpus for wave in plan.waves)
    if not total:
        return
    likely = [(wave.start, wave.end, wave.gpus) for wave in plan.waves]
    late = [(wave.start, wave.late_end, wave.gpus) for wave in plan.waves]
    lowest = min(gpus for _, gpus in _levels(likely, total))
    yield f'<text x="8" y="{top + 12:g}">GPUs in service</text>'
    yield f'<text class="quiet" x="8" y="{top + 28:g}">{total} of the nodes here,</text>'
    yield f'<text class="quiet" x="8" y="{top + 44:g}">at least {lowest}; dashed p90</text>'
    for kind, spans in (("curve low", late), ("curve", likely)):
        points = [f"M {scale.at(0):g} {top:g}"]
        for at, gpus in _levels(spans, total):
            y = top + CURVE * (1 - gpus / total)
            points.append(f"H {scale.x(at):g} V {y:.1f}")
        points.append(f"H {WIDTH - RIGHT}")
        yield f'<path class="{kind}" d="{" ".join(points)}"/>'
    y = top + CURVE
    yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:g}" y2="{y:g}"/>'


def _levels(spans: Sequence[tuple[str, str, int]], total: int) -> list[tuple[str, int]]:
    """GPUs in service from each time on."""
    changes: dict[str, int] = {}
    for start, end, gpus in spans:
        changes[start] = changes.get(start, 0) - gpus
        changes[end] = changes.get(end, 0) + gpus
    levels = []
    for at in sorted(changes, key=timestamps.parse):
        total += changes[at]
        levels.append((at, total))
    return levels


def _slips(slips: Sequence[answers.Slip], count: int, scale: _Scale, top: float) -> Iterator[str]:
    if not slips:
        return
    more = f", {count - len(slips)} more" if count > len(slips) else ""
    yield f'<text x="8" y="{top:g}">starts later than without the roll-out{more}</text>'
    for number, slip in enumerate(slips):
        y = top + ROW * (number + 1)
        before = scale.x(slip.before)
        after = scale.x(slip.after) if slip.after else float(WIDTH - RIGHT)
        mark = " (promised)" if slip.is_promised else ""
        title = f"{slip.work}{mark}: {slip.before} to {slip.after or 'not within the horizon'}"
        yield f"<g><title>{_escaped(title)}</title>"
        yield f'<text x="8" y="{y + 4:g}">{_escaped(_short(slip.work))}{mark}</text>'
        yield f'<line class="slip" x1="{before:g}" x2="{after:g}" y1="{y:g}" y2="{y:g}"/>'
        yield f'<circle class="drain" cx="{after:g}" cy="{y:g}" r="3"/></g>'


def _wave_name(wave: answers.Wave) -> str:
    return "canary" if wave.is_canary else f"wave {wave.number}"


def _short(name: str) -> str:
    return name if len(name) <= SHOWN_NAME else f"{name[: SHOWN_NAME - 1]}…"


def _escaped(text: str) -> str:
    return html.escape(text)

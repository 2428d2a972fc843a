"""The plan of a roll-out as a picture: a row per node over time, GPUs in service under it, starts that move.

Given the plan; returns an SVG that needs nothing else, or an HTML page around it. The same plan gives the same bytes.
What happens to a node inside its time (drain, installation, validation) has no times of its own in a plan. Never
writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from dovetail import timestamps
from dovetail.answer.rollout import rollout_answer as answers
from dovetail.tables.answers import rollout_table, time_picture
from dovetail.tables.answers.time_picture import CURVE, LEFT, LOW_ROW, RIGHT, ROW, WIDTH, Scale

SHOWN_SLIPS: Final = 20
LEGEND: Final = (
    "dark: out of service to p50; pale: to p90; brown: canary; red edge: work leaves the node"
)
STYLE: Final = """
.rollout .node { fill: light-dark(#2f6fb3, #6aa9ea); } .rollout .late { fill: light-dark(#a9c7e6, #2f5379); }
.rollout .canary { fill: light-dark(#8a5a00, #e0ac4c); } .rollout .drain { fill: light-dark(#a3140a, #ff9d93); }
.rollout .slip { stroke: light-dark(#a3140a, #ff9d93); stroke-width: 2; }
"""


def svg(plan: answers.Plan) -> str:
    """The picture."""
    scale = _scale(plan)
    row = time_picture.row_height(plan.nodes)
    top = 54.0
    bottom = top + row * sum(len(wave.nodes) for wave in plan.waves)
    slips = plan.slips[:SHOWN_SLIPS]
    curve_top = bottom + 34
    slip_top = curve_top + CURVE + 34
    height = slip_top + (ROW * len(slips) + 24 if slips else 0)
    parts = [
        f'<text class="quiet" x="{LEFT}" y="18">{LEGEND}</text>',
        *time_picture.grid(scale, top, curve_top + CURVE),
        *_rows(plan, scale, top, row),
        *_service(plan, scale, curve_top),
        *_slips(slips, len(plan.slips), scale, slip_top),
    ]
    title = rollout_table.sentence(plan)
    return time_picture.document(title, _description(plan), parts, height=height, style=STYLE)


def page(plan: answers.Plan) -> str:
    """The picture with the plan's text under it."""
    lines = rollout_table.lines(plan, is_wide=True)
    return time_picture.page(rollout_table.sentence(plan), svg(plan), lines)


def _scale(plan: answers.Plan) -> Scale:
    """From the start to the latest end, or to the latest start of work that is put off."""
    begin = timestamps.parse(plan.start)
    ends = [plan.late_end, *(slip.after for slip in plan.slips[:SHOWN_SLIPS] if slip.after)]
    last = max(timestamps.parse(written) for written in ends)
    return Scale(begin, max(1.0, (last - begin).total_seconds()))


def _description(plan: answers.Plan) -> str:
    waves = [
        f"{_wave_name(wave)} from {wave.start} to {wave.end}, p90 {wave.late_end}: "
        f"{len(wave.nodes)} nodes, {wave.lost_gpu_hours:g} GPU-hours lost"
        for wave in plan.waves
    ]
    return "; ".join(waves)


def _rows(plan: answers.Plan, scale: Scale, top: float, row: int) -> Iterator[str]:
    y = top
    for wave in plan.waves:
        displacing = {name for each in wave.work for name in each.before}
        if row == LOW_ROW:
            yield f'<text x="8" y="{y + 9:g}">{time_picture.escaped(_wave_name(wave))}</text>'
        for name in wave.nodes:
            yield from _row(wave, name, scale, y, row, has_work=name in displacing)
            y += row


def _row(
    wave: answers.Wave, name: str, scale: Scale, y: float, row: int, *, has_work: bool
) -> Iterator[str]:
    start, end, late = scale.x(wave.start), scale.x(wave.end), scale.x(wave.late_end)
    bar = max(row - 4, 2)
    kind = "node canary" if wave.is_canary else "node"
    drained = ", work leaves it" if has_work else ", empty"
    title = f"{name}: {_wave_name(wave)}, fenced {wave.start}, back {wave.end}, p90 {wave.late_end}"
    yield f"<g><title>{time_picture.escaped(title + drained)}</title>"
    if row == ROW:
        yield f'<text x="8" y="{y + 10:g}">{time_picture.escaped(time_picture.short(name))}</text>'
    yield f'<rect class="late" x="{end:g}" y="{y:g}" width="{max(late - end, 0):.1f}" height="{bar}"/>'
    yield f'<rect class="{kind}" x="{start:g}" y="{y:g}" width="{max(end - start, 1):.1f}" height="{bar}"/>'
    if has_work:
        yield f'<rect class="drain" x="{start:g}" y="{y:g}" width="3" height="{bar}"/>'
    yield "</g>"


def _service(plan: answers.Plan, scale: Scale, top: float) -> Iterator[str]:
    """GPUs in service by the likely ends, and dashed by the late ones."""
    total = sum(wave.gpus for wave in plan.waves)
    likely = _levels([(wave.start, wave.end, wave.gpus) for wave in plan.waves], total)
    late = _levels([(wave.start, wave.late_end, wave.gpus) for wave in plan.waves], total)
    curves = [time_picture.Curve("curve low", late), time_picture.Curve("curve", likely)]
    return time_picture.service(curves, total, scale, top, note="; dashed p90")


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


def _slips(slips: Sequence[answers.Slip], count: int, scale: Scale, top: float) -> Iterator[str]:
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
        yield f"<g><title>{time_picture.escaped(title)}</title>"
        yield f'<text x="8" y="{y + 4:g}">{time_picture.escaped(time_picture.short(slip.work))}{mark}</text>'
        yield f'<line class="slip" x1="{before:g}" x2="{after:g}" y1="{y:g}" y2="{y:g}"/>'
        yield f'<circle class="drain" cx="{after:g}" cy="{y:g}" r="3"/></g>'


def _wave_name(wave: answers.Wave) -> str:
    return "canary" if wave.is_canary else f"wave {wave.number}"

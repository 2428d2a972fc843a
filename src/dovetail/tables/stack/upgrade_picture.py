"""What happened in an upgrade as a picture: a row per node with its phases over time, GPUs in service under it.

Given the item of the upgrade and the time up to which it is drawn; returns an SVG that needs nothing else, or an HTML
page around it. The same item gives the same bytes. Never writes.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import Final

from dovetail import timestamps
from dovetail.kubetypes.custom.stack_upgrades import NodePhase
from dovetail.tables.answers import time_picture
from dovetail.tables.answers.time_picture import CURVE, LOW_ROW, ROW, WIDTH, Scale
from dovetail.tables.stack import upgrade_items
from dovetail.tables.stack.upgrade_items import PhaseSpan, UpgradeItem, UpgradeNode, UpgradeWave

SHORTEST_SECONDS: Final = 300
TOP: Final = 62.0
KEY_WIDTH: Final = 96
END_WIDTH: Final = 70  # of the word behind the last bar
_SUCCESS: Final = frozenset({NodePhase.DONE, NodePhase.ROLLED_BACK, NodePhase.SKIPPED})
# Phases that are drawn, with their colours in the light and in the dark: after Okabe and Ito.
COLOURS: Final = {
    str(NodePhase.FENCING): ("#8a93a1", "#78818f"),
    str(NodePhase.DRAINING): ("#e69f00", "#e69f00"),
    str(NodePhase.APPLYING): ("#0072b2", "#3a9bdc"),
    str(NodePhase.VALIDATING): ("#cc79a7", "#dc8fba"),
    str(NodePhase.UNFENCING): ("#56b4e9", "#8fd0f5"),
    str(NodePhase.FAILED): ("#c2410c", "#f0743a"),
    upgrade_items.NOT_RECORDED: ("#c9ced6", "#3b424e"),
}
_PHASE_STYLES: Final = "\n".join(
    f".rollout .{phase} {{ fill: light-dark({light}, {dark}); }}"
    for phase, (light, dark) in COLOURS.items()
)
STYLE: Final = f"{_PHASE_STYLES}\n.rollout .wave {{ font-weight: 600; }}\n"


def svg(item: UpgradeItem, now: datetime.datetime) -> str:
    """The picture."""
    until = item.finished_at or now
    scale = _scale(item, until)
    nodes = [node for wave in item.waves for node in wave.nodes]
    row = time_picture.row_height(len(nodes))
    rows_height = sum(ROW + row * len(wave.nodes) for wave in item.waves)
    curve_top = TOP + rows_height + 34
    bottom = curve_top + CURVE if item.gpus else TOP + rows_height
    levels = [(timestamps.to_text(point.at), point.gpus) for point in item.in_service]
    curve = time_picture.Curve("curve", levels)
    parts = [
        *_keys(nodes),
        *time_picture.grid(scale, TOP, bottom),
        *_rows(item.waves, scale, until, row),
        *time_picture.service(
            [curve],
            item.gpus,
            scale,
            curve_top,
            note="" if item.is_ended else " so far",
            until=timestamps.to_text(until),
        ),
    ]
    height = bottom + 24
    return time_picture.document(
        title_of(item), _description(item), parts, height=height, style=STYLE
    )


def page(item: UpgradeItem, now: datetime.datetime, lines: Iterable[str]) -> str:
    """The picture with text under it."""
    return time_picture.page(title_of(item), svg(item, now), lines)


def title_of(item: UpgradeItem) -> str:
    """The upgrade in a sentence."""
    reason = f": {item.reason}" if item.reason else ""
    versions = f" to {item.to}" if item.to else ""
    return f"{item.name}{versions}: {item.phase}{reason}; {item.done} of {item.nodes} nodes done"


def _scale(item: UpgradeItem, until: datetime.datetime) -> Scale:
    begin = item.started_at or item.created or until
    seconds = max((until - begin).total_seconds(), SHORTEST_SECONDS)
    return Scale(begin.astimezone(datetime.UTC), seconds)


def _description(item: UpgradeItem) -> str:
    waves = [f"{_wave_text(wave)}: {len(wave.nodes)} nodes" for wave in item.waves]
    return "; ".join(waves)


def _keys(nodes: Iterable[UpgradeNode]) -> Iterator[str]:
    """What the colours mean, of phases that occur."""
    occurring = {span.phase for node in nodes for span in node.spans}
    x = time_picture.LEFT
    for phase in COLOURS:
        if phase in occurring:
            yield f'<rect class="{phase}" x="{x}" y="9" width="10" height="10"/>'
            yield f'<text class="quiet" x="{x + 14}" y="18">{phase}</text>'
            x += KEY_WIDTH
    yield '<text class="quiet" x="8" y="18">times in UTC</text>'


def _rows(
    waves: Iterable[UpgradeWave], scale: Scale, until: datetime.datetime, row: int
) -> Iterator[str]:
    y = TOP
    for wave in waves:
        yield f'<text class="wave" x="8" y="{y + 10:g}">{time_picture.escaped(_wave_text(wave))}</text>'
        y += ROW
        for node in wave.nodes:
            yield from _row(node, scale, until, y, row)
            y += row


def _row(
    node: UpgradeNode, scale: Scale, until: datetime.datetime, y: float, row: int
) -> Iterator[str]:
    why = node.reason or node.failure
    title = f"{node.name}: {node.phase}{f': {why}' if why else ''}"
    yield f"<g><title>{time_picture.escaped(title)}</title>"
    bar = max(row - 4, 2)
    if row != LOW_ROW:
        name = time_picture.escaped(time_picture.short(node.name))
        yield f'<text x="16" y="{y + 10:g}">{name}</text>'
    end = scale.at(0)
    for span in node.spans:
        if span.phase in COLOURS:
            end = scale.place(span.end or until)
            yield _bar(span, scale.place(span.start), end, y, bar)
    has_room = row != LOW_ROW and end < WIDTH - END_WIDTH
    if has_room and node.spans and node.phase in _SUCCESS:
        yield f'<text class="quiet" x="{end + 4:g}" y="{y + 10:g}">{node.phase}</text>'
    yield "</g>"


def _bar(span: PhaseSpan, start: float, end: float, y: float, height: int) -> str:
    last = timestamps.to_text(span.end) if span.end is not None else "now"
    title = f"{span.phase} {timestamps.to_text(span.start)} to {last}"
    place = f'x="{start:g}" y="{y:g}" width="{max(end - start, 1):.1f}" height="{height}"'
    return f'<rect class="{span.phase}" {place}><title>{title}</title></rect>'


def _wave_text(wave: UpgradeWave) -> str:
    name = "canary" if wave.is_canary else f"wave {wave.number}"
    reason = f": {wave.reason}" if wave.reason else ""
    return f"{name}: {wave.state}{reason}"

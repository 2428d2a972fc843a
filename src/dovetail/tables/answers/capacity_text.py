"""The tables of `dovetail capacity`: shapes, levels, work in the way, fragmentation, queues.

Given the answer. Never computes one, never prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dovetail.answer.capacity import blockers, fragmentation, room_left
from dovetail.quantity import quantity
from dovetail.tables import text

GPU = "gpu"  # the resource that is listed of every queue; others only where a queue bounds them


class Section(NamedTuple):
    """A sentence, or a table, or both."""

    head: str = ""
    headers: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()

    @property
    def lines(self) -> list[str]:
        """As text."""
        head = [self.head] if self.head else []
        return [*head, *text.table(self.headers, self.rows)] if self.headers else head


def sections(answer: room_left.Capacity, *, is_wide: bool = False) -> list[Section]:
    """The parts of the answer."""
    if not answer.shapes:
        return [Section("no GPUs found")]
    is_single = len(answer.shapes) == 1
    sections = [Section("", *shape_rows(answer, is_wide=is_wide or is_single))]
    if is_wide or is_single:
        sections += [_levels(each) for each in answer.shapes]
    if answer.blockers is not None:
        sections.append(_blockers(answer.blockers))
    if answer.fragmentation is not None and answer.fragmentation.free:
        sections.append(_fragmentation(answer.fragmentation))
    if answer.queues:
        sections.append(_queues(answer.queues))
    return sections


def shape_rows(
    answer: room_left.Capacity, *, is_wide: bool = True
) -> tuple[list[str], list[list[str]]]:
    """Headers and rows: one row for each shape."""
    headers = ["more pods with", "now", "on one node"]
    has_moves = any(each.after_moving is not None for each in answer.shapes)
    if has_moves:
        headers[2:2] = ["after moving", "if lower yields"]
    rows = []
    for each in answer.shapes:
        now = f"{each.now} or more" if each.is_bounded else str(each.now)
        block = max((level.largest for level in each.levels if level.level == "node"), default=0)
        cells = [each.shape, now, str(block)]
        if has_moves:
            cells[2:2] = [
                _moving(each.after_moving, each.moved),
                _moving(each.if_lower_yields, each.evicted),
            ]
        rows.append([*cells, each.waits] if is_wide else cells)
    return [*headers, "not one more because"] if is_wide else headers, rows


def _moving(count: int | None, pods: int) -> str:
    if count is None:
        return "-"
    return f"{count} ({text.counted(pods, 'pod')})" if pods else str(count)


def _levels(shape: room_left.ShapeCapacity) -> Section:
    rows = [
        [shape.shape, level.level, str(level.largest), level.domain or "-", level.topology or "-"]
        for level in shape.levels
    ]
    return Section("", ("shape", "within one", "largest gang", "where", "topology"), rows)


def _blockers(answer: blockers.Blockers) -> Section:
    where = f" in one {answer.level}" if answer.level else ""
    gang = f"a gang of {answer.size}{where}"
    if not answer.work:
        starts = f"{gang} starts now"
        return Section(starts if answer.starts else f"{gang} never starts: {answer.why}")
    lost = f"{answer.gpu_hours_lost:g} GPU-hours of work are lost"
    head = f"{gang} starts if this work gives way; {lost}"
    if not answer.starts:
        head = f"{gang} does not start even if this work gives way: {answer.why}"
    rows = [
        [
            work.gang,
            str(work.pods),
            f"{work.gpus:g}",
            "moves" if work.moves else "ends",
            f"{work.gpu_hours_lost:g}",
            ", ".join(work.nodes),
        ]
        for work in answer.work
    ]
    headers = ("work in the way", "pods", "gpus", "it", "gpu-hours lost", "nodes")
    return Section(head, headers, rows)


def _fragmentation(measured: fragmentation.Fragmentation) -> Section:
    head = (
        f"of {measured.free:g} free GPUs, {measured.unusable:g} cannot be used by the "
        f"{text.counted(measured.shapes, 'shape')} of pods that run and wait here, on average"
    )
    rows = [
        [group.name or "-", f"{group.gpus:g}", f"{group.free:g}", f"{group.unusable:g}"]
        for group in measured.by_type
    ]
    return Section(head, ("gpu", "gpus", "free", "unusable"), rows)


def _amount(written: str) -> str:
    """An amount for people: 70.931 GPUs, not 70931m."""
    if not written.endswith("m"):
        return written or "-"
    return f"{float(quantity.parse(written).nanos) / 10**9:g}"


def _queues(rows: tuple[room_left.QueueCapacity, ...]) -> Section:
    headers = ("queue", "resource", "used", "waiting", "quota", "fair share", "limit", "left")
    cells = [
        [
            row.queue,
            row.resource,
            *map(_amount, (row.used, row.waiting, row.quota, row.fair_share, row.limit, row.left)),
        ]
        for row in rows
        if row.quota or row.limit or row.resource == GPU
    ]
    return Section("", headers, cells)

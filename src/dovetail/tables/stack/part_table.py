"""The tables of `dovetail stack parts`: nodes whose parts stand alike in one row, then what is missing.

Given a report. Never looks at an object, never prints.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.answer.stack_parts import part_report
from dovetail.answer.stack_parts.part_answer import ClusterGap, NodeParts, Part, PartReport, State
from dovetail.tables import text

HEADERS = ("nodes", "served by", *part_report.PARTS)
MOST_NAMES = 3


def lines(report: PartReport, *, is_wide: bool) -> list[str]:
    """The whole report; wide: every node by itself, and every node of a gap."""
    parts = [
        _summary(report),
        _nodes(report.nodes, is_wide=is_wide),
        _cluster(report.cluster),
        _gaps(report.gaps, is_wide=is_wide),
        [f"not read: {problem}" for problem in report.problems],
    ]
    result: list[str] = []
    for part in filter(None, parts):
        result += [*part, ""]
    return result[:-1]


def _summary(report: PartReport) -> list[str]:
    complete = sum(not node.gaps for node in report.nodes)
    total = text.counted(len(report.nodes), "node")
    return [
        f"{complete} of {total} with GPUs complete; {report.other_nodes} without any sign of one"
    ]


def _nodes(nodes: Sequence[NodeParts], *, is_wide: bool) -> list[str]:
    if not nodes:
        return []
    groups: dict[tuple[str, ...], list[str]] = {}
    for node in sorted(nodes, key=lambda each: text.natural(each.node)):
        key = (node.served_by or "-", *(_cell(node.part(name)) for name in part_report.PARTS))
        groups.setdefault((node.node, *key) if is_wide else ("", *key), []).append(node.node)
    rows = [[_names(names, is_wide=is_wide), *key[1:]] for key, names in groups.items()]
    return text.table(HEADERS, rows)


def _cell(part: Part) -> str:
    if part.state is State.READY:
        return part.seen or "yes"
    if part.state is State.OFF:
        return part.seen or "-"
    return f"{part.state}{f' ({part.seen})' if part.seen else ''}"


def _cluster(parts: Sequence[Part]) -> list[str]:
    return [
        f"{part.name}: {_cell(part) if part.state is not State.OFF else 'none'}" for part in parts
    ]


def _gaps(gaps: Sequence[ClusterGap], *, is_wide: bool) -> list[str]:
    result: list[str] = []
    for gap in gaps:
        where = _names(gap.nodes, is_wide=is_wide) if gap.nodes else "cluster"
        result += [f"{gap.code}: {where}: {gap.what}", f"  next: {gap.next}"]
    return result


def _names(names: Sequence[str], *, is_wide: bool) -> str:
    if is_wide or len(names) <= MOST_NAMES:
        return ", ".join(names)
    return f"{len(names)} ({names[0]}, ...)"

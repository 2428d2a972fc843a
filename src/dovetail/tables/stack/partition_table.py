"""The tables of `dovetail stack mig`: acceptance before and after, a row per proposal, the moves, what is left alone.

Given a plan. Never looks at an object, never prints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dovetail.answer.partitioning.partition_answer import BoardChange, PartitionPlan, Proposal
from dovetail.tables import text

HEADERS = ("node", "gpus", "now", "proposed", "moves", "gpu-hours", "starts", "by")
MOVE_HEADERS = ("pod", "leaves", "goes on", "gpu-hours")
WHOLE = "whole"
SHOWN = 12


def lines(plan: PartitionPlan, *, is_wide: bool) -> list[str]:
    """The whole plan; wide: lists in full."""
    parts = [
        _summary(plan),
        _proposals(plan.proposals, is_wide=is_wide),
        _moves(plan.proposals, is_wide=is_wide),
        _left_alone(plan),
    ]
    result: list[str] = []
    for part in filter(None, parts):
        result += [*part, ""]
    return result[:-1]


def _summary(plan: PartitionPlan) -> list[str]:
    demand = ", ".join(f"{count} x {name}" for name, count in plan.demand.items())
    shown = [
        f"{plan.before.pods} of {plan.before.of} waiting pods start as things are, {plan.after.pods} with "
        f"{text.counted(len(plan.proposals), 'proposal')}, for {plan.gpu_hours} GPU-hours"
    ]
    if demand:
        shown.append(f"the others could use {demand}")
    if plan.cut_short:
        shown.append(f"not tried: {text.counted(plan.cut_short, 'node')}; the search is bounded")
    return shown


def _proposals(proposals: Sequence[Proposal], *, is_wide: bool) -> list[str]:
    rows = [row for each in proposals for row in _rows(each)]
    cut = rows if is_wide else rows[:SHOWN]
    return [*text.table(HEADERS, cut), *_rest(rows, cut)] if rows else []


def _rows(proposal: Proposal) -> list[list[str]]:
    """A row for GPUs that change alike; what is said of the node stands in the first."""
    rows: list[list[str]] = []
    for boards in _alike(proposal.boards):
        before, after = boards[0].before, boards[0].after
        numbers = ",".join(str(board.index) for board in boards)
        now = "mixed" if before is None else geometry(before)
        about_node = ["", "", "", ""]
        if not rows:
            by = "label" if proposal.has_manager else "by hand"
            moves, starts = len(proposal.moves), len(proposal.starts)
            about_node = [str(moves), str(proposal.gpu_hours), str(starts), by]
        rows.append([proposal.node, numbers, now, geometry(after), *about_node])
    return rows


def geometry(profiles: Sequence[str]) -> str:
    """Partitions of one GPU: 3g.40gb + 4 x 1g.10gb."""
    if not profiles:
        return WHOLE
    counts = sorted(Counter(profiles).items(), reverse=True)
    return " + ".join(name if count == 1 else f"{count} x {name}" for name, count in counts)


def _alike(boards: Sequence[BoardChange]) -> list[list[BoardChange]]:
    """GPUs that change in the same way; those that stay are left out."""
    groups: dict[tuple[object, object], list[BoardChange]] = {}
    for board in boards:
        if board.before != board.after:
            groups.setdefault((board.before, board.after), []).append(board)
    return list(groups.values())


def _moves(proposals: Sequence[Proposal], *, is_wide: bool) -> list[str]:
    rows = [
        [move.pod, move.node, move.to, str(move.gpu_hours)]
        for each in proposals
        for move in each.moves
    ]
    cut = rows if is_wide else rows[:SHOWN]
    return [*text.table(MOVE_HEADERS, cut), *_rest(rows, cut)] if rows else []


def _rest(rows: Sequence[object], shown: Sequence[object]) -> list[str]:
    left = len(rows) - len(shown)
    return [f"... {left} more; -o wide shows them"] if left else []


def _left_alone(plan: PartitionPlan) -> list[str]:
    shown = []
    if plan.on_demand:
        shown.append(
            f"{text.counted(len(plan.on_demand), 'node')} partitioned for each claim: nothing to write"
        )
    for each in plan.passed:
        shown.append(
            f"{text.counted(len(each.nodes), 'node')} left alone ({each.nodes[0]}): {each.why}"
        )
    return shown

"""The plan of a roll-out for people: a sentence, the waves, a timeline, work that is displaced, what blocks.

Given the plan; returns lines. Lists are cut after a few entries, and say how many are left. Never prints.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from dovetail import timestamps
from dovetail.answer.rollout import rollout_answer as answers
from dovetail.tables import text

HEADERS: Final = ("wave", "start", "end", "p90", "nodes", "gpus", "moves", "waits", "never", "lost")
WORK_HEADERS: Final = ("wave", "work", "gpus", "from", "to", "starts", "redone")
SHOWN: Final = 12  # entries of a list
SHOWN_NODES: Final = 3
SHOWN_WAVES: Final = 40
WIDTH: Final = 60  # of the timeline
RUNNING: Final = "#"
LATE: Final = "-"


def lines(plan: answers.Plan, *, is_wide: bool = False) -> list[str]:
    """All of it; lists in full where it is wide."""
    most = None if is_wide else SHOWN
    shown = [sentence(plan), *comparison(plan)]
    shown += [f"assumed: {assumption}" for assumption in plan.assumptions]
    waves = plan.waves if is_wide else plan.waves[:SHOWN_WAVES]
    shown += ["", *text.table(HEADERS, [_wave_row(wave) for wave in waves])]
    if len(waves) < len(plan.waves):
        shown.append(f"... {len(plan.waves) - len(waves)} more waves; -o wide shows them")
    shown += ["", *timeline(plan, waves)]
    rows = [_work_row(wave, each) for wave in plan.waves for each in wave.work]
    if rows:
        cut = rows if most is None else rows[:most]
        shown += ["", *text.table(WORK_HEADERS, cut), *_rest(rows, cut)]
    slips = [_slip(slip) for slip in plan.slips]
    if slips:
        cut_slips = slips if most is None else slips[:most]
        shown += ["", "starts later than without the roll-out:", *cut_slips]
        shown += _rest(slips, cut_slips)
    if plan.blockers:
        shown += ["", "blocks the roll-out:", *_blockers(plan)]
    return shown


def sentence(plan: answers.Plan) -> str:
    """The plan in one line."""
    wanted = ", ".join(f"{part} {version}" for part, version in plan.to.items())
    verdict = "can finish" if plan.can_finish else "cannot finish"
    skipped = f", {len(plan.skipped)} there already" if plan.skipped else ""
    return (
        f"{wanted}: {verdict}, {text.counted(plan.nodes, 'node')}{skipped} in "
        f"{text.counted(len(plan.waves), 'wave')}, {plan.start} to {plan.end} "
        f"(p90 {plan.late_end})"
    )


def comparison(plan: answers.Plan) -> list[str]:
    """What the chosen order loses, beside the others."""
    rows = []
    for place, loss in enumerate((plan.chosen, *plan.compared)):
        cost = f", cost {loss.cost:g}" if loss.cost is not None else ""
        mark = "chosen" if not place else "instead"
        rows.append(
            f"{mark}: {loss.order}: {loss.total:g} GPU-hours lost ({loss.thrown_away:g} redone, "
            f"{loss.displaced_waits:g} displaced and waiting, {loss.delayed_starts:g} later starts)"
            f"{cost}, {text.counted(loss.displaced, 'displacement')}, ends {loss.end}"
        )
    return rows


def timeline(plan: answers.Plan, waves: Sequence[answers.Wave]) -> list[str]:
    """The waves as bars over time; what a wave takes at p90 beyond its end is dashed."""
    begin = timestamps.parse(plan.start)
    seconds = max(1.0, (timestamps.parse(plan.late_end) - begin).total_seconds())

    def column(written: str) -> int:
        passed: datetime.timedelta = timestamps.parse(written) - begin
        return min(WIDTH, round(WIDTH * passed.total_seconds() / seconds))

    rows = []
    for wave in waves:
        start, end, late = column(wave.start), column(wave.end), column(wave.late_end)
        bar = " " * start + RUNNING * max(1, end - start) + LATE * max(0, late - end)
        name = "canary" if wave.is_canary else f"wave {wave.number}"
        rows.append((name, f"|{bar[:WIDTH].ljust(WIDTH)}|", _nodes(wave.nodes)))
    return text.aligned(rows)


def _wave_row(wave: answers.Wave) -> tuple[str, ...]:
    fates = Counter(each.fate for each in wave.work)
    return (
        f"{wave.number}{' canary' if wave.is_canary else ''}",
        wave.start,
        _clock(wave.end),
        _clock(wave.late_end),
        _nodes(wave.nodes),
        str(wave.gpus),
        str(fates["moves"]),
        str(fates["waits"]),
        str(fates["never"] + fates["lost"]),
        f"{wave.lost_gpu_hours:g}",
    )


def _work_row(wave: answers.Wave, each: answers.Moved) -> tuple[str, ...]:
    starts = {"never": f"never: {each.why}", "lost": each.why}.get(each.fate, "")
    if not starts:
        starts = "at once" if each.fate == "moves" else f"{each.start}"
    return (
        str(wave.number),
        each.work,
        f"{each.gpus:g}",
        _nodes(each.before),
        _nodes(each.after),
        starts,
        _duration(each.lost_seconds),
    )


def _slip(slip: answers.Slip) -> str:
    promised = " (promised)" if slip.is_promised else ""
    if slip.seconds is None:
        return f"  {slip.work}{promised}: {slip.before} -> not within the horizon"
    later = _duration(slip.seconds)
    return f"  {slip.work}{promised}: {slip.before} -> {slip.after}, {later} later"


def _blockers(plan: answers.Plan) -> Iterable[str]:
    for blocker in plan.blockers:
        yield f"  {blocker.code}: {blocker.message}"
        if blocker.nodes and blocker.code not in ("UnitTooLarge",):
            yield f"    {_nodes(blocker.subjects)} on {_nodes(blocker.nodes)}"
        yield f"    next: {blocker.next}"


def _rest(entries: Sequence[object], shown: Sequence[object]) -> list[str]:
    hidden = len(entries) - len(shown)
    return [f"... {hidden} more; -o wide shows them"] if hidden else []


def _nodes(names: Sequence[str]) -> str:
    shown = ", ".join(names[:SHOWN_NODES])
    more = len(names) - SHOWN_NODES
    return f"{shown} and {more} more" if more > 0 else shown


def _clock(written: str) -> str:
    return written[11:16]


def _duration(seconds: int) -> str:
    hours, minutes = divmod(seconds // 60, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m"

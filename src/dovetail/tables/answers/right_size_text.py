"""The table of `dovetail right-size`, the reasons below it, and the commands that carry a recommendation out.

Given the answer. Never computes one, never prints.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dovetail.answer.right_size import device_choices
from dovetail.answer.right_size.back_test import BackTest
from dovetail.answer.right_size.right_size_answer import Answer, Recommendation, Verdict
from dovetail.tables import text
from dovetail.tables.answers import fix_commands

_MARK: Final = "*"  # after figures that are partial


def table(answer: Answer) -> list[str]:
    """One row for each family of work."""
    headers, rows = cells(answer)
    return text.table(headers, rows) if rows else []


def cells(answer: Answer) -> tuple[list[str], list[list[str]]]:
    """Headers and rows."""
    headers = ["work", "now", "could be", "memory seen", "needs", "busy", "GPU-hours", "saves"]
    has_money = answer.money_saved is not None
    headers += ["money", "confidence", "verdict"] if has_money else ["confidence", "verdict"]
    rows = []
    for each in answer.work:
        mark = _MARK if each.confidence.is_partial else ""
        row = [
            each.work,
            each.current.name,
            each.recommended.name if each.recommended is not None else "-",
            *_measured(each, mark),
            f"{each.gpu_hours_held:.1f}",
            f"{each.gpu_hours_saved:.1f}" if each.recommended is not None else "-",
        ]
        if has_money:
            row.append(_money(each))
        rows.append([*row, each.confidence.level.value, each.verdict.value])
    return headers, rows


def reasons(answer: Answer, *, is_wide: bool, columns: int) -> Iterator[str]:
    """Why, work by work; with `is_wide` the commands, too."""
    for each in answer.work:
        yield ""
        yield f"{each.work}: {_headline(each)}"
        yield f"  {each.why}"
        if each.why_not_smaller:
            yield f"  not smaller: {each.why_not_smaller}"
        yield f"  measured: {_basis(each)}"
        if each.confidence.is_partial:
            yield f"  {_MARK} partial: {'; '.join(each.confidence.missing)}"
        if each.what_if is not None:
            fit = each.what_if
            own = (
                "its own pods start"
                if fit.pods_start == fit.pods
                else (f"{fit.pods_start} of its {text.counted(fit.pods, 'pod')} start")
            )
            yield (
                f"  the engine: {fit.fit_before} more such pods fit now, {fit.fit_after} with the "
                f"change; {own}"
            )
            if fit.pods_start < fit.pods:
                yield f"  the others wait: {fit.waits}"
        if each.patch_note:
            yield f"  no patch: {each.patch_note}"
        if each.patches and is_wide:
            yield "  to do it:"
            for line in fix_commands.of_patches(each.patches, columns - 4):
                yield f"    {line}"


def closing(answer: Answer) -> list[str]:
    """The sums."""
    if not answer.work:
        return list(answer.notes)
    money = f", {answer.money_saved:.2f} in money" if answer.money_saved is not None else ""
    lines = [
        f"{answer.gpu_hours_saved:.1f} of {answer.gpu_hours_held:.1f} GPU-hours saved{money}, "
        f"from {answer.start} to {answer.end}"
    ]
    if answer.back_test is not None:
        lines.append(_back_test(answer.back_test))
    if answer.unpriced:
        lines.append(f"no price for: {', '.join(answer.unpriced)}")
    if answer.is_partial:
        lines.append(f"{_MARK} partial: not all of the time was measured, see the reasons")
    return [*lines, *answer.notes]


def _back_test(test: BackTest) -> str:
    held = test.work - len(test.exceeded)
    words = f"back-test: the rule, asked halfway, held until the end for {held} of {test.work}"
    return f"{words}; not for {', '.join(test.exceeded)}" if test.exceeded else words


def _measured(each: Recommendation, mark: str) -> tuple[str, str, str]:
    if each.needs is None:
        return "?", "?", "?"
    busy = "?" if each.needs.busy_micro is None else device_choices.percent(each.needs.busy_micro)
    seen = device_choices.gib(each.needs.largest_memory_bytes)
    return f"{seen}{mark}", f"{device_choices.gib(each.needs.memory_bytes)}{mark}", f"{busy}{mark}"


def _money(each: Recommendation) -> str:
    if each.recommended is None:
        return "-"
    return "no price" if each.money_saved is None else f"{each.money_saved:.2f}"


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %"


def _headline(each: Recommendation) -> str:
    if each.recommended is not None:
        return f"{each.verdict.value} {each.current.name} -> {each.recommended.name}"
    words = {
        Verdict.KEEP: f"keep {each.current.name}",
        Verdict.SETTING: "not judged by its memory",
        Verdict.EXCLUDED: "left alone",
        Verdict.UNKNOWN: "not known",
    }
    return words.get(each.verdict, each.verdict.value)


def _basis(each: Recommendation) -> str:
    basis = each.confidence
    runs = f"{basis.runs_measured} of {text.counted(basis.runs, 'run')}"
    words = f"{basis.days:.1f} days, {runs}, {text.counted(basis.samples, 'sample')}"
    if each.needs is None:
        return words
    parts = each.needs.headroom
    why = [f"{_percent(parts.floor)} always"]
    if parts.spread >= 0.005:
        why.append(f"{_percent(parts.spread)} for spread")
    if parts.rarity >= 0.005:
        why.append(f"{_percent(parts.rarity)} for rare peaks")
    if parts.out_of_memory:
        why.append(f"{_percent(parts.out_of_memory)} for running out of memory")
    return f"{words}; headroom {_percent(parts.total)}: {', '.join(why)}"

"""The answer to "why does this pod not start" for people: the sentence first, then numbers, holders and fixes.

Given answers and how many columns there are. Returns lines and rows. Never computes an answer, never prints.
"""

from __future__ import annotations

import datetime
import textwrap
from collections.abc import Iterator, Sequence

from dovetail.answer.why.why_answer import Fix, FunnelStep, Holder, Why
from dovetail.tables import text
from dovetail.tables.answers import fix_commands

LIST_HEADERS = ("namespace", "pod", "class", "why", "fix")
PIPE_COLUMNS = 100  # where no terminal says how many there are
MOST_COLUMNS = 120  # of text that is wrapped
MOST_COMMAND_LINES = 8  # of a fix, without -o wide
SHOWN_FIXES = 3  # without -o wide
INDENT = "  "
WIDE = "-o wide"
FOLD_MARGIN = 30  # YAML is folded after the word that crosses the border

Rows = tuple[list[str], list[list[str]]]  # headers and cells


def lines_of(
    answer: Why, *, is_wide: bool = False, columns: int = PIPE_COLUMNS, wide: str = WIDE
) -> list[str]:
    """Everything about one pod or workload. `wide` is how the reader asks for the rest."""
    lines = [*_wrapped(headline(answer), columns)]
    for cause in answer.also:
        lines += _wrapped(f"also: {cause.sentence}", columns, INDENT)
    if answer.expected_start is not None:
        lines.append(f"{INDENT}expected start: {time_text(answer.expected_start)}")
    row_columns = 10**6 if is_wide else columns
    for steps in funnels(answer):
        lines.append("")
        for line in _funnel(steps):
            lines.append(text.fitted(line, row_columns))
    if answer.holders:
        lines.append("")
        for line in _holders(answer):
            lines.append(text.fitted(line, row_columns))
    if answer.evidence:
        lines += ["", "evidence:"]
        for line in answer.evidence:
            lines += _wrapped(line, columns, INDENT)
    fixes = answer.fixes if is_wide else answer.fixes[:SHOWN_FIXES]
    if fixes:
        lines += ["", "fixes, each tried:"]
        for number, fix in enumerate(fixes, start=1):
            lines += _fix(number, fix, columns, "" if is_wide else wide)
        if len(fixes) < len(answer.fixes):
            lines.append(f"{INDENT}{len(answer.fixes) - len(fixes)} more with {wide}")
    return lines


def row_of(answer: Why) -> tuple[str, ...]:
    """One line of a list: the cells under LIST_HEADERS."""
    subject = answer.subject
    cause = answer.cause
    return (
        subject.namespace,
        subject.name,
        "starts" if cause is None else cause.class_.value,
        answer.verdict if cause is None else cause.sentence,
        answer.fixes[0].title if answer.fixes else "",
    )


def headline(answer: Why) -> str:
    """The answer in one sentence."""
    subject = answer.subject
    name = f"{subject.kind.lower()} {subject.namespace}/{subject.name}"
    if answer.cause is not None:
        class_, code = answer.cause.class_.value, answer.cause.code.value
        return f"{name} waits: {answer.cause.sentence} [{class_}, {code}]"
    return f"{name} {answer.verdict}"


def funnels(answer: Why) -> list[list[FunnelStep]]:
    """The steps about nodes, and those about devices."""
    topics = dict.fromkeys(step.of for step in answer.funnel)
    return [[step for step in answer.funnel if step.of == topic] for topic in topics]


def holder_rows(holders: Sequence[Holder]) -> Rows:
    """Headers and rows of the pods that hold what is missing."""
    has_queues = any(holder.queue for holder in holders)
    headers = ["held by", "holds", "queue", "priority", "since", "until"]
    rows = [
        [
            holder.pod,
            holder.holds,
            holder.queue,
            str(holder.priority),
            time_text(holder.since),
            time_text(holder.until) if holder.until is not None else "?",
        ]
        for holder in holders
    ]
    if not has_queues:
        headers.pop(2)
        rows = [[*row[:2], *row[3:]] for row in rows]
    return headers, rows


def fix_title(fix: Fix) -> str:
    """Who changes what."""
    return f"{fix.who.value}: {fix.title}"


def command_lines(fix: Fix, columns: int = PIPE_COLUMNS) -> list[str]:
    """The commands that carry out a fix."""
    return list(fix_commands.lines_of(fix, columns - FOLD_MARGIN))


def time_text(instant: datetime.datetime | None) -> str:
    """A time in the local zone."""
    if instant is None:
        return "-"
    return instant.astimezone().strftime("%Y-%m-%d %H:%M")


def _funnel(steps: Sequence[FunnelStep]) -> list[str]:
    rows = [[steps[0].of.upper(), "", ""]]
    for step in steps:
        rows.append([f"{step.left:>6}", step.step, step.detail])
    return text.aligned(rows)


def _holders(answer: Why) -> list[str]:
    lines = text.table(*holder_rows(answer.holders))
    more = answer.more_holders
    return [*lines, f"{more} more"] if more else lines


def _fix(number: int, fix: Fix, columns: int, wide: str) -> Iterator[str]:
    """The change and what it leads to; its commands where they are few, or where all is asked for."""
    yield from _wrapped(f"{number}  {fix_title(fix)}", columns, INDENT)
    if fix.effect:
        yield from _wrapped(f"then: {fix.effect}", columns, INDENT + "   ")
    commands = command_lines(fix, columns)
    if not wide or len(commands) <= MOST_COMMAND_LINES:
        yield from (INDENT + line for line in commands)
    else:
        yield f"{INDENT}   ({wide} prints its {len(commands)} lines of commands)"


def _wrapped(sentence: str, columns: int, indent: str = "") -> list[str]:
    return textwrap.wrap(
        sentence,
        min(columns, MOST_COLUMNS),
        initial_indent=indent,
        subsequent_indent=indent + INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )

"""Answers of the engine that people can look at: the structs of `answer/`, with text and HTML for notebooks.

Each class adds no field, so its JSON is that of the struct it extends. Immutable. An answer is about the cluster as it
was read; it does not follow it. Never computes an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from dovetail.answer.capacity import room_left
from dovetail.answer.what_if import what_if_answer
from dovetail.answer.why import why_answer
from dovetail.model import plaintext
from dovetail.sdk import html_text, result_table
from dovetail.tables.answers import capacity_text, what_if_table, why_text

T = TypeVar("T", bound=msgspec.Struct)


def shown_as(kind: type[T], answer: msgspec.Struct) -> T:
    """The answer as one of the classes below. Costs a copy of its first level."""
    fields = {name: getattr(answer, name) for name in answer.__struct_fields__}
    return kind(**fields)


class Why(why_answer.Why, frozen=True):
    """Why a pod or workload does not start, or that it does (`schedulable`)."""

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        return why_text.headline(self)

    def to_dict(self) -> dict[str, Any]:
        """As `dovetail why -o json` prints it."""
        return result_table.plain_tree(self)

    def to_text(self, *, wide: bool = False) -> str:
        """As `dovetail why` prints it; `wide` as with `-o wide`."""
        return _text(why_text.lines_of(self, is_wide=wide, wide="to_text(wide=True)"))

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return html_text.document(_why_parts(self))


class WhatIf(what_if_answer.Answer, frozen=True):
    """What changes would do: the cluster before and after, and the difference."""

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        return what_if_table.sentence(self)

    def to_dict(self) -> dict[str, Any]:
        """As `dovetail what-if -o json` prints it."""
        return result_table.plain_tree(self)

    def to_text(self) -> str:
        """As `dovetail what-if` prints it."""
        return _text(what_if_table.lines(self))

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return html_text.document(_what_if_parts(self))


class Capacity(room_left.Capacity, frozen=True):
    """How many more pods of a shape start, and what is in the way of a gang of them."""

    def to_dict(self) -> dict[str, Any]:
        """As `dovetail capacity -o json` prints it."""
        return result_table.plain_tree(self)

    def to_text(self, *, wide: bool = False) -> str:
        """As `dovetail capacity` prints it; `wide` as with `-o wide`."""
        sections = capacity_text.sections(self, is_wide=wide)
        return "\n\n".join(_text(section.lines) for section in sections)

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return html_text.document(_capacity_parts(self))


def _text(lines: Iterable[str]) -> str:
    """Lines for a terminal, which foreign names cannot steer."""
    return "\n".join(map(plaintext.escaped, lines))


def _why_parts(answer: Why) -> Iterator[str]:
    yield html_text.paragraph(answer.sentence, is_strong=True)
    for cause in answer.also:
        yield html_text.paragraph(f"also: {cause.sentence}")
    if answer.expected_start is not None:
        yield html_text.paragraph(f"expected start: {why_text.time_text(answer.expected_start)}")
    for steps in why_text.funnels(answer):
        rows = [(str(step.left), step.step, step.detail) for step in steps]
        yield html_text.table((steps[0].of, "", ""), rows)
    if answer.holders:
        yield html_text.table(*why_text.holder_rows(answer.holders))
    if answer.more_holders:
        yield html_text.paragraph(f"{answer.more_holders} more")
    if answer.evidence:
        yield html_text.items("evidence:", answer.evidence)
    if answer.fixes:
        yield html_text.paragraph("fixes, each tried:")
    for number, fix in enumerate(answer.fixes, start=1):
        effect = f", then: {fix.effect}" if fix.effect else ""
        title = f"{number}  {why_text.fix_title(fix)}{effect}"
        yield html_text.details(title, why_text.command_lines(fix))


def _what_if_parts(answer: WhatIf) -> Iterator[str]:
    yield html_text.paragraph(answer.sentence, is_strong=True)
    yield html_text.items("assumed:", [change.assumption for change in answer.changes])
    yield html_text.table(what_if_table.HEADERS, what_if_table.number_rows(answer))
    lists = what_if_table.lists(answer)
    for title, entries in lists:
        left = len(entries) - what_if_table.SHOWN
        shown = entries[: what_if_table.SHOWN]
        yield html_text.items(title, [*shown, f"... and {left} more"] if left > 0 else shown)
    if not lists:
        yield html_text.paragraph(what_if_table.NOTHING)


def _capacity_parts(answer: Capacity) -> Iterator[str]:
    for section in capacity_text.sections(answer):
        if section.head:
            yield html_text.paragraph(section.head)
        if section.headers:
            yield html_text.table(section.headers, section.rows)

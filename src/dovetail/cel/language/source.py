"""Places in an expression's text, and issues at them."""

from __future__ import annotations

from typing import NamedTuple


class Issue(NamedTuple):
    """An error at an offset (in characters) of the text."""

    offset: int
    message: str


def place(text: str, offset: int) -> tuple[int, int]:
    """The line and column of an offset, both counted from 1."""
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


def describe(text: str, issues: list[Issue]) -> str:
    """The issues as text, a paragraph each: the place, the message, and the line with a marker."""
    parts = []
    for issue in issues:
        line, column = place(text, issue.offset)
        shown = text.split("\n")[line - 1]
        if len(shown) > 160:
            start = max(0, column - 80)
            shown, column = shown[start : start + 160], column - start
        parts.append(f"{line}:{column}: {issue.message}\n  {shown}\n  {' ' * (column - 1)}^")
    return "\n".join(parts)

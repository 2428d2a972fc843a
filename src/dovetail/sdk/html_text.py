"""HTML that notebooks show: paragraphs, lists, tables, preformatted text. Without scripts, links or colours.

Given text from anywhere. Every piece is escaped here, control characters included, so nothing in a name or a message
becomes markup. The result is well formed and takes its looks from the notebook, light or dark; only text is aligned to
the left, because notebooks take every table for one of numbers. Never shows anything.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Final

from dovetail.model import plaintext

# The class stands twice, to outweigh the rule of notebooks for all tables.
STYLE: Final = (
    ".dovetail.dovetail .text {text-align: left;} .dovetail.dovetail .number {text-align: right;}"
)
TEXT, NUMBER = "text", "number"  # classes of cells
NO_VALUE: Final = ("", "n/a", "=", "?", "-")
_NUMBER: Final = re.compile(r"[+-]?[0-9][0-9.,]*", re.ASCII)


def escaped(text: str) -> str:
    """Text as HTML."""
    return html.escape(plaintext.escaped(text), quote=True)


def document(parts: Iterable[str]) -> str:
    """Parts that were made here, as one block."""
    return f'<div class="dovetail"><style>{STYLE}</style>{"".join(parts)}</div>'


def paragraph(text: str, *, is_strong: bool = False) -> str:
    """A sentence."""
    shown = escaped(text)
    return f"<p><strong>{shown}</strong></p>" if is_strong else f"<p>{shown}</p>"


def items(title: str, entries: Iterable[str], *, is_numbered: bool = False) -> str:
    """A list with a title."""
    tag = "ol" if is_numbered else "ul"
    shown = "".join(f"<li>{escaped(entry)}</li>" for entry in entries)
    return f"{paragraph(title)}<{tag}>{shown}</{tag}>"


def details(summary: str, lines: Sequence[str]) -> str:
    """Lines of text that are shown on a click."""
    text = "\n".join(map(escaped, lines))
    return f"<details><summary>{escaped(summary)}</summary><pre>{text}</pre></details>"


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table. Columns of numbers are aligned to the right."""
    body = list(rows)
    classes = [_class_of([row[number] for row in body]) for number in range(len(headers))]
    head = _cells("th", headers, classes)
    lines = "".join(f"<tr>{_cells('td', row, classes)}</tr>" for row in body)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def _class_of(cells: Sequence[str]) -> str:
    is_number = all(cell in NO_VALUE or _NUMBER.fullmatch(cell) for cell in cells)
    return NUMBER if cells and is_number else TEXT


def _cells(tag: str, cells: Sequence[str], classes: Sequence[str]) -> str:
    empty = "" if tag == "th" else NO_VALUE[-1]
    shown = [escaped(cell) or empty for cell in cells]
    pairs = zip(shown, classes, strict=True)
    return "".join(f'<{tag} class="{kind}">{text}</{tag}>' for text, kind in pairs)

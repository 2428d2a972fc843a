"""Writes the items of a page as CSV (RFC 4180): the same rows, one column per field.

Nested values are written as JSON. Text that a spreadsheet would take for a formula gets an apostrophe in front: names
and messages come from users. Never leaves a field out.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any, Final

import msgspec

MEDIA_TYPE: Final = "text/csv; charset=utf-8"
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def written(items: Sequence[Any], item: Any) -> bytes:
    """A header line and one line per item."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(item.__struct_encode_fields__)
    for each in items:
        writer.writerow([_cell(getattr(each, field)) for field in item.__struct_fields__])
    return text.getvalue().encode(errors="replace")


def _cell(value: Any) -> str:
    plain = msgspec.to_builtins(value)
    if plain is None:
        return ""
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if isinstance(plain, str):
        return f"'{plain}" if plain.startswith(_FORMULA) else plain
    if isinstance(plain, int | float):
        return str(plain)
    return msgspec.json.encode(plain).decode()

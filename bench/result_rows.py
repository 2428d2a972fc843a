"""Writes results that grow run by run: one line a run, so that a changed run is one changed line.

Given what was measured how, and the runs in their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec


def write(path: Path, head: Mapping[str, str], field: str, rows: Iterable[msgspec.Struct]) -> None:
    """Replaces the file."""
    lines = [f" {_text(key)}: {_text(value)}," for key, value in head.items()]
    texts = ",\n".join(f"  {_text(row)}" for row in rows)
    path.write_text("{\n" + "\n".join(lines) + f'\n "{field}": [\n' + texts + "\n ]\n}\n")


def _text(value: object) -> str:
    """As JSON."""
    return msgspec.json.encode(value).decode()

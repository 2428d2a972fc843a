"""The recorded data beside the checkout, read in place. `DOVETAIL_SHARED` names another folder.

Recorded data is no real part: where it is absent its tests skip, whatever REQUIRE_REAL says, and the closing summary
names what was absent (`tests/support/closing.py`).
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

ROOT = Path(__file__).resolve().parents[2]
ABSENT = "recorded data is not there: "  # how the reason of such a skip begins


def data(name: str) -> Path:
    """The path of one recorded file; the test is skipped when it is not there."""
    path = folder() / name
    if not path.exists():
        pytest.skip(f"{ABSENT}{name}")
    return path


def folder() -> Path:
    """Where recorded data is looked for."""
    return Path(os.environ.get("DOVETAIL_SHARED", ROOT.parent / "shared"))


def document(name: str, *, now: str | None = None) -> Any:
    """One JSON document, gzip or plain. `now` takes the place of the mark that recorded data has for the time."""
    text = _bytes(data(name))
    return msgspec.json.decode(text if now is None else text.replace(b"<now>", now.encode()))


def lines(name: str) -> Iterator[Any]:
    """One JSON value per line, gzip or plain."""
    for line in _bytes(data(name)).splitlines():
        if line.strip():
            yield msgspec.json.decode(line)


def _bytes(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()

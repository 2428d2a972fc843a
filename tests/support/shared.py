"""The shared data beside the checkout, read in place. `DOVETAIL_SHARED` names another folder."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tests.support import real

ROOT = Path(__file__).resolve().parents[2]


def data(name: str) -> Path:
    """The path of one shared file; the test is skipped (or fails, REQUIRE_REAL=1) when it is not there."""
    path = Path(os.environ.get("DOVETAIL_SHARED", ROOT.parent / "shared")) / name
    if not path.exists():
        real.missing(f"shared data {name} (set DOVETAIL_SHARED to its folder)")
    return path


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

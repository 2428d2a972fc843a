"""Measurements from a file, as a source for history: one JSON object per line, as `dovetail history export` writes.

Given a path; the file is read once, within bounds. Never attributes: each line names its asset and allocation.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from dovetail import errors
from dovetail.model.accounting.records import Millis, Records, Usage

MAX_BYTES: Final = 1 << 30


class FileSource:
    """Implements `ports.usage_source.UsageSource`."""

    def __init__(self, path: Path) -> None:
        if path.stat().st_size > MAX_BYTES:
            raise errors.InputError(f"{path}: is larger than {MAX_BYTES >> 20} MiB; split it")
        self._usage = [
            _read(path, number, line)
            for number, line in enumerate(path.read_bytes().splitlines(), start=1)
            if line.strip()
        ]

    def window(self) -> tuple[Millis, Millis]:
        """From the first measurement to the last."""
        if not self._usage:
            return 0, 0
        return min(each.start for each in self._usage), max(each.end for each in self._usage)

    async def usage_between(self, start: Millis, end: Millis, known: Records) -> Records:
        """What begins in that time. A file does not say when nothing was measured."""
        begun = tuple(each for each in self._usage if start <= each.start < end)
        return Records(usage=begun)


def _read(path: Path, number: int, line: bytes) -> Usage:
    try:
        usage = msgspec.json.decode(line, type=Usage)
    except msgspec.DecodeError as error:
        raise errors.InputError(f"{path}:{number}: not a measurement: {error}") from None
    if usage.end <= usage.start:
        raise errors.InputError(f"{path}:{number}: ends at {usage.end}, begins at {usage.start}")
    return usage

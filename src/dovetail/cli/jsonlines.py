"""Reads files of JSON lines, plain or gzip, or standard input: line by line, each with its number."""

import gzip
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from dovetail import errors

STDIN = "-"


def numbered(file: str) -> Iterator[tuple[str, bytes]]:
    """Every line that holds something, with its place as `file: line 7`. Raises InputError where it cannot be read."""
    name = shown(file)
    try:
        for number, line in enumerate(_lines(file), start=1):
            if line.strip():
                yield f"{name}: line {number}", line
    except (OSError, EOFError) as error:
        raise errors.InputError(f"{name}: {getattr(error, 'strerror', None) or error}") from None


def shown(file: str) -> str:
    """How messages name it."""
    return "<stdin>" if file == STDIN else file


def _lines(file: str) -> Iterator[bytes]:
    if file == STDIN:
        yield from sys.stdin.buffer
        return
    with Path(file).open("rb") as raw:
        is_gzip = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        lines: Iterable[bytes] = gzip.GzipFile(fileobj=raw) if is_gzip else raw
        yield from lines

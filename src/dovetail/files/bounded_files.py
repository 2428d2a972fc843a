"""Reads untrusted files within bounds: whole ones, and lines of plain or compressed ones.

Given a path, or `-` for standard input. Every problem with a file (missing, too large, not text, damaged compression)
is an InputError that names it. Never holds more than the bounds in memory, however well a file compresses. Never
validates the content.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from dovetail import errors

STDIN: Final = "-"
MAX_BYTES: Final = 64 * 1024 * 1024  # ours; of a whole file, as `yaml_text` reads it
MAX_LINE_BYTES: Final = 64 * 1024 * 1024  # ours; the largest recorded world is some megabytes
MAX_EMPTY_LINES: Final = (
    1_000_000  # ours, in a row: a few kilobytes of gzip hold as many as one likes
)
_GZIP: Final = b"\x1f\x8b"


def display_name(file: str | Path) -> str:
    """The name of the file in messages."""
    return "<stdin>" if str(file) == STDIN else str(file)


def content(file: str | Path, *, most_bytes: int = MAX_BYTES) -> bytes:
    """The whole file. Raises InputError if it cannot be read or exceeds the bound."""
    name = display_name(file)
    try:
        if str(file) == STDIN:
            data = sys.stdin.buffer.read(most_bytes + 1)
        else:
            with Path(file).open("rb") as raw:
                data = raw.read(most_bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL in it
        raise errors.InputError(f"{name}: cannot be read: {_reason(error)}") from None
    if len(data) > most_bytes:
        raise errors.InputError(f"{name}: larger than {most_bytes >> 20} MiB; split it")
    return data


def text(file: str | Path, *, most_bytes: int = MAX_BYTES) -> str:
    """The whole file as text."""
    data = content(file, most_bytes=most_bytes)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise errors.InputError(
            f"{display_name(file)}: not UTF-8 text: byte {error.start} cannot be read"
        ) from None


def lines(file: str) -> Iterator[tuple[int, bytes]]:
    """Every line that is not empty, with its number. Raises InputError if the file cannot be read any further."""
    name = display_name(file)
    number = 0
    try:
        for number, line in enumerate(_lines(file), start=1):
            if len(line) > MAX_LINE_BYTES:
                raise errors.InputError(
                    f"{name}: line {number}: longer than {MAX_LINE_BYTES >> 20} MiB; expected one JSON object a line"
                )
            if stripped := line.strip():
                yield number, stripped
    except (OSError, EOFError, zlib.error, ValueError) as error:
        if isinstance(error, errors.InputError):
            raise
        where = f"{name}: after line {number}" if number else name
        raise errors.InputError(f"{where}: cannot be read: {_reason(error)}") from None


def _lines(file: str) -> Iterator[bytes]:
    if file == STDIN:
        yield from _bounded(sys.stdin.buffer, STDIN)
        return
    with Path(file).open("rb") as raw:
        is_gzip = raw.peek(len(_GZIP)).startswith(
            _GZIP
        )  # a pipe cannot be read from its start again
        yield from _bounded(gzip.GzipFile(fileobj=raw) if is_gzip else raw, file)


def _bounded(stream: IO[bytes] | gzip.GzipFile, file: str) -> Iterator[bytes]:
    """Lines up to one byte more than the bound, so that the caller sees when one is too long."""
    empty = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        empty = 0 if line.strip() else empty + 1
        if empty > MAX_EMPTY_LINES:
            raise errors.InputError(
                f"{display_name(file)}: more than {MAX_EMPTY_LINES} empty lines in a row"
            )
        yield line


def _reason(error: Exception) -> str:
    match error:
        case EOFError() | zlib.error() | gzip.BadGzipFile():
            return f"damaged gzip data ({error}); fetch or compress it again"
        case OSError(strerror=str(words)):
            return words
        case _:
            return str(error)

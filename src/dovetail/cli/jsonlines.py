"""Reads files of JSON lines, plain or gzip, or standard input: line by line, each with its place, and decoded."""

from collections.abc import Iterator
from typing import TypeVar

import msgspec

from dovetail import errors
from dovetail.boot import files

T = TypeVar("T")


def numbered(file: str) -> Iterator[tuple[str, bytes]]:
    """Every line that holds something, with its place as `file: line 7`. Raises InputError where it cannot be read."""
    name = shown(file)
    for number, line in files.lines(file):
        yield f"{name}: line {number}", line


def decoded(decoder: msgspec.json.Decoder[T], line: bytes, *, place: str) -> T:
    """What a line holds. Raises InputError naming the place and, where there is one, the field."""
    try:
        return decoder.decode(line)
    except msgspec.ValidationError as error:
        raise errors.InputError(f"{place}: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise errors.InputError(f"{place}: not JSON: {error}") from None


def shown(file: str) -> str:
    """How messages name it."""
    return files.shown(file)

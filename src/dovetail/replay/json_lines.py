"""Reads JSON lines from files, plain or gzip, or standard input, and decodes them. Errors name file and line."""

from collections.abc import Iterator
from typing import TypeVar

import msgspec

from dovetail import errors
from dovetail.files import bounded_files

T = TypeVar("T")


def numbered(file: str) -> Iterator[tuple[str, bytes]]:
    """Every line that is not empty, with its place as `file: line 7`. Raises InputError if it cannot be read."""
    name = shown(file)
    for number, line in bounded_files.lines(file):
        yield f"{name}: line {number}", line


def decoded(decoder: msgspec.json.Decoder[T], line: bytes, *, place: str) -> T:
    """The decoded line. Raises InputError with the place and, if known, the field."""
    try:
        return decoder.decode(line)
    except msgspec.ValidationError as error:
        raise errors.InputError(f"{place}: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise errors.InputError(f"{place}: not JSON: {error}") from None


def shown(file: str) -> str:
    """The name of the file in messages."""
    return bounded_files.display_name(file)

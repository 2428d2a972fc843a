"""Selector cases from outside: one JSON object a line in, one verdict a line out, in order.

In: {"id", "expression", "device": {"driver", "attributes", "capacity", "allowMultipleAllocations"}}, attributes and
capacity as in a ResourceSlice. Out: {"id", "outcome": match|no-match|error|compile-error, "cost"}.
"""

import gzip
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from dovetail import errors
from dovetail.cel import devices, selectors
from dovetail.cel.program import Outcome
from dovetail.model import quantity, slices

COMPILE_ERROR = "compile-error"
_FLUSH_EVERY = 256


class _Case(msgspec.Struct):
    expression: str
    device: dict[str, Any] = {}
    id: Any = None


def run(file: str) -> int:
    """Reads every case and prints its verdict. A line that is no case ends with an error naming it."""
    out = sys.stdout.buffer
    decoder = msgspec.json.Decoder(_Case)
    encoder = msgspec.json.Encoder()
    for number, line in enumerate(_lines(file), start=1):
        try:
            answer = _judged(decoder.decode(line))
        except msgspec.ValidationError as error:
            raise errors.InputError(f"{_shown(file)}: line {number}: {error}") from None
        except msgspec.DecodeError as error:
            raise errors.InputError(f"{_shown(file)}: line {number}: not JSON: {error}") from None
        out.write(encoder.encode(answer) + b"\n")
        if number % _FLUSH_EVERY == 0:
            out.flush()
    out.flush()
    return 0


def _judged(case: _Case) -> dict[str, Any]:
    chosen = _compiled(case.expression)
    if chosen is None:
        return {"id": case.id, "outcome": COMPILE_ERROR, "cost": None}
    body = dict(case.device)
    driver = body.pop("driver", "")
    try:
        device = msgspec.convert(body, slices.Device, dec_hook=quantity.decode_hook)
    except (msgspec.ValidationError, errors.InputError):
        return {"id": case.id, "outcome": str(Outcome.ERROR), "cost": None}
    result = chosen.evaluate(devices.view(driver, device))
    return {"id": case.id, "outcome": str(Outcome(result.outcome)), "cost": result.cost}


@lru_cache(maxsize=4096)
def _compiled(expression: str) -> selectors.Selector | None:
    try:
        return selectors.selector(expression)
    except errors.ExpressionError:
        return None


def _shown(file: str) -> str:
    return "<stdin>" if file == "-" else file


def _lines(file: str) -> Iterator[bytes]:
    try:
        if file == "-":
            yield from _filled(sys.stdin.buffer)
        else:
            with Path(file).open("rb") as raw:
                is_gzip = raw.read(2) == b"\x1f\x8b"
                raw.seek(0)
                yield from _filled(cast("BinaryIO", gzip.GzipFile(fileobj=raw)) if is_gzip else raw)
    except OSError as error:
        raise errors.InputError(f"{file}: {error.strerror or error}") from None


def _filled(stream: BinaryIO) -> Iterator[bytes]:
    return (line for line in stream if line.strip())

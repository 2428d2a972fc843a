"""Selector cases from outside: one JSON object a line in, one verdict a line out, in order.

In: {"id", "expression", "device": {"driver", "attributes", "capacity", "allowMultipleAllocations"}}, attributes and
capacity as in a ResourceSlice. Out: {"id", "outcome": match|no-match|error|compile-error, "cost"}.
"""

import sys
from functools import lru_cache
from typing import Any

import msgspec

from dovetail import errors
from dovetail.cel import devices, selectors
from dovetail.cel.program import Outcome
from dovetail.cli import jsonlines
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
    for number, (place, line) in enumerate(jsonlines.numbered(file), start=1):
        try:
            answer = _judged(decoder.decode(line))
        except msgspec.ValidationError as error:
            raise errors.InputError(f"{place}: {error}") from None
        except msgspec.DecodeError as error:
            raise errors.InputError(f"{place}: not JSON: {error}") from None
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

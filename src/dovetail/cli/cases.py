"""Selector cases from outside: one JSON object a line in, one verdict a line out, in order.

In: {"id", "expression", "device": {"driver", "attributes", "capacity", "allowMultipleAllocations"}}, attributes and
capacity as in a ResourceSlice. Out: {"id", "outcome": match|no-match|error|compile-error, "cost"}.
"""

from functools import lru_cache
from typing import Any

import msgspec

from dovetail import errors
from dovetail.cel import devices, selectors
from dovetail.cel.program import Outcome
from dovetail.cli import jsonlines, output
from dovetail.model import quantity, slices

COMPILE_ERROR = "compile-error"
_FLUSH_EVERY = 256


class _Case(msgspec.Struct):
    expression: str
    device: dict[str, Any] = {}
    id: Any = None


def run(file: str) -> int:
    """Reads every case and prints its verdict. A line that is no case ends with an error naming it."""
    decoder = msgspec.json.Decoder(_Case)
    try:
        for number, (place, line) in enumerate(jsonlines.numbered(file), start=1):
            answer = _judged(jsonlines.decoded(decoder, line, place=place))
            output.write_json_line(answer, flushed=number % _FLUSH_EVERY == 0)
    finally:
        output.flush()  # what was answered before a broken line stays answered
    return 0


def _judged(case: _Case) -> dict[str, Any]:
    chosen = _compiled(case.expression)
    if chosen is None:
        return {"id": case.id, "outcome": COMPILE_ERROR, "cost": None}
    body = dict(case.device)
    driver = body.pop("driver", "")
    try:
        device = msgspec.convert(body, slices.Device, dec_hook=quantity.decode_hook)
    except (msgspec.ValidationError, errors.InputError, RecursionError):
        device = None
    if device is None or not isinstance(driver, str):
        return {"id": case.id, "outcome": str(Outcome.ERROR), "cost": None}
    result = chosen.evaluate(devices.view(driver, device))
    return {"id": case.id, "outcome": str(Outcome(result.outcome)), "cost": result.cost}


@lru_cache(maxsize=4096)
def _compiled(expression: str) -> selectors.Selector | None:
    try:
        return selectors.selector(expression)
    except errors.ExpressionError:
        return None

"""Evaluates selector cases from files: one JSON object per line in, one verdict per line out, in order.

In: {"id", "expression", "device": {"driver", "attributes", "capacity", "allowMultipleAllocations"}}, attributes and
capacity as in a ResourceSlice. Out: {"id", "outcome": match|no-match|error|compile-error, "cost"}.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec

from dovetail import errors
from dovetail.cel import device_views, selectors
from dovetail.cel.evaluate.program import Outcome
from dovetail.kubetypes.resource import slices
from dovetail.quantity import quantity
from dovetail.replay import json_lines

COMPILE_ERROR = "compile-error"


class _Case(msgspec.Struct):
    expression: str
    device: dict[str, Any] = {}
    id: Any = None


def answers(file: str) -> Iterator[dict[str, Any]]:
    """The verdict on every case, in order. Raises InputError with the line if it is not a case."""
    decoder = msgspec.json.Decoder(_Case)
    for place, line in json_lines.numbered(file):
        yield _evaluate(json_lines.decoded(decoder, line, place=place))


def _evaluate(case: _Case) -> dict[str, Any]:
    selector = _compiled(case.expression)
    if selector is None:
        return {"id": case.id, "outcome": COMPILE_ERROR, "cost": None}
    body = dict(case.device)
    driver = body.pop("driver", "")
    try:
        device = msgspec.convert(body, slices.Device, dec_hook=quantity.decode_hook)
    except (msgspec.ValidationError, errors.InputError, RecursionError):
        device = None
    if device is None or not isinstance(driver, str):
        return {"id": case.id, "outcome": str(Outcome.ERROR), "cost": None}
    result = selector.evaluate(device_views.view(driver, device))
    return {"id": case.id, "outcome": str(Outcome(result.outcome)), "cost": result.cost}


@lru_cache(maxsize=4096)
def _compiled(expression: str) -> selectors.Selector | None:
    try:
        return selectors.selector(expression)
    except errors.ExpressionError:
        return None

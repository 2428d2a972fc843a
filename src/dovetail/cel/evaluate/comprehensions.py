"""Loops of comprehensions. The accumulator is computed when first read, and may hold an error between rounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dovetail.cel.evaluate import values
from dovetail.cel.evaluate.attribute_chains import Run
from dovetail.cel.evaluate.frame import UNSET, Frame
from dovetail.cel.evaluate.values import CelError, MutableList, MutableMap, Value


class Fold(NamedTuple):
    """The closures of a comprehension and the slots of its variables."""

    over: Run
    condition: Run
    step: Run
    result: Run
    accumulator: int
    first: int
    second: int | None


def plan_fold(fold: Fold) -> Run:
    """Runs the loop: condition and step, then the result."""

    def run(frame: Frame) -> Value:
        slots = frame.slots
        slots[fold.accumulator] = UNSET
        rounds = _rounds(fold.over(frame), fold.second is not None)
        for key, value in rounds:
            slots[fold.first] = key
            if fold.second is not None:
                slots[fold.second] = value
            if _ends(fold.condition, frame):
                break
            try:
                slots[fold.accumulator] = fold.step(frame)
            except CelError as error:
                slots[fold.accumulator] = error
        return _settled(fold.result(frame))

    return run


def initial(frame: Frame, index: int, init: Run) -> Value:
    """Puts an accumulator's first value into its slot. Empty lists and maps become growable."""
    try:
        value = init(frame)
    except CelError as error:
        value = error
    if isinstance(value, list) and not value:
        value = MutableList()
    elif isinstance(value, dict) and not value:
        value = MutableMap()
    frame.slots[index] = value
    return value


def _ends(condition: Run, frame: Frame) -> bool:
    try:
        return condition(frame) is False
    except CelError:
        return False


def _rounds(over: Value, is_pair: bool) -> Iterator[tuple[Value, Value]]:
    if isinstance(over, list):
        return iter(enumerate(over)) if is_pair else ((element, None) for element in over)
    if isinstance(over, dict):
        return ((values.key_value(key), value) for key, value in over.items())
    raise CelError(f"cannot iterate over a value of type {values.type_of(over)}")


def _settled(value: Value) -> Value:
    """A list or map that was built in place, frozen into an ordinary one."""
    if value.__class__ is MutableList:
        return list(value)
    if value.__class__ is MutableMap:
        return dict(value)
    return value

"""`&&`, `||` and the loop test that absorb errors: an error counts only where no operand decides."""

from __future__ import annotations

from dovetail.cel.evaluate import values
from dovetail.cel.evaluate.attribute_chains import Run
from dovetail.cel.evaluate.frame import Frame
from dovetail.cel.evaluate.values import CelError, Value


def conjunction(runs: tuple[Run, ...]) -> Run:
    """True when all are; false as soon as one is."""
    return _decided(runs, decisive=False)


def disjunction(runs: tuple[Run, ...]) -> Run:
    """True as soon as one is; false when all are."""
    return _decided(runs, decisive=True)


def _decided(runs: tuple[Run, ...], *, decisive: bool) -> Run:
    left, right = runs
    neutral = not decisive

    def run(frame: Frame) -> Value:
        try:
            value = left(frame)
        except CelError as first:
            if _value_or_none(right, frame) is decisive:
                return decisive
            raise first from None
        if value is decisive:
            return decisive
        right_value = right(frame)
        if right_value is decisive:
            return decisive
        if value is neutral and right_value is neutral:
            return neutral
        raise values.no_such_overload()

    return run


def _value_or_none(run: Run, frame: Frame) -> Value:
    try:
        return run(frame)
    except CelError:
        return None


def not_strictly_false(argument: Run) -> Run:
    """False only for false: errors and other values let a loop go on."""

    def run(frame: Frame) -> Value:
        try:
            return argument(frame) is not False
        except CelError:
            return True

    return run

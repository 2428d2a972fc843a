"""Closures for calls: operators with shortcuts for common constants, and library functions behind their guards."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.cel.check.declarations import Implementation, Overload
from dovetail.cel.evaluate import values
from dovetail.cel.evaluate.attribute_chains import Run
from dovetail.cel.evaluate.frame import Frame
from dovetail.cel.evaluate.values import CelError, Value


def binary(
    name: str,
    operator: Callable[[Value, Value], Value],
    runs: tuple[Run, ...],
    *,
    constant: Value,
    tracked: bool,
) -> Run:
    """An operator on two operands. When cost is tracked both are evaluated even if the first fails."""
    left, right = runs
    if tracked:
        return sequence(operator, runs, eager=True)
    if constant.__class__ is str and name in ("_==_", "_!=_"):
        return _compared_with_text(operator, left, constant, is_equal=name == "_==_")
    if constant.__class__ is int and name in _INTEGER:
        return _compared_with_integer(name, operator, left, constant)
    return lambda frame: operator(left(frame), right(frame))


def _compared_with_text(
    operator: Callable[[Value, Value], Value], left: Run, constant: str, *, is_equal: bool
) -> Run:
    def run(frame: Frame) -> Value:
        value = left(frame)
        if value.__class__ is str:
            return (value == constant) is is_equal
        return operator(value, constant)

    return run


_INTEGER: dict[str, Callable[[int, int], bool]] = {
    "_==_": int.__eq__,
    "_!=_": int.__ne__,
    "_<_": int.__lt__,
    "_<=_": int.__le__,
    "_>_": int.__gt__,
    "_>=_": int.__ge__,
}


def _compared_with_integer(
    name: str, operator: Callable[[Value, Value], Value], left: Run, constant: int
) -> Run:
    quick = _INTEGER[name]

    def run(frame: Frame) -> Value:
        value = left(frame)
        if value.__class__ is int:
            return quick(value, constant)
        return operator(value, constant)

    return run


def sequence(implementation: Implementation, runs: tuple[Run, ...], *, eager: bool) -> Run:
    """A call that evaluates its arguments in order and stops at the first error, unless eager."""
    if eager:
        return _eager(implementation, runs)
    if len(runs) == 1:
        (only,) = runs
        return lambda frame: implementation(only(frame))
    if len(runs) == 2:
        first, second = runs
        return lambda frame: implementation(first(frame), second(frame))
    return lambda frame: implementation(*[run(frame) for run in runs])


def _eager(implementation: Implementation, runs: tuple[Run, ...]) -> Run:
    def run(frame: Frame) -> Value:
        arguments: list[Value] = []
        failed: CelError | None = None
        for argument in runs:
            try:
                arguments.append(argument(frame))
            except CelError as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return implementation(*arguments)

    return run


def guarded(overloads: list[Overload]) -> Implementation:
    """A function that runs the first overload whose signature the values fit."""
    if len(overloads) == 1 and len(overloads[0].guards) == 2:
        return _guarded_pair(overloads[0])
    if len(overloads) == 1 and len(overloads[0].guards) == 1:
        return _guarded_one(overloads[0])

    def call(*arguments: Value) -> Value:
        for overload in overloads:
            if overload.accepts(arguments) and overload.implementation is not None:
                return overload.implementation(*arguments)
        raise values.no_such_overload()

    return call


def _guarded_one(overload: Overload) -> Implementation:
    (guard,) = overload.guards
    implementation = overload.implementation

    def call(value: Value) -> Value:
        if implementation is None or (guard is not None and not guard(value)):
            raise values.no_such_overload()
        return implementation(value)

    return call


def _guarded_pair(overload: Overload) -> Implementation:
    first, second = overload.guards
    implementation = overload.implementation

    def call(left: Value, right: Value) -> Value:
        if (
            implementation is None
            or (first is not None and not first(left))
            or (second is not None and not second(right))
        ):
            raise values.no_such_overload()
        return implementation(left, right)

    return call

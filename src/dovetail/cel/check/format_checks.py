"""Checks `"...".format([...])` with a literal format: every clause has an argument of a type it can show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dovetail.cel.check.checker import Checked
from dovetail.cel.check.types import Kind
from dovetail.cel.evaluate.values import CelError
from dovetail.cel.language import ast
from dovetail.cel.language.source import Issue
from dovetail.cel.library import formatting

_INTEGERS: Final = frozenset((Kind.INT, Kind.UINT))
_SHOWABLE: Final = _INTEGERS | {
    Kind.LIST, Kind.MAP, Kind.DOUBLE, Kind.BOOL, Kind.STRING, Kind.TIMESTAMP, Kind.BYTES, Kind.DURATION, Kind.TYPE,
    Kind.NULL,
}  # fmt: skip
_TAKES: Final = {
    "d": _INTEGERS,
    "o": _INTEGERS,
    "b": _INTEGERS | {Kind.BOOL},
    "x": _INTEGERS | {Kind.STRING, Kind.BYTES},
    "X": _INTEGERS | {Kind.STRING, Kind.BYTES},
    "f": frozenset((Kind.DOUBLE, Kind.STRING)),
    "e": frozenset((Kind.DOUBLE, Kind.STRING)),
}


def issues(checked: Checked, call: ast.Call) -> Iterator[Issue]:
    """The issues of one call of format; none if the format or the arguments are not literals."""
    target, args = call.target, call.args
    if not (isinstance(target, ast.Literal) and target.value.__class__ is str and len(args) == 1):
        return
    if not isinstance(args[0], ast.ListExpr):
        return
    arguments = args[0].elements
    try:
        clauses = [
            piece
            for piece in formatting.parse(target.value)
            if isinstance(piece, formatting.Clause)
        ]
    except CelError as error:
        yield Issue(target.offset, str(error))
        return
    for clause, argument in zip(clauses, arguments, strict=False):
        wrong = _misfit(checked, clause.verb, argument)
        if wrong is not None:
            yield Issue(wrong.offset, f"%{clause.verb} cannot show a {checked.type_of(wrong)}")
            return
    if len(clauses) != len(arguments):
        yield Issue(
            call.offset, f"the format has {len(clauses)} clauses for {len(arguments)} arguments"
        )


def _misfit(checked: Checked, verb: str, argument: ast.Node) -> ast.Node | None:
    kind = checked.type_of(argument).kind
    allowed_kinds = _SHOWABLE if verb == "s" else _TAKES[verb]
    if kind != Kind.DYN and kind not in allowed_kinds:
        return argument
    if verb != "s" or not isinstance(argument, ast.ListExpr | ast.MapExpr):
        return None

    for part in ast.children(argument):
        misfit = _misfit(checked, "s", part)
        if misfit is not None:
            return misfit
    return None

"""Macros: has, all, exists, map, filter, cel.bind and the like become folds and presence tests.

Given a parsed call, returns the tree that replaces it, or None for an ordinary call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from dovetail.cel.language import ast
from dovetail.cel.language.source import Issue

if TYPE_CHECKING:
    from dovetail.cel.language.parser import _Parser

ACCUMULATOR: Final = "@result"
UNUSED: Final = "#unused"
_FORBIDDEN: Final = (ACCUMULATOR, "__result__")


class _Bad(Exception):
    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.issue = Issue(offset, message)


def expand(
    parser: _Parser,
    node_id: int,
    offset: int,
    function: str,
    target: ast.Node | None,
    args: list[ast.Node],
) -> ast.Node | None:
    """The tree a macro call expands to; None if the call is not a macro. A malformed macro adds an issue."""
    maker = _MACROS.get((function, len(args), target is not None))
    if maker is None:
        return None
    try:
        return maker(_Builder(parser, offset, function), target, args)
    except _Bad as bad:
        parser.issues.append(bad.issue)
        return ast.Literal(node_id, offset, None)


class _Builder:
    """Creates nodes with new ids at the macro's offset."""

    def __init__(self, parser: _Parser, offset: int, macro: str) -> None:
        self.parser = parser
        self.offset = offset
        self.macro = macro

    def literal(self, value: object) -> ast.Node:
        return ast.Literal(self.parser.next_id(), self.offset, value)

    def ident(self, name: str = ACCUMULATOR) -> ast.Node:
        return ast.Ident(self.parser.next_id(), self.offset, name)

    def list(self, *elements: ast.Node) -> ast.Node:
        return ast.ListExpr(self.parser.next_id(), self.offset, list(elements), frozenset())

    def map(self) -> ast.Node:
        return ast.MapExpr(self.parser.next_id(), self.offset, [])

    def call(self, function: str, *args: ast.Node, target: ast.Node | None = None) -> ast.Node:
        return ast.Call(self.parser.next_id(), self.offset, function, list(args), target=target)

    def fold(
        self,
        over: ast.Node,
        variables: tuple[str, str],
        *,
        init: ast.Node,
        condition: ast.Node,
        step: ast.Node,
        result: ast.Node,
        accumulator: str = ACCUMULATOR,
    ) -> ast.Node:
        return ast.Comprehension(
            self.parser.next_id(),
            self.offset,
            iter_range=over,
            iter_var=variables[0],
            iter_var2=variables[1],
            accu_var=accumulator,
            accu_init=init,
            condition=condition,
            step=step,
            result=result,
            macro=self.macro,
        )

    def bind(self, name: str, value: ast.Node, result: ast.Node) -> ast.Node:
        """A local variable: a fold over nothing whose accumulator is the variable, evaluated when first read."""
        return self.fold(
            self.list(),
            (UNUSED, ""),
            init=value,
            condition=self.literal(False),
            step=self.ident(name),
            result=result,
            accumulator=name,
        )

    def copy(self, node: ast.Node) -> ast.Node:
        """The same expression with new ids."""
        new = self.parser.next_id()
        at = node.offset
        match node:
            case ast.Literal():
                return ast.Literal(new, at, node.value)
            case ast.Ident():
                return ast.Ident(new, at, node.name)
            case ast.Select():
                return ast.Select(
                    new, at, self.copy(node.operand), node.field, test_only=node.test_only
                )
            case ast.Call():
                target = None if node.target is None else self.copy(node.target)
                return ast.Call(
                    new, at, node.function, [self.copy(a) for a in node.args], target=target
                )
            case ast.ListExpr():
                return ast.ListExpr(new, at, [self.copy(e) for e in node.elements], node.optional)
            case ast.MapExpr():
                return ast.MapExpr(new, at, [self._entry(e) for e in node.entries])
            case ast.StructExpr():
                return ast.StructExpr(
                    new, at, node.type_name, [self._entry(e) for e in node.entries]
                )
            case ast.Comprehension():
                return self._copy_fold(node, new)
        raise AssertionError(f"unknown node {node!r}")

    def _entry(self, entry: ast.Entry) -> ast.Entry:
        key = None if entry.key is None else self.copy(entry.key)
        return ast.Entry(
            self.parser.next_id(),
            entry.offset,
            key,
            self.copy(entry.value),
            name=entry.name,
            optional=entry.optional,
        )

    def _copy_fold(self, node: ast.Comprehension, new: int) -> ast.Node:
        return ast.Comprehension(
            new,
            node.offset,
            iter_range=self.copy(node.iter_range),
            iter_var=node.iter_var,
            iter_var2=node.iter_var2,
            accu_var=node.accu_var,
            accu_init=self.copy(node.accu_init),
            condition=self.copy(node.condition),
            step=self.copy(node.step),
            result=self.copy(node.result),
            macro=node.macro,
        )


_Maker = Callable[[_Builder, ast.Node | None, list[ast.Node]], ast.Node | None]


def _variable(node: ast.Node) -> str:
    if not isinstance(node, ast.Ident):
        raise _Bad(node.offset, "the first argument must be a simple name")
    if node.name in _FORBIDDEN:
        raise _Bad(node.offset, f"'{node.name}' cannot be a variable here")
    return node.name


def _variables(args: list[ast.Node], count: int) -> tuple[str, str]:
    first = _variable(args[0])
    if count == 1:
        return first, ""
    second = _variable(args[1])
    if first == second:
        raise _Bad(args[1].offset, f"two variables are both named '{first}'")
    return first, second


def _has(b: _Builder, target: ast.Node | None, args: list[ast.Node]) -> ast.Node:
    selection = args[0]
    if not isinstance(selection, ast.Select):
        raise _Bad(selection.offset, "has() takes a field selection such as has(a.b)")
    new = b.parser.next_id()
    return ast.Select(new, selection.offset, selection.operand, selection.field, test_only=True)


def _quantifier(kind: str, count: int) -> _Maker:
    def make(b: _Builder, target: ast.Node | None, args: list[ast.Node]) -> ast.Node:
        assert target is not None
        names = _variables(args, count)
        predicate = args[count]
        if kind == "all":
            return b.fold(
                target,
                names,
                init=b.literal(True),
                condition=b.call("@not_strictly_false", b.ident()),
                step=b.call("_&&_", b.ident(), predicate),
                result=b.ident(),
            )
        if kind == "exists":
            return b.fold(
                target,
                names,
                init=b.literal(False),
                condition=b.call("@not_strictly_false", b.call("!_", b.ident())),
                step=b.call("_||_", b.ident(), predicate),
                result=b.ident(),
            )
        return b.fold(
            target,
            names,
            init=b.literal(0),
            condition=b.literal(True),
            step=b.call("_?_:_", predicate, b.call("_+_", b.ident(), b.literal(1)), b.ident()),
            result=b.call("_==_", b.ident(), b.literal(1)),
        )

    return make


def _transform(kind: str, count: int) -> _Maker:
    """map and transformList, transformMap, transformMapEntry, each with an optional filter before the last."""

    def make(b: _Builder, target: ast.Node | None, args: list[ast.Node]) -> ast.Node:
        assert target is not None
        names = _variables(args, count)
        filter_ = args[count] if len(args) == count + 2 else None
        value = args[-1]
        if kind == "list":
            step = b.call("_+_", b.ident(), b.list(value))
        elif kind == "map":
            step = b.call("cel.@mapInsert", b.ident(), b.ident(names[0]), value)
        else:
            step = b.call("cel.@mapInsert", b.ident(), value)
        if filter_ is not None:
            step = b.call("_?_:_", filter_, step, b.ident())
        init = b.list() if kind == "list" else b.map()
        return b.fold(
            target, names, init=init, condition=b.literal(True), step=step, result=b.ident()
        )

    return make


def _filter(b: _Builder, target: ast.Node | None, args: list[ast.Node]) -> ast.Node:
    assert target is not None
    name = _variable(args[0])
    keep = b.call("_+_", b.ident(), b.list(args[0]))
    step = b.call("_?_:_", args[1], keep, b.ident())
    return b.fold(
        target, (name, ""), init=b.list(), condition=b.literal(True), step=step, result=b.ident()
    )


def _bind(b: _Builder, target: ast.Node | None, args: list[ast.Node]) -> ast.Node | None:
    if not (isinstance(target, ast.Ident) and target.name == "cel"):
        return None
    if not isinstance(args[0], ast.Ident):
        raise _Bad(args[0].offset, "cel.bind() takes a simple name first")
    return b.bind(args[0].name, args[1], args[2])


def _optional_map(b: _Builder, target: ast.Node | None, args: list[ast.Node]) -> ast.Node:
    assert target is not None
    if not isinstance(args[0], ast.Ident):
        raise _Bad(args[0].offset, f"{b.macro}() takes a simple name first")
    has_value = b.call("hasValue", target=target)
    inner = b.bind(args[0].name, b.call("value", target=b.copy(target)), args[1])
    wrapped = b.call("optional.of", inner) if b.macro == "optMap" else inner
    return b.call("_?_:_", has_value, wrapped, b.call("optional.none"))


def _sort_by(b: _Builder, target: ast.Node | None, args: list[ast.Node]) -> ast.Node:
    if not isinstance(target, ast.ListExpr | ast.Select | ast.Ident | ast.Comprehension | ast.Call):
        raise _Bad(b.offset, "sortBy() applies to a list")
    name = "@__sortBy_input__"
    sort_keys = _transform("list", 1)(b, b.ident(name), args)
    assert sort_keys is not None
    return b.bind(name, target, b.call("@sortByAssociatedKeys", sort_keys, target=b.ident(name)))


_MACROS: Final[dict[tuple[str, int, bool], _Maker]] = {
    ("has", 1, False): _has,
    ("all", 2, True): _quantifier("all", 1),
    ("exists", 2, True): _quantifier("exists", 1),
    ("exists_one", 2, True): _quantifier("exists_one", 1),
    ("map", 2, True): _transform("list", 1),
    ("map", 3, True): _transform("list", 1),
    ("filter", 2, True): _filter,
    ("all", 3, True): _quantifier("all", 2),
    ("exists", 3, True): _quantifier("exists", 2),
    ("existsOne", 3, True): _quantifier("exists_one", 2),
    ("exists_one", 3, True): _quantifier("exists_one", 2),
    ("transformList", 3, True): _transform("list", 2),
    ("transformList", 4, True): _transform("list", 2),
    ("transformMap", 3, True): _transform("map", 2),
    ("transformMap", 4, True): _transform("map", 2),
    ("transformMapEntry", 3, True): _transform("entry", 2),
    ("transformMapEntry", 4, True): _transform("entry", 2),
    ("sortBy", 2, True): _sort_by,
    ("bind", 3, True): _bind,
    ("optMap", 2, True): _optional_map,
    ("optFlatMap", 2, True): _optional_map,
}

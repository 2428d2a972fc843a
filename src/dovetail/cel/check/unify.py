"""Decides whether types agree, and binds type variables. Bindings of a failed attempt are undone."""

from __future__ import annotations

from dovetail.cel.check import types
from dovetail.cel.check.types import Kind, Type

_SCALARS = frozenset(
    (
        Kind.BOOL,
        Kind.BYTES,
        Kind.DOUBLE,
        Kind.INT,
        Kind.STRING,
        Kind.UINT,
        Kind.ANY,
        Kind.DURATION,
        Kind.TIMESTAMP,
        Kind.STRUCT,
    )
)
_NULLABLE = frozenset((Kind.OPAQUE, Kind.STRUCT, Kind.ANY, Kind.DURATION, Kind.TIMESTAMP))
_COMPOUND = frozenset((Kind.OPAQUE, Kind.LIST, Kind.MAP))


class Bindings:
    """What each type variable stands for so far."""

    def __init__(self) -> None:
        self._bound: dict[Type, Type] = {}
        self._log: list[tuple[Type, Type | None]] = []
        self._fresh = 0

    def fresh(self) -> Type:
        """A fresh type variable."""
        self._fresh += 1
        return types.param(f"_var{self._fresh - 1}")

    def agree(self, first: Type, second: Type) -> bool:
        """Whether a value of the first type is allowed where the second is expected; keeps bindings if so."""
        return self.agree_all((first,), (second,))

    def agree_all(self, firsts: tuple[Type, ...], seconds: tuple[Type, ...]) -> bool:
        """The same for lists of equal length, all or nothing."""
        mark = len(self._log)
        if self._agree_each(firsts, seconds):
            return True
        while len(self._log) > mark:
            variable, old = self._log.pop()
            if old is None:
                del self._bound[variable]
            else:
                self._bound[variable] = old
        return False

    def resolve(self, type_: Type, *, unbound_is_dyn: bool = False) -> Type:
        """The type with every bound variable replaced; unbound ones become dyn on request."""
        if type_.kind == Kind.PARAM:
            bound = self._bound.get(type_)
            if bound is not None:
                return self.resolve(bound, unbound_is_dyn=unbound_is_dyn)
            return types.DYN if unbound_is_dyn else type_
        if not type_.params:
            return type_
        params = tuple(self.resolve(p, unbound_is_dyn=unbound_is_dyn) for p in type_.params)
        return type_ if params == type_.params else Type(type_.kind, type_.name, params)

    def _bind(self, variable: Type, type_: Type) -> None:
        self._log.append((variable, self._bound.get(variable)))
        self._bound[variable] = type_

    def _agree_each(self, firsts: tuple[Type, ...], seconds: tuple[Type, ...]) -> bool:
        if len(firsts) != len(seconds):
            return False
        return all(self._agree(a, b) for a, b in zip(firsts, seconds, strict=True))

    def _agree(self, first: Type, second: Type) -> bool:
        if second.kind == Kind.PARAM:
            valid, is_bound = self._substitutes(first, second)
            if valid or is_bound:
                return valid
        if first.kind == Kind.PARAM:
            return self._substitutes(second, first)[0]
        if _is_open(first) or _is_open(second):
            return True
        if first.kind == Kind.NULL:
            return _accepts_null(second)
        if second.kind == Kind.NULL:
            return _accepts_null(first)
        return self._agree_concrete(first, second)

    def _agree_concrete(self, first: Type, second: Type) -> bool:
        """For types that are neither variables nor open nor null."""
        if first.kind == Kind.TYPE:
            return second.kind == Kind.TYPE

        has_same_name = first.kind == second.kind and first.name == second.name
        if not has_same_name:
            return False
        if first.kind in _SCALARS:
            return True
        if first.kind in _COMPOUND:
            return self._agree_each(first.params, second.params)
        return False

    def _substitutes(self, type_: Type, variable: Type) -> tuple[bool, bool]:
        """Whether the variable may stand for the type, and whether it was bound already."""
        if type_ == variable:
            return True, True
        bound = self._bound.get(variable)
        if bound is not None:
            if type_ == bound:
                return True, True
            if self._agree(type_, bound):
                wider = most_general(type_, bound)
                if not self._occurs(variable, wider):
                    self._bind(variable, wider)
                return True, True
            return False, True
        if self._occurs(variable, type_):
            return False, False
        self._bind(variable, type_)
        return True, False

    def _occurs(self, variable: Type, within: Type) -> bool:
        if variable == within:
            return True
        if within.kind == Kind.PARAM:
            bound = self._bound.get(within)
            return bound is not None and self._occurs(variable, bound)
        return any(self._occurs(variable, p) for p in within.params)


def most_general(first: Type, second: Type) -> Type:
    """The more general of two types that agree."""
    return first if _is_wider_or_equal(first, second) else second


def _is_wider_or_equal(first: Type, second: Type) -> bool:
    if _stands_for_any(first):
        return True
    if _stands_for_any(second):
        return False
    if first.kind != second.kind:
        return False
    if first.kind in _COMPOUND:
        return _has_wider_or_equal_parameters(first, second)
    if first.kind == Kind.TYPE:
        return True
    return first.name == second.name


def _stands_for_any(type_: Type) -> bool:
    return types.is_dyn(type_) or type_.kind == Kind.PARAM


def _has_wider_or_equal_parameters(first: Type, second: Type) -> bool:
    if first.name != second.name:
        return False
    if len(first.params) != len(second.params):
        return False
    pairs = zip(first.params, second.params, strict=True)
    return all(_is_wider_or_equal(a, b) for a, b in pairs)


def _is_open(type_: Type) -> bool:
    return types.is_dyn(type_) or type_.kind == Kind.ERROR


def _accepts_null(type_: Type) -> bool:
    return type_.kind in _NULLABLE or type_.nullable or type_.kind == Kind.NULL

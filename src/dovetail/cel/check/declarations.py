"""How functions are declared: overloads with static signatures and the Python function behind each.

A signature is text, `"list(<A>), <A> -> int"`; the first type is the receiver of a member function. An
implementation gets values that already passed the signature's run-time guard and returns a value or raises CelError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dovetail.cel.check import types
from dovetail.cel.check.types import Kind, Type
from dovetail.cel.evaluate.values import TYPE_OF_CLASS, Value, key_value

Implementation = Callable[..., Value]


class Overload:
    """One signature of a function."""

    __slots__ = (
        "args",
        "function",
        "guards",
        "id",
        "implementation",
        "is_member",
        "params",
        "result",
    )

    def __init__(
        self,
        function: str,
        id: str,
        signature: str,
        implementation: Implementation | None,
        *,
        is_member: bool,
    ) -> None:
        args, _, result = signature.rpartition("->")
        self.function = function
        self.id = id
        self.is_member = is_member
        self.args = types.parse_list(args)
        self.result = types.parse(result)
        self.params = sorted(_params((*self.args, self.result)))
        self.implementation = implementation
        self.guards = tuple(_guard(arg) for arg in self.args)

    def accepts(self, values: tuple[Value, ...]) -> bool:
        """Whether run-time values fit; of lists and maps only the first entry is checked, as upstream does."""
        return len(values) == len(self.guards) and all(
            guard is None or guard(value) for guard, value in zip(self.guards, values, strict=True)
        )


class Library:
    """A set of functions, each with its overloads in order."""

    def __init__(self, overloads: Iterable[Overload] = ()) -> None:
        self.functions: dict[str, list[Overload]] = {}
        for overload in overloads:
            self.functions.setdefault(overload.function, []).append(overload)

    def merged(self, *libraries: Library) -> Library:
        """One library with the overloads of all, in order."""
        every = [self, *libraries]
        return Library(
            o for library in every for group in library.functions.values() for o in group
        )


def function(
    name: str, id: str, signature: str, implementation: Implementation | None = None
) -> Overload:
    """A function called as `name(...)`."""
    return Overload(name, id, signature, implementation, is_member=False)


def member(
    name: str, id: str, signature: str, implementation: Implementation | None = None
) -> Overload:
    """A function called as `receiver.name(...)`."""
    return Overload(name, id, signature, implementation, is_member=True)


def _params(types: Iterable[Type]) -> set[str]:
    names: set[str] = set()
    for type_ in types:
        if type_.kind == Kind.PARAM:
            names.add(type_.name)
        names |= _params(type_.params)
    return names


def _guard(type_: Type) -> Callable[[Any], bool] | None:
    """A test of run-time values against a declared argument type; None when anything passes."""
    if type_.kind in (Kind.DYN, Kind.ANY, Kind.PARAM):
        return None
    if type_.kind == Kind.LIST:
        return _list_guard(type_)
    if type_.kind == Kind.MAP:
        return _map_guard(type_)
    classes = frozenset(c for c, t in TYPE_OF_CLASS.items() if t.name == type_.name)
    return lambda value: value.__class__ in classes


def _list_guard(type_: Type) -> Callable[[Any], bool]:
    inner = _guard(type_.params[0])
    if inner is None:
        return lambda value: isinstance(value, list)
    return lambda value: isinstance(value, list) and (not value or inner(value[0]))


def _map_guard(type_: Type) -> Callable[[Any], bool]:
    key_guard, value_guard = _guard(type_.params[0]), _guard(type_.params[1])

    def accepts(value: Any) -> bool:
        if not isinstance(value, dict):
            return False
        if not value:
            return True
        key, entry = next(iter(value.items()))
        return (key_guard is None or key_guard(key_value(key))) and (
            value_guard is None or value_guard(entry)
        )

    return accepts

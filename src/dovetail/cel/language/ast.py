"""The syntax tree. Nodes carry an id that is unique in the tree and the offset they came from."""

from __future__ import annotations

from typing import Any


class Node:
    """Any expression."""

    __slots__ = ("id", "offset")

    def __init__(self, id: int, offset: int) -> None:
        self.id = id
        self.offset = offset


class Literal(Node):
    """A constant: null, bool, int, uint, double, string or bytes."""

    __slots__ = ("value",)

    def __init__(self, id: int, offset: int, value: Any) -> None:
        super().__init__(id, offset)
        self.value = value


class Ident(Node):
    """A name. A leading dot means: not a local variable."""

    __slots__ = ("name",)

    def __init__(self, id: int, offset: int, name: str) -> None:
        super().__init__(id, offset)
        self.name = name


class Select(Node):
    """`operand.field`, or with `test_only` the presence test of `has(operand.field)`."""

    __slots__ = ("field", "operand", "test_only")

    def __init__(
        self, id: int, offset: int, operand: Node, field: str, *, test_only: bool = False
    ) -> None:
        super().__init__(id, offset)
        self.operand = operand
        self.field = field
        self.test_only = test_only


class Call(Node):
    """A function or operator applied; `target` is the receiver of a member call."""

    __slots__ = ("args", "function", "target")

    def __init__(
        self, id: int, offset: int, function: str, args: list[Node], *, target: Node | None = None
    ) -> None:
        super().__init__(id, offset)
        self.function = function
        self.args = args
        self.target = target


class ListExpr(Node):
    """`[a, ?b]`; `optional` holds the indices of the optional elements."""

    __slots__ = ("elements", "optional")

    def __init__(
        self, id: int, offset: int, elements: list[Node], optional: frozenset[int]
    ) -> None:
        super().__init__(id, offset)
        self.elements = elements
        self.optional = optional


class Entry:
    """One `key: value` of a map literal, or one `field: value` of a message."""

    __slots__ = ("id", "key", "name", "offset", "optional", "value")

    def __init__(
        self,
        id: int,
        offset: int,
        key: Node | None,
        value: Node,
        *,
        name: str = "",
        optional: bool = False,
    ) -> None:
        self.id = id
        self.offset = offset
        self.key = key
        self.name = name
        self.value = value
        self.optional = optional


class MapExpr(Node):
    """`{k: v}`."""

    __slots__ = ("entries",)

    def __init__(self, id: int, offset: int, entries: list[Entry]) -> None:
        super().__init__(id, offset)
        self.entries = entries


class StructExpr(Node):
    """`some.Type{field: value}`."""

    __slots__ = ("entries", "type_name")

    def __init__(self, id: int, offset: int, type_name: str, entries: list[Entry]) -> None:
        super().__init__(id, offset)
        self.type_name = type_name
        self.entries = entries


class Comprehension(Node):
    """A fold over a list or map; what every macro with a variable turns into."""

    __slots__ = (
        "accu_init",
        "accu_var",
        "condition",
        "iter_range",
        "iter_var",
        "iter_var2",
        "macro",
        "result",
        "step",
    )

    def __init__(
        self,
        id: int,
        offset: int,
        *,
        iter_range: Node,
        iter_var: str,
        iter_var2: str,
        accu_var: str,
        accu_init: Node,
        condition: Node,
        step: Node,
        result: Node,
        macro: str,
    ) -> None:
        super().__init__(id, offset)
        self.iter_range = iter_range
        self.iter_var = iter_var
        self.iter_var2 = iter_var2
        self.accu_var = accu_var
        self.accu_init = accu_init
        self.condition = condition
        self.step = step
        self.result = result
        self.macro = macro


def children(node: Node) -> list[Node]:
    """The direct sub-expressions, in evaluation order of the text."""
    match node:
        case Select():
            return [node.operand]
        case Call():
            return [*([node.target] if node.target is not None else []), *node.args]
        case ListExpr():
            return node.elements
        case MapExpr() | StructExpr():
            return [part for e in node.entries for part in (e.key, e.value) if part is not None]
        case Comprehension():
            return [node.iter_range, node.accu_init, node.condition, node.step, node.result]
        case _:
            return []

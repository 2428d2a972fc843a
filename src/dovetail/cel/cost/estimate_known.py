"""What the estimate knows about a tree so far: paths, sizes and contents of nodes, and variables.

Answers from literals, declarations and recorded facts. Never visits a node itself.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dovetail.cel.check import types
from dovetail.cel.check.types import Kind
from dovetail.cel.cost.cost_range import ONE, UNKNOWN, Range, exactly
from dovetail.cel.cost.estimate_call import Operand
from dovetail.cel.cost.estimate_sizes import (
    INDICES,
    ITEMS,
    KEYS,
    NOWHERE,
    VALUES,
    DeviceSizes,
    Path,
)
from dovetail.cel.language import ast

_SCALARS: Final = frozenset(
    (Kind.BOOL, Kind.DOUBLE, Kind.DURATION, Kind.INT, Kind.TIMESTAMP, Kind.UINT)
)


class Entries(NamedTuple):
    """The sizes of the entries of a list or map; the keys of a list are its indices."""

    kind: Kind
    key: Range
    value: Range

    def merged(self, other: Entries) -> Entries:
        """What holds the entries of both."""
        return Entries(self.kind, self.key.union(other.key), self.value.union(other.value))


class Local(NamedTuple):
    """A variable of a loop or a binding: the origin and size of its value."""

    path: Path
    size: Range | None
    entries: Entries | None


class Knowledge:
    """Facts by node id, and the scopes of local variables."""

    def __init__(self, node_types: dict[int, types.Type], declared: DeviceSizes) -> None:
        self.declared = declared
        self._types = node_types
        self._locals: dict[str, list[Local]] = {}
        self._paths: dict[int, Path] = {}
        self._sizes: dict[int, Range] = {}
        self._entries: dict[int, Entries] = {}

    # Recording

    def note_path(self, node: ast.Node, path: Path) -> None:
        """Where the value of a node comes from."""
        self._paths[node.id] = path

    def note_size(self, node: ast.Node, size: Range | None) -> None:
        """Records the size of a node's value; None changes nothing."""
        if size is not None:
            self._sizes[node.id] = size

    def note_entries(self, node: ast.Node, entries: Entries | None) -> None:
        """Records the entries of a node's value; None changes nothing."""
        if entries is not None:
            self._entries[node.id] = entries

    def note_same(self, node: ast.Node, source: ast.Node) -> None:
        """A node is as large as another one."""
        self.note_size(node, self.size(source))
        self.note_entries(node, self.entries(source))

    def push(self, name: str, local: Local) -> None:
        """Opens the scope of a variable."""
        self._locals.setdefault(name, []).append(local)

    def pop(self, name: str) -> None:
        """Closes the innermost scope of a variable."""
        self._locals[name].pop()

    # Lookup

    def type(self, node: ast.Node) -> types.Type:
        """The static type of a node."""
        return self._types.get(node.id, types.DYN)

    def local(self, node: ast.Node) -> Local | None:
        """The innermost local variable that an identifier names."""
        scopes = self._locals.get(node.name) if isinstance(node, ast.Ident) else None
        return scopes[-1] if scopes else None

    def path(self, node: ast.Node) -> Path:
        """Where the value of a node comes from."""
        local = self.local(node)
        return self._paths.get(node.id, NOWHERE) if local is None else local.path

    def size(self, node: ast.Node) -> Range | None:
        """The first known size: recorded, literal, declared for the device, of the type, or of the variable."""
        if node.id in self._sizes:
            return self._sizes[node.id]
        written = _written_size(node)
        if written is not None:
            return exactly(written)
        declared = self.declared.of(self.path(node))
        if declared is not None:
            self.note_size(node, declared)
            return declared
        if _is_scalar(self.type(node)):
            return ONE
        local = self.local(node)
        return None if local is None else local.size

    def size_or_unknown(self, node: ast.Node) -> Range:
        """The size, or anything."""
        return self.size(node) or UNKNOWN

    def entries(self, node: ast.Node) -> Entries | None:
        """The recorded entries of a node's value."""
        if node.id in self._entries:
            return self._entries[node.id]
        local = self.local(node)
        return None if local is None else local.entries

    def operand(self, node: ast.Node) -> Operand:
        """Everything known about a target or argument."""
        return Operand(self.type(node), self.path(node), node, self.size(node))

    # New variables

    def bound(self, init: ast.Node) -> Local:
        """A variable holding the value of a node."""
        return Local(self.path(init), self.size(init), self.entries(init))

    def iterated(self, container: ast.Node, *, is_key: bool) -> Local:
        """A variable that iterates over the keys or values of a node's value."""
        entries = self.entries(container)
        if self.is_list(container):
            step = INDICES if is_key else ITEMS
        else:
            step = KEYS if is_key else VALUES
        size = None if entries is None else entries.key if is_key else entries.value
        return Local(self.path(container).plus(step), size, None)

    def is_list(self, container: ast.Node) -> bool:
        """Whether a node's value is known to be a list."""
        entries = self.entries(container)
        return (self.type(container).kind if entries is None else entries.kind) == Kind.LIST


def _written_size(node: ast.Node) -> int | None:
    match node:
        case ast.Literal():
            return len(node.value) if isinstance(node.value, str | bytes) else 1
        case ast.ListExpr():
            return len(node.elements)
        case ast.MapExpr():
            return len(node.entries)
        case _:
            return None


def _is_scalar(type_: types.Type) -> bool:
    while types.is_optional(type_):
        type_ = type_.params[0]
    return type_.kind in _SCALARS

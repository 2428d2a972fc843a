"""Static analysis: which parts of a device an expression can read. Sound: parts that are not listed are never read.

Constant keys are read exactly. Computed keys, iteration and whole-map uses read the whole map.
"""

from __future__ import annotations

from typing import Final

from dovetail.cel.check.checker import Checked
from dovetail.cel.language import ast
from dovetail.cel.language.macros import UNUSED

OWN_DOMAIN: Final = (
    "\0driver"  # device.attributes[device.driver]: the domain named like the device's driver
)
_ANY: Final = "\0any"  # a key known only at run time
Path = tuple[str, ...]
# A path is ("driver",), ("allowMultipleAllocations",), or ("attributes" | "capacity"[, domain[, id]]);
# the empty path is the whole device.


def reads(checked: Checked) -> frozenset[Path]:
    """Every path the expression may read, without those covered by a shorter one."""
    walker = _Walker()
    walker.visit(checked.root)
    return frozenset(path for path in walker.found if not _is_covered(path, walker.found))


def _is_covered(path: Path, covered: set[Path]) -> bool:
    return any(path[:length] in covered for length in range(len(path)))


class _Walker:
    def __init__(self) -> None:
        self.found: set[Path] = set()
        self.aliases: dict[str, list[Path | None]] = {}

    def visit(self, node: ast.Node) -> None:
        path = self.path(node)
        if path is not None:
            self.add(path)
            return
        if isinstance(node, ast.Call) and node.function == "@in" and self.visit_membership(node):
            return
        if isinstance(node, ast.Comprehension):
            self.visit_fold(node)
            return
        for child in ast.children(node):
            self.visit(child)

    def add(self, path: Path) -> None:
        """Records a read: up to the first unknown key, and no deeper than one value."""
        static_length = path.index(_ANY) if _ANY in path else len(path)
        self.found.add(path[: min(static_length, 3)])

    def path(self, node: ast.Node) -> Path | None:
        """The path of a chain of constant reads from `device` or an alias; None for anything else."""
        match node:
            case ast.Ident():
                alias_path = self.aliases.get(node.name)
                if alias_path:
                    return alias_path[-1]
                return () if node.name.removeprefix(".") == "device" else None
            case ast.Select():
                return self.extended(node.operand, node.field)
            case ast.Call(function="_[_]" | "_[?_]" | "_?._"):
                return self.indexed(node)
        return None

    def indexed(self, node: ast.Call) -> Path | None:
        holder, key = node.args
        if isinstance(key, ast.Literal) and key.value.__class__ is str:
            return self.extended(holder, key.value)
        base = self.path(holder)
        if base is None:
            return None
        if len(base) == 1 and self.path(key) == ("driver",):
            self.found.add(("driver",))
            return (*base, OWN_DOMAIN)
        self.visit(key)
        return (*base, _ANY)

    def extended(self, holder: ast.Node, key: str) -> Path | None:
        base = self.path(holder)
        return None if base is None else (*base, key)

    def visit_membership(self, node: ast.Call) -> bool:
        """`"id" in device.attributes["d"]` reads one key."""
        key, holder = node.args
        if not (isinstance(key, ast.Literal) and key.value.__class__ is str):
            return False
        base = self.path(holder)
        if base is None or not 1 <= len(base) <= 2:
            return False
        self.add((*base, key.value))
        return True

    def visit_fold(self, node: ast.Comprehension) -> None:
        is_bind = node.iter_var == UNUSED
        alias = self.path(node.accu_init) if is_bind else None
        if alias is not None and (len(alias) == 1 or _ANY in alias):
            # A binding to an empty map forgets that unknown domains read as empty: everything matters.
            self.add(alias)
            alias = None
        elif alias is None:
            self.visit(node.accu_init)
        self.visit(node.iter_range)
        names = [node.iter_var, *([node.iter_var2] if node.iter_var2 else [])]
        self.aliases.setdefault(node.accu_var, []).append(alias)
        for name in names:
            self.aliases.setdefault(name, []).append(None)
        if not is_bind:
            self.visit(node.condition)
            self.visit(node.step)
        for name in names:
            self.aliases[name].pop()
        self.visit(node.result)
        self.aliases[node.accu_var].pop()

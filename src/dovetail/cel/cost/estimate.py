"""Estimates, before anything is evaluated, the least and the most a checked expression can cost.

Visits the tree once and tracks known sizes: of literals, of the device's declared parts, of the results of
calls and loops. An API server accepts or refuses by the upper bound. Never evaluates.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Final

from dovetail.cel.check.checker import Checked
from dovetail.cel.check.types import Kind
from dovetail.cel.cost import estimate_library, estimate_lists, estimate_sizes, estimate_standard
from dovetail.cel.cost.cost_range import (
    IDENT_COST,
    LIST_COST,
    MAP_COST,
    NOTHING,
    ONE,
    STRUCT_COST,
    ZERO,
    Range,
    exactly,
)
from dovetail.cel.cost.estimate_call import Estimate, Operand, Site
from dovetail.cel.cost.estimate_known import Entries, Knowledge
from dovetail.cel.cost.estimate_sizes import ITEMS, VALUES, Path
from dovetail.cel.language import ast

CostRange = Range

# A visit yields the children whose cost it needs and returns the cost of its node: deep trees use no stack.
Visit = Generator[ast.Node, Range, Range]

_SELECT_PAYS: Final = frozenset((Kind.MAP, Kind.STRUCT, Kind.PARAM))
_INDEX_STEPS: Final[Mapping[str, str]] = {"index_list": ITEMS, "index_map": VALUES}
_MERGED_OPERANDS: Final[Mapping[str, tuple[int, int]]] = {
    "conditional": (1, 2),
    "add_string": (0, 1),
    "add_bytes": (0, 1),
    "add_list": (0, 1),
}


def estimate(checked: Checked, *, attribute_max: int) -> CostRange:
    """The cost range for attribute values of at most `attribute_max` characters or elements."""
    walk = _Walk(checked, attribute_max)
    visits = [walk.visit(checked.root)]
    cost = ZERO
    arrived = True
    while visits:
        try:
            child = next(visits[-1]) if arrived else visits[-1].send(cost)
        except StopIteration as finished:
            cost, arrived = finished.value, False
            visits.pop()
        else:
            visits.append(walk.visit(child))
            arrived = True
    return cost


class _Walk:
    def __init__(self, checked: Checked, attribute_max: int) -> None:
        self.references = checked.references
        self.known = Knowledge(checked.types, estimate_sizes.device_sizes(attribute_max))

    def visit(self, node: ast.Node) -> Visit:
        """The visit of one node."""
        match node:
            case ast.Ident():
                return self.ident(node)
            case ast.Select():
                return self.select(node)
            case ast.Call():
                return self.dyn(node) if node.function == "dyn" else self.call(node)
            case ast.ListExpr():
                return self.list_literal(node)
            case ast.MapExpr():
                return self.map_literal(node)
            case ast.StructExpr():
                return self.message(node)
            case ast.Comprehension():
                return self.binding(node) if _is_binding(node) else self.loop(node)
            case _:
                return self.literal()

    # Names and literals

    def literal(self) -> Visit:
        yield from ()
        return ZERO

    def ident(self, node: ast.Ident) -> Visit:
        yield from ()
        local = self.known.local(node)
        self.known.note_path(node, Path.of(node.name) if local is None else local.path)
        return exactly(IDENT_COST)

    def select(self, node: ast.Select) -> Visit:
        cost = yield node.operand
        if node.test_only:
            return cost  # has() itself is free
        self.known.note_path(node, self.known.path(node.operand).plus(node.field))
        pays = self.known.type(node.operand).kind in _SELECT_PAYS
        return cost.plus(exactly(IDENT_COST)) if pays else cost

    def list_literal(self, node: ast.ListExpr) -> Visit:
        total = exactly(LIST_COST)
        items = NOTHING if node.elements else ZERO
        for element in node.elements:
            total = total.plus((yield element))
            items = items.union(self.known.size_or_unknown(element))
        self.known.note_entries(node, Entries(Kind.LIST, ONE, items))
        return total

    def map_literal(self, node: ast.MapExpr) -> Visit:
        total = exactly(MAP_COST)
        keys = values = NOTHING if node.entries else ZERO
        for entry in node.entries:
            assert entry.key is not None
            total = total.plus((yield entry.key))
            total = total.plus((yield entry.value))
            keys = keys.union(self.known.size_or_unknown(entry.key))
            values = values.union(self.known.size_or_unknown(entry.value))
        self.known.note_entries(node, Entries(Kind.MAP, keys, values))
        return total

    def message(self, node: ast.StructExpr) -> Visit:
        total = exactly(STRUCT_COST)
        for entry in node.entries:
            total = total.plus((yield entry.value))
        return total

    # Calls

    def dyn(self, node: ast.Call) -> Visit:
        cost = yield node.args[0]
        self.known.note_same(node, node.args[0])
        return ONE.plus(cost)

    def call(self, node: ast.Call) -> Visit:
        costs: list[Range] = []
        args: list[Operand] = []
        for arg in node.args:
            costs.append((yield arg))
            args.append(self.known.operand(arg))
        reference = self.references.get(node.id)
        if reference is None or not reference.overloads:
            return ZERO
        target_cost, target = ZERO, None
        if (
            node.target is not None
        ):  # after the arguments: a visit records facts, so the order matters
            target_cost = yield node.target
            target = self.known.operand(node.target)
        sites = [
            Site(node.function, id, target, args, self.known.declared) for id in reference.overloads
        ]
        return target_cost.plus(self.overloads(node, sites, costs))

    def overloads(self, node: ast.Call, sites: list[Site], costs: list[Range]) -> Range:
        """The range that covers every overload a call may resolve to."""
        cost, size = NOTHING, None
        for site in sites:
            estimated = self.overload(node, site, costs)
            cost = cost.union(estimated.cost)
            if estimated.result is not None:
                size = estimated.result if size is None else size.union(estimated.result)
            if site.overload in _INDEX_STEPS:
                size = self.indexed(node, _INDEX_STEPS[site.overload])
            if size is None:
                size = self.known.size(node)
        self.known.note_size(node, size)
        return cost

    def indexed(self, node: ast.Call, step: str) -> Range | None:
        """Records the origin of an element; returns its size if the container is known."""
        container = node.args[0]
        entries = self.known.entries(container)
        self.known.note_path(node, self.known.path(container).plus(step))
        return None if entries is None else entries.value

    def overload(self, node: ast.Call, site: Site, costs: list[Range]) -> Estimate:
        """One overload's cost with its arguments', and the size of its result."""
        estimated = _from_libraries(site)
        if estimated is None:
            if site.overload in _MERGED_OPERANDS:
                self.merge_entries(node, *_MERGED_OPERANDS[site.overload])
            if site.overload in ("logical_and", "logical_or"):
                return Estimate(
                    Range(costs[0].min, costs[0].plus(costs[1]).max)
                )  # the left side alone may decide
            if site.overload == "conditional":
                size = site.args[1].size_from_text.union(site.args[2].size_from_text)
                return Estimate(costs[0].plus(costs[1].union(costs[2])), size)
            standard = estimate_standard.ESTIMATORS.get(site.overload)
            estimated = standard(site) if standard is not None else None
        cost, result = estimated or Estimate(ONE)
        for arg_cost in costs:
            cost = cost.plus(arg_cost)
        return Estimate(cost, result)

    def merge_entries(self, node: ast.Call, left: int, right: int) -> None:
        """The result of a concatenation or a choice holds what either side holds."""
        first, second = self.known.entries(node.args[left]), self.known.entries(node.args[right])
        if first is not None and second is not None:
            self.known.note_entries(node, first.merged(second))

    # Loops and bindings

    def loop(self, node: ast.Comprehension) -> Visit:
        learned = self.known
        total = (yield node.iter_range).plus((yield node.accu_init))
        learned.push(node.accu_var, learned.bound(node.accu_init))
        if node.iter_var2:
            learned.push(node.iter_var, learned.iterated(node.iter_range, is_key=True))
            learned.push(node.iter_var2, learned.iterated(node.iter_range, is_key=False))
        else:
            is_key = not learned.is_list(node.iter_range)
            learned.push(node.iter_var, learned.iterated(node.iter_range, is_key=is_key))
        turn = (yield node.condition).plus((yield node.step))
        learned.pop(node.iter_var)
        if node.iter_var2:
            learned.pop(node.iter_var2)
        total = total.plus((yield node.result))
        learned.pop(node.accu_var)
        count = learned.size_or_unknown(node.iter_range)
        self.note_product(node, count)
        return total.plus(count.times(turn))

    def note_product(self, node: ast.Comprehension, count: Range) -> None:
        """Records a loop's result: a scalar stays a scalar; a list or map gains one entry per iteration."""
        if isinstance(node.accu_init, ast.Literal):
            self.known.note_size(node, self.known.size(node.accu_init))
        elif isinstance(node.accu_init, ast.ListExpr | ast.MapExpr):
            self.known.note_size(node, count)
            self.known.note_entries(node, self.known.entries(node.step))

    def binding(self, node: ast.Comprehension) -> Visit:
        total = (yield node.iter_range).plus((yield node.accu_init))
        self.known.push(node.accu_var, self.known.bound(node.accu_init))
        total = total.plus((yield node.result))
        self.known.pop(node.accu_var)
        self.known.note_same(node, node.result)
        return total


def _from_libraries(site: Site) -> Estimate | None:
    extension = estimate_lists.ESTIMATORS.get(site.overload)
    estimated = extension(site) if extension is not None else None
    library = estimate_library.ESTIMATORS.get(site.function)
    return library(site) if estimated is None and library is not None else estimated


def _is_binding(node: ast.Comprehension) -> bool:
    """Whether a loop is an expanded `cel.bind`: it iterates over an empty list and never continues."""
    return (
        isinstance(node.iter_range, ast.ListExpr)
        and not node.iter_range.elements
        and isinstance(node.condition, ast.Literal)
        and node.condition.value is False
        and node.accu_var != "__result__"
    )

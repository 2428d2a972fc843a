"""What is known about one call before evaluation: its operands, their types and sizes. Data only."""

from __future__ import annotations

from typing import NamedTuple

from dovetail.cel.check import types
from dovetail.cel.cost.cost_range import UNKNOWN, Range
from dovetail.cel.cost.estimate_sizes import DeviceSizes, Path
from dovetail.cel.language import ast


class Operand(NamedTuple):
    """A target or an argument; `size` is known from the expression itself."""

    type: types.Type
    path: Path
    node: ast.Node | None
    size: Range | None

    @property
    def size_from_text(self) -> Range:
        """The size known from the expression, or any size."""
        return self.size or UNKNOWN

    def literal_int(self) -> int | None:
        """The value of an integer literal."""
        if isinstance(self.node, ast.Literal) and self.node.value.__class__ is int:
            return int(self.node.value)
        return None


class Estimate(NamedTuple):
    """The cost of a call without its operands, and the size of the result if known."""

    cost: Range
    result: Range | None = None


class Site(NamedTuple):
    """One call, taken as one of its overloads."""

    function: str
    overload: str
    target: Operand | None
    args: list[Operand]
    sizes: DeviceSizes

    def size(self, operand: Operand) -> Range:
        """The size of an operand: from the text, else from the device's declaration, else any size."""
        return operand.size or self.sizes.of(operand.path) or UNKNOWN

    def receiver_size(self) -> Range | None:
        """The size of the target; None for a call without one."""
        return None if self.target is None else self.size(self.target)

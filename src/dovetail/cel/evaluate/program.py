"""A compiled selector: evaluates devices, with or without counting cost."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from dovetail.cel.check.checker import Checked
from dovetail.cel.effort import Effort
from dovetail.cel.environment import Environment, stored
from dovetail.cel.evaluate import values
from dovetail.cel.evaluate.frame import COST_LIMIT, CostExceeded, DeviceView, Frame, Tracker
from dovetail.cel.evaluate.values import CelError, Panic, Value
from dovetail.cel.language import ast
from dovetail.cel.language.macros import UNUSED

# An expression whose estimate stays this far below the limit is evaluated without counting, unless it uses
# something that upstream's estimate is known to take too lightly.
_UNCOUNTED: Final = COST_LIMIT // 10
_LOGICAL: Final = frozenset(("_&&_", "_||_", "_?_:_", "!_"))
_UNDERRATED: Final = frozenset(
    ("flatten", "indexOf", "lastIndexOf", "includes", "distinct", "sort")
)


class Outcome(StrEnum):
    """What a selector says of a device."""

    MATCH = "match"
    NO_MATCH = "no-match"
    ERROR = "error"


class Result:
    """An outcome with its cost and, for errors, the reason."""

    __slots__ = ("cost", "outcome", "reason")

    def __init__(self, outcome: Outcome, cost: int | None, reason: str = "") -> None:
        self.outcome = outcome
        self.cost = cost
        self.reason = reason


class Program:
    """One expression, compiled. Immutable after construction; safe to share."""

    __slots__ = (
        "_plan",
        "_tracked",
        "checked",
        "estimated_cost",
        "expression",
        "is_bounded",
        "size",
    )

    def __init__(
        self, expression: str, environment: Environment, *, is_derived: bool = False
    ) -> None:
        self.expression = expression
        self.checked: Checked = environment.check(expression)
        if is_derived:
            environment.check_derived(expression, self.checked)
        else:
            environment.check_result(expression, self.checked)
        self.size = _size(self.checked.root)  # in nodes of the tree
        self._plan = environment.plan(self.checked, tracked=False)
        self._tracked = environment.plan(self.checked, tracked=True)
        self.estimated_cost = environment.estimated_cost(self.checked)
        self.is_bounded = self.estimated_cost <= _UNCOUNTED and not _has_underrated(
            self.checked.root
        )

    def outcome(self, device: DeviceView) -> Outcome:
        """The verdict alone; the quickest way."""
        if device.problem is not None:
            return Outcome.ERROR
        if not self.is_bounded:
            return self.evaluate(device).outcome
        try:
            value = self._plan.run(Frame(device, self._plan.slot_count))
        except (CelError, Panic):
            return Outcome.ERROR
        if value is True:
            return Outcome.MATCH
        return Outcome.NO_MATCH if value is False else _judged(value)

    def within(self, device: DeviceView, effort: Effort) -> Outcome:
        """The verdict, charged for. Raises Unfinished or TooExpensive where it takes more than there is."""
        units_left = effort.left
        if units_left is None or self.is_bounded:
            effort.charge(
                max(self.size, self.estimated_cost // 10)
            )  # no step is repeated, and functions are quick
            return self.outcome(device)
        tracker = Tracker(min(units_left, COST_LIMIT), most_steps=units_left)
        value, reason = self._run(device, tracker)
        units = max(tracker.cost, tracker.steps)
        if units > units_left and tracker.cost <= COST_LIMIT:
            effort.exceeded(self.expression, units, needed=units_left)
        effort.charge(units)
        return Outcome.ERROR if reason else _judged(value)

    def evaluate(self, device: DeviceView, *, limit: int = COST_LIMIT) -> Result:
        """The verdict with its cost, counted as upstream counts."""
        value, cost, reason = self.value(device, limit=limit)
        if reason:
            return Result(Outcome.ERROR, cost, reason)
        outcome = _judged(value)
        if outcome is Outcome.ERROR:
            reason = f"the result is a {values.type_of(value)}, not a bool"
        return Result(outcome, cost, reason)

    def value(
        self, device: DeviceView, *, limit: int = COST_LIMIT
    ) -> tuple[Value, int | None, str]:
        """The value, its cost, and why there is no value where the reason is not empty."""
        if device.problem is not None:
            return None, None, device.problem
        tracker = Tracker(limit)
        value, reason = self._run(device, tracker)
        return value, tracker.cost, reason

    def _run(self, device: DeviceView, tracker: Tracker) -> tuple[Value, str]:
        try:
            value = self._tracked.run(Frame(device, self._tracked.slot_count, tracker))
        except (CelError, Panic) as error:
            return None, str(error) or "error"
        except CostExceeded:
            return None, f"cost limit of {tracker.limit} exceeded"
        return value, ""


def compile_stored(expression: str) -> Program:
    """Compiles for evaluation. Raises ExpressionError when the expression is wrong."""
    return Program(expression, stored())


def _size(root: ast.Node) -> int:
    count = 0
    pending = [root]
    while pending:
        count += 1
        pending.extend(ast.children(pending.pop()))
    return count


def _has_underrated(root: ast.Node) -> bool:
    """Whether loops (other than bindings) or list functions make the estimate unsafe to rely on.

    So does a part that may panic inside an argument of a call: upstream evaluates it even when another argument failed.
    """
    pending = [(root, False)]
    while pending:
        node, is_argument = pending.pop()
        if isinstance(node, ast.Comprehension) and node.iter_var != UNUSED:
            return True
        if isinstance(node, ast.Call) and node.function in _UNDERRATED:
            return True
        if is_argument and (isinstance(node, ast.MapExpr) or _is_membership(node)):
            return True
        below = is_argument or (isinstance(node, ast.Call) and node.function not in _LOGICAL)
        pending.extend((child, below) for child in ast.children(node))
    return False


def _is_membership(node: ast.Node) -> bool:
    return isinstance(node, ast.Call) and node.function == "@in"


def _judged(value: Value) -> Outcome:
    while value.__class__ is values.Optional and value.has_value:
        value = value.value
    if value is True:
        return Outcome.MATCH
    return Outcome.NO_MATCH if value is False else Outcome.ERROR

"""The two environments of device selectors, and compiling in them.

`stored()` is what evaluation uses: every feature. `new()` is what validation of new objects uses: one version behind.
"""

from __future__ import annotations

from typing import Final

from dovetail import cache
from dovetail.cel import library
from dovetail.cel.check import checker, static_checks, types
from dovetail.cel.check.checker import Checked
from dovetail.cel.check.declarations import Library
from dovetail.cel.check.messages import Messages
from dovetail.cel.check.types import Type
from dovetail.cel.cost import estimate
from dovetail.cel.evaluate import compiler, operators
from dovetail.cel.language import parser, source
from dovetail.cel.language.source import Issue
from dovetail.errors import ExpressionError

MAX_LENGTH: Final = 10 * 1024  # resource.k8s.io/v1 CELSelectorExpressionMaxLength, bytes of UTF-8
ATTRIBUTE_MAX: Final = 64  # longest attribute value an estimate assumes


class Environment:
    """Declarations that expressions are checked against. `leaf` is the type of an attribute's value."""

    def __init__(
        self,
        functions: Library,
        leaf: Type,
        *,
        takes_lists: bool = True,
        has_multiple_allocations: bool = True,
    ) -> None:
        self.library = functions
        self.leaf = leaf
        self._takes_lists = takes_lists
        fields = {
            "driver": types.STRING,
            "attributes": types.map_of(types.STRING, types.map_of(types.STRING, leaf)),
            "capacity": types.map_of(types.STRING, types.map_of(types.STRING, types.QUANTITY)),
        }
        if has_multiple_allocations:
            fields["allowMultipleAllocations"] = types.BOOL
        self._messages = Messages(fields)

    def check(self, expression: str) -> Checked:
        """The typed tree. Raises ExpressionError with every issue and its place."""
        if len(expression.encode("utf-8", "surrogatepass")) > MAX_LENGTH:
            raise ExpressionError(f"expression is longer than {MAX_LENGTH} bytes")
        parsed = parser.parse(expression)
        if parsed.root is None:
            raise ExpressionError(source.describe(expression, parsed.issues))
        checked, issues = checker.check(
            parsed.root,
            variables={"device": types.DEVICE},
            library=self.library,
            messages=self._messages,
        )
        checked.spans = parsed.spans
        issues = issues or static_checks.issues(checked)
        if issues:
            raise ExpressionError(source.describe(expression, issues))
        return checked

    def check_result(self, expression: str, checked: Checked) -> None:
        """Refuses an expression whose value cannot be a bool."""
        result_type = checked.type_of(checked.root)
        if result_type.kind != types.Kind.BOOL and result_type != self.leaf:
            issue = Issue(0, f"must evaluate to bool or an attribute's value, not {result_type}")
            raise ExpressionError(source.describe(expression, [issue]))

    def check_derived(self, expression: str, checked: Checked) -> None:
        """Refuses an expression whose value cannot be an attribute (alpha: derived attributes)."""
        result_type = checked.type_of(checked.root)
        inner = (
            result_type.params[0]
            if self._takes_lists and result_type.kind == types.Kind.LIST
            else result_type
        )
        if inner not in _SCALARS:
            also = " or a list of these" if self._takes_lists else ""
            issue = Issue(
                0,
                f"must evaluate to a string, integer, boolean or version{also}, not {result_type}",
            )
            raise ExpressionError(source.describe(expression, [issue]))

    def plan(self, checked: Checked, *, tracked: bool) -> compiler.Plan:
        """The closures of a checked tree. Raises ExpressionError if the program can never run."""
        try:
            return compiler.plan(checked, self.library, tracked=tracked)
        except compiler.PlanError as error:
            raise ExpressionError(str(error)) from None

    def estimated_cost(self, checked: Checked) -> int:
        """The most an evaluation may cost, as validation estimates it."""
        return estimate.estimate(checked, attribute_max=ATTRIBUTE_MAX).max


_SCALARS: Final = frozenset(
    (types.BOOL, types.INT, types.STRING, types.ANY, types.DYN, types.SEMVER)
)


@cache.remembered()
def stored() -> Environment:
    """For expressions already stored: what allocation evaluates with. Every feature, whatever the gates say."""
    return Environment(operators.LIBRARY.merged(library.STORED), types.DYN)


@cache.remembered()
def new(*, list_attributes: bool = False, consumable_capacity: bool = True) -> Environment:
    """For expressions in new objects: what validation accepts. Gates as 1.37 has them by default."""
    functions = library.STORED if list_attributes else library.NEW
    return Environment(
        operators.LIBRARY.merged(functions),
        types.DYN if list_attributes else types.ANY,
        takes_lists=list_attributes,
        has_multiple_allocations=consumable_capacity,
    )

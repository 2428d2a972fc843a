"""Limits the work of selectors: counts units of compiling and evaluating, and raises when they are used up.

A unit is one unit of CEL cost, or one step of the evaluator where those are more: constants and `||` cost nothing in
CEL, but they take time. About a microsecond each. Units, never seconds: the same input gets the same answer anywhere.
The caller sets the limit. Never evaluates anything itself.
"""

from __future__ import annotations

from typing import Final, NoReturn

COMPILE_UNITS_PER_CHARACTER: Final = (
    25  # measured: 5 to 33 microseconds, parsing, checking, planning twice, estimating
)
EVALUATION_UNITS: Final = 10  # for building the view of a device, whatever the expression costs


class Unfinished(Exception):
    """The units of this decision are used up. Results so far are cached: the next attempt continues from there."""


class TooExpensive(Exception):
    """More units are needed than any decision will ever have; the message says so."""


class Effort:
    """The units that one decision may spend on selectors."""

    __slots__ = ("_limit", "_most", "evaluations", "is_cut", "spent")

    def __init__(self, limit: int | None = None, *, most: int | None = None) -> None:
        self._limit = limit  # None: whatever it takes
        self._most = most  # the largest limit that a later decision may have
        self.spent = 0
        self.evaluations = 0
        self.is_cut = False  # some work was left undone

    @property
    def left(self) -> int | None:
        """The units left; None: no limit."""
        return None if self._limit is None else max(self._limit - self.spent, 0)

    @property
    def was_granted(self) -> bool:
        """Whether there was anything to spend."""
        return self._limit is None or self._limit > 0

    @property
    def is_spent(self) -> bool:
        """Whether all units are used up."""
        return self.is_cut or (self._limit is not None and self.spent >= self._limit)

    def charge(self, units: int) -> None:
        """Counts work that was done."""
        self.spent += units

    def demand(self, units: int = 1) -> None:
        """Checks that so many units are left. Raises Unfinished if not, unless no limit would ever suffice."""
        units_left = self.left
        if units_left is not None and (self.is_cut or (units_left < units and not self._is_whole)):
            self.cut()

    def cut(self) -> NoReturn:
        """Records that work did not fit into the units left. Raises Unfinished."""
        self.is_cut = True
        raise Unfinished

    def exceeded(self, expression: str, units: int, *, needed: int) -> NoReturn:
        """Records that an evaluation needs more than so many units.

        Raises Unfinished, or TooExpensive if no later decision will have that many.
        """
        self.charge(units)
        if self._most is None or needed < self._most:
            self.cut()
        raise TooExpensive(
            f"one evaluation of `{_shown(expression)}` takes more than {self._most} units"
        )

    @property
    def _is_whole(self) -> bool:
        """Whether the limit is the largest possible and nothing is spent yet."""
        return self._limit is not None and self._limit == self._most and not self.spent


UNBOUNDED: Final = Effort()


def _shown(expression: str) -> str:
    return expression if len(expression) <= 80 else f"{expression[:77]}..."

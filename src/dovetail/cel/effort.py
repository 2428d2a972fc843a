"""How much work selectors may cause: counts units of compiling and evaluating, and says when they are used up.

A unit is one of CEL's cost, or one step of the evaluator where steps are more: constants and `||` cost nothing in CEL,
but they take time. About a microsecond each. Units, never seconds: the same question gets the same answer anywhere.
The caller sets the limit. Never evaluates anything itself.
"""

from __future__ import annotations

from typing import Final, NoReturn

COMPILE_UNITS_PER_CHARACTER: Final = (
    25  # measured: 5 to 33 microseconds, parsing, checking, planning twice, estimating
)
EVALUATION_UNITS: Final = (
    10  # for making the device ready to be read, whatever the expression costs then
)


class Unfinished(Exception):
    """The units for now are used up. What was worked out is remembered: asked again, it goes on from there."""


class TooExpensive(Exception):
    """More units are needed than there will ever be at once; says so in words."""


class Effort:
    """What one question may spend on selectors."""

    __slots__ = ("_limit", "_most", "evaluations", "is_cut", "spent")

    def __init__(self, limit: int | None = None, *, most: int | None = None) -> None:
        self._limit = limit  # None: whatever it takes
        self._most = most  # the largest limit that a later question may be given
        self.spent = 0
        self.evaluations = 0
        self.is_cut = False  # something had to be left undone

    @property
    def left(self) -> int | None:
        """The units left; None: any number."""
        return None if self._limit is None else max(self._limit - self.spent, 0)

    @property
    def was_granted(self) -> bool:
        """Whether there was anything to spend."""
        return self._limit is None or self._limit > 0

    @property
    def is_spent(self) -> bool:
        """Whether nothing more can be worked out now."""
        return self.is_cut or (self._limit is not None and self.spent >= self._limit)

    def charge(self, units: int) -> None:
        """Work was done."""
        self.spent += units

    def demand(self, units: int = 1) -> None:
        """Work of so many units is about to begin. Raises Unfinished where it does not fit, unless it never would."""
        units_left = self.left
        if units_left is not None and (self.is_cut or (units_left < units and not self._is_whole)):
            self.cut()

    def cut(self) -> NoReturn:
        """Something does not fit into what is left. Raises Unfinished."""
        self.is_cut = True
        raise Unfinished

    def exceeded(self, expression: str, units: int, *, needed: int) -> NoReturn:
        """These units did not suffice for an evaluation, which needs more than so many.

        Raises Unfinished, or TooExpensive if no later question is ever given so many at once.
        """
        self.charge(units)
        if self._most is None or needed < self._most:
            self.cut()
        raise TooExpensive(
            f"one evaluation of `{_shown(expression)}` takes more than {self._most} units"
        )

    @property
    def _is_whole(self) -> bool:
        """Whether nothing is spent yet of the largest limit there is."""
        return self._limit is not None and self._limit == self._most and not self.spent


UNBOUNDED: Final = Effort()


def _shown(expression: str) -> str:
    return expression if len(expression) <= 80 else f"{expression[:77]}..."

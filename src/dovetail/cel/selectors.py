"""Device selectors as the rest of Dovetail uses them: compiled once, verdicts remembered by what was read."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from functools import lru_cache
from typing import Final

from dovetail.cel import environment, projection
from dovetail.cel.frame import COST_LIMIT, DeviceView
from dovetail.cel.program import Outcome, Program, Result
from dovetail.cel.reads import Path, reads
from dovetail.errors import ExpressionError
from dovetail.model.validation.fields import ExpressionFault

_MEMO_SIZE: Final = 65_536


class Selector:
    """One selector expression. `match` costs a lookup for a device like one seen before."""

    __slots__ = ("_memo", "expression", "program", "project", "reads")

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self.program = Program(expression, environment.stored())
        self.reads: frozenset[Path] = reads(self.program.checked)
        self.project = projection.projector(self.reads)
        self._memo: dict[Hashable, Outcome] = {}

    def match(self, device: DeviceView) -> Outcome:
        """Whether the device matches; an error is an outcome of its own."""
        if device.problem is not None:
            return Outcome.ERROR
        key = self.project(device)
        found = self._memo.get(key)
        if found is None:
            if len(self._memo) >= _MEMO_SIZE:
                self._memo.clear()
            found = self._memo[key] = self.program.outcome(device)
        return found

    def match_all(self, devices: Iterable[DeviceView]) -> list[Outcome]:
        """The verdicts for many devices, in order."""
        project, known, match = self.project, self._memo.get, self.match
        return [
            known(project(device)) or match(device) if device.problem is None else Outcome.ERROR for device in devices
        ]

    def match_afresh(self, device: DeviceView) -> Outcome:
        """The same verdict without the memo."""
        return self.program.outcome(device)

    def evaluate(self, device: DeviceView) -> Result:
        """The verdict with its cost and, for an error, the reason."""
        return self.program.evaluate(device)


@lru_cache(maxsize=4096)
def selector(expression: str) -> Selector:
    """The compiled selector. Raises ExpressionError when the expression is wrong."""
    return Selector(expression)


@lru_cache(maxsize=4096)
def problem(expression: str, *, is_stored: bool = False) -> ExpressionFault | None:
    """Why an API server would refuse the expression, or None. Stored expressions enjoy every feature."""
    env = environment.stored() if is_stored else environment.new()
    try:
        checked = env.check(expression)
        env.check_result(expression, checked)
        env.plan(checked, tracked=False)
    except ExpressionError as error:
        return ExpressionFault(str(error))
    cost = env.estimated_cost(checked)
    if cost <= COST_LIMIT:
        return None
    return ExpressionFault(f"too complex: may cost {cost}, at most {COST_LIMIT} is allowed", is_too_costly=True)

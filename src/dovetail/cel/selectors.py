"""Device selectors as the rest of Dovetail uses them: compiled once, verdicts cached by what was read.

The cache is bounded in nodes of compiled expressions and in verdicts; the most recently used stay.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

from dovetail import cache
from dovetail.cel import effort as efforts
from dovetail.cel import environment, projection
from dovetail.cel.effort import UNBOUNDED, Effort
from dovetail.cel.evaluate.frame import COST_LIMIT, DeviceView
from dovetail.cel.evaluate.program import Outcome, Program, Result
from dovetail.cel.reads import Path, reads
from dovetail.errors import ExpressionError
from dovetail.kubetypes.field_errors import ExpressionFault

MOST_TEXTS: Final = 4_096
MOST_NODES: Final = 40_000  # in the trees of all texts; a node takes 1.2 to 2 KB, plans included
MOST_VERDICTS: Final = 65_536  # of all texts; one takes about 200 bytes
MOST_BROKEN_CHARACTERS: Final = 1_000_000  # of invalid texts and their errors
_WIDE: Final = (
    32  # as many as the attributes of a device: what a verdict weighs where whole maps are read
)


class Selector:
    """One selector expression. `match` costs a lookup for a device like an earlier one."""

    __slots__ = ("_beyond", "_memo", "expression", "program", "project", "reads", "weight")

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self.program = Program(expression, environment.stored())
        self.reads: frozenset[Path] = reads(self.program.checked)
        self.project = projection.projector(self.reads)
        self.weight = max(1, sum(map(_weight, self.reads)))
        self._memo: dict[Hashable, Outcome] = {}
        self._beyond: dict[Hashable, int] = {}  # units that did not suffice

    def __len__(self) -> int:
        """How many verdicts are cached; wide ones count as several."""
        return (len(self._memo) + len(self._beyond)) * self.weight

    def match(self, device: DeviceView, effort: Effort = UNBOUNDED) -> Outcome:
        """Whether the device matches; an error is a separate outcome. Raises Unfinished or TooExpensive."""
        if device.problem is not None:
            return Outcome.ERROR
        key = self.project(device)
        verdict = self._memo.get(key)
        if verdict is None:
            verdict = self._evaluated(key, device, effort)
        return verdict

    def match_all(self, devices: Iterable[DeviceView]) -> list[Outcome]:
        """The verdicts for many devices, in order."""
        project, remembered, match = self.project, self._memo.get, self.match
        return [
            remembered(project(device)) or match(device)
            if device.problem is None
            else Outcome.ERROR
            for device in devices
        ]

    def match_afresh(self, device: DeviceView) -> Outcome:
        """The same verdict without the memo."""
        return self.program.outcome(device)

    def evaluate(self, device: DeviceView) -> Result:
        """The verdict with its cost and, for an error, the reason."""
        return self.program.evaluate(device)

    def forget(self) -> None:
        """Forgets every verdict."""
        self._memo.clear()
        self._beyond.clear()

    def _evaluated(self, key: Hashable, device: DeviceView, effort: Effort) -> Outcome:
        units_left = effort.left
        beyond = self._beyond.get(key, -1)
        if units_left is not None and units_left <= beyond:
            effort.exceeded(self.expression, 0, needed=beyond)
        effort.demand()
        effort.evaluations += 1
        _TABLE.grows(self)
        try:
            verdict = self._memo[key] = self.program.within(device, effort)
        except (efforts.Unfinished, efforts.TooExpensive):
            if units_left is not None:
                self._beyond[key] = units_left
            raise
        self._beyond.pop(key, None)
        return verdict


def _weight(path: Path) -> int:
    is_one_value = len(path) == 3 or path in (("driver",), ("allowMultipleAllocations",))
    return 1 if is_one_value else _WIDE


class _Table:
    """The compiled selectors, most recently used last."""

    def __init__(self) -> None:
        self._selectors = cache.Memo[str, Selector](MOST_NODES, most_entries=MOST_TEXTS)
        self._broken = cache.Memo[str, ExpressionError](MOST_BROKEN_CHARACTERS)
        self._verdicts = 0  # at most so many: evaluations begun since they were last counted

    def __len__(self) -> int:
        return len(self._selectors)

    def get(self, expression: str, effort: Effort) -> Selector:
        """The selector, compiled if necessary."""
        selector_ = self._selectors.get(expression)
        if selector_ is not None:
            return selector_
        broken = self._broken.get(expression)
        if broken is not None:
            raise broken.with_traceback(None)
        units = efforts.COMPILE_UNITS_PER_CHARACTER * len(expression)
        effort.demand(units)
        effort.charge(units)
        try:
            compiled = Selector(expression)
        except ExpressionError as error:
            # Messages quote the text, so both count.
            self._broken.put(expression, error, weight=len(expression) + len(str(error)))
            raise
        self._selectors.put(expression, compiled, weight=compiled.program.size)
        return compiled

    def grows(self, selector: Selector) -> None:
        """Makes room for one more verdict: if there are too many, drops those of the least recently used texts."""
        self._verdicts += selector.weight
        if self._verdicts <= MOST_VERDICTS:
            return
        if len(selector) >= MOST_VERDICTS // 2:
            selector.forget()
        self._verdicts = self.verdicts()
        for _, selector_ in self._selectors.items():
            if self._verdicts <= MOST_VERDICTS // 2:
                break
            if selector_ is not selector:
                self._verdicts -= len(selector_)
                selector_.forget()

    def verdicts(self) -> int:
        """How many verdicts are cached; wide ones count as several."""
        return sum(len(one) for _, one in self._selectors.items())

    def nodes(self) -> int:
        """How many nodes the trees have together."""
        return self._selectors.weight

    def broken_characters(self) -> int:
        """How many characters invalid texts and their messages have together."""
        return self._broken.weight

    def clear(self) -> None:
        """Forgets everything."""
        self._selectors.clear()
        self._broken.clear()
        self._verdicts = 0


_TABLE: Final = _Table()


def selector(expression: str, effort: Effort = UNBOUNDED) -> Selector:
    """The compiled selector. Raises ExpressionError if the expression is invalid, Unfinished if no units are left."""
    return _TABLE.get(expression, effort)


def remembered() -> tuple[int, int, int]:
    """How many texts, tree nodes and verdicts are cached."""
    return len(_TABLE), _TABLE.nodes(), _TABLE.verdicts()


def remembered_errors() -> int:
    """How many characters of invalid texts and their errors are cached."""
    return _TABLE.broken_characters()


def forget() -> None:
    """Forgets every compiled selector and every verdict."""
    _TABLE.clear()


@cache.remembered(4096)
def problem(expression: str, *, is_stored: bool = False) -> ExpressionFault | None:
    """Why an API server would refuse the expression, or None. Stored expressions may use every feature."""
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
    return ExpressionFault(
        f"too complex: may cost {cost}, at most {COST_LIMIT} is allowed", is_too_costly=True
    )

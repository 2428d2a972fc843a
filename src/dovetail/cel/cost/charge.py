"""Wraps steps so that each charges its cost if tracking is on; returns them unchanged if it is off.

Follows cel-go's observer: which steps are charged, when the value stack is cut back, what a failed step costs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dovetail.cel.cost.call_cost import call_cost
from dovetail.cel.evaluate.attribute_chains import Attribute, Run
from dovetail.cel.evaluate.frame import Frame, Tracker
from dovetail.cel.evaluate.values import CelError, Optional, Value

CONSTRUCTION: Final = {"list": 10, "map": 30, "message": 40}  # cel-go common/cost.go
CHAIN: Final = 1


class Watch:
    """The wrappers; with `tracked` False each returns its closure unchanged."""

    def __init__(self, tracked: bool) -> None:
        self.tracked = tracked

    def constant(self, node_id: int, value: Value) -> Run:
        """A constant: free."""
        if not self.tracked:
            return lambda frame: value

        def run(frame: Frame) -> Value:
            _tracker(frame).push(node_id, value)
            return value

        return run

    def plain(self, node_id: int, run: Run) -> Run:
        """A step that charges nothing itself."""
        return self.dropping(node_id, run, ())

    def dropping(self, node_id: int, run: Run, ids: tuple[int, ...]) -> Run:
        """A step without a charge that drops the values of its parts."""
        if not self.tracked:
            return run

        def settle(tracker: Tracker, _: Value) -> None:
            tracker.drop(*ids)

        return _observed(node_id, run, settle)

    def attribute(self, attribute: Attribute, run: Run, *, is_test: bool, node_id: int) -> Run:
        """A finished chain of reads: costs one, or nothing for a conditional or a presence test."""
        if not self.tracked:
            return _as_test(run) if is_test else run
        last_id = attribute.current_id
        branches = attribute.branches

        def settle(tracker: Tracker, _: Value) -> None:
            if branches is not None:
                yes, no = branches
                tracker.drop(no.current_id, yes.current_id, attribute.condition_id)
            else:
                tracker.drop(last_id)
                tracker.cost += CHAIN
            if is_test:
                tracker.cost -= CHAIN

        return _observed(node_id, _as_test(run) if is_test else run, settle)

    def call(
        self, node_id: int, run: Run, function: str, overload: str, ids: tuple[int, ...]
    ) -> Run:
        """A call: charged by the sizes of its arguments and result, if all arguments were evaluated."""
        if not self.tracked:
            return run

        def settle(tracker: Tracker, result: Value) -> None:
            args = tracker.take(ids)
            if args is not None:
                tracker.cost += call_cost(function, overload, args, result)

        return _observed(node_id, run, settle)

    def construct(self, node_id: int, run: Run, ids: tuple[int, ...], *, kind: str) -> Run:
        """A list, map or message built from parts."""
        if not self.tracked:
            return run
        price = CONSTRUCTION[kind]

        def settle(tracker: Tracker, _: Value) -> None:
            tracker.take(ids)
            tracker.cost += price

        return _observed(node_id, run, settle)


def _observed(node_id: int, run: Run, settle: Callable[[Tracker, Value], None]) -> Run:

    def observed(frame: Frame) -> Value:
        tracker = _tracker(frame)
        try:
            value = run(frame)
        except CelError as error:
            settle(tracker, error)
            tracker.push(node_id, error)
            raise
        settle(tracker, value)
        tracker.push(node_id, value)
        return value

    return observed


def _as_test(run: Run) -> Run:
    def test(frame: Frame) -> Value:
        verdict = run(frame)
        return verdict.has_value if verdict.__class__ is Optional else verdict

    return test


def _tracker(frame: Frame) -> Tracker:
    assert frame.tracker is not None
    return frame.tracker

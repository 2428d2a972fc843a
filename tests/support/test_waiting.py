"""Waiting gives up with words for what it waited for, and tests let real time pass nowhere else."""

from __future__ import annotations

import ast
import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.support import waiting

TESTS = Path(__file__).resolve().parents[1]
# Where real time is the matter itself, and how often: slow answers, the rhythm of kubelets and users, a reconnection,
# the pauses of a process whose time a test sets, and how long an attack stands in the hostile campaign, whose published
# figures are comparable only if that stays.
ALLOWED = {
    "support/waiting.py": 4,
    "faults/proxy.py": 2,
    "faults/kubelets.py": 1,
    "faults/history.py": 1,
    "faults/campaign.py": 1,
    "hostile/campaign.py": 2,
    "e2e/cost_week/week_clock.py": 1,
}


def test_the_first_true_value_is_returned() -> None:
    values = iter([0, "", None, "here"])
    assert waiting.wait_until(lambda: next(values), "a value", pause=0) == "here"

    values = iter([0, "", None, "there"])

    async def coming() -> object:
        return next(values)

    assert asyncio.run(waiting.until(coming, "a value", pause=0)) == "there"


def test_giving_up_says_what_was_waited_for_and_what_was_seen() -> None:
    expected = "^waited 0 s for a leader\nlog: nothing"
    with pytest.raises(AssertionError, match=expected):
        waiting.wait_until(
            lambda: False, "a leader", at_most=0, pause=0, so_far=lambda: "log: nothing"
        )
    with pytest.raises(AssertionError, match=expected):
        asyncio.run(
            waiting.until(
                lambda: False, "a leader", at_most=0, pause=0, so_far=lambda: "log: nothing"
            )
        )


def test_a_caller_that_goes_on_learns_whether_it_came_true() -> None:
    assert waiting.is_true_within(lambda: "yes", seconds=0) is True
    assert waiting.is_true_within(lambda: "", seconds=0) is False
    assert asyncio.run(waiting.comes_true_within(lambda: "yes", seconds=0)) is True
    assert asyncio.run(waiting.comes_true_within(lambda: "", seconds=0)) is False


def test_no_other_module_sleeps() -> None:
    result: Counter[str] = Counter()
    for path in TESTS.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        result[path.relative_to(TESTS).as_posix()] += sum(map(is_sleep, calls))
    assert {name: count for name, count in result.items() if count} == ALLOWED


def is_sleep(call: ast.Call) -> bool:
    """Whether a call lets real time pass. `asyncio.sleep(0)` only lets others go on."""
    name = ast.unparse(call.func)
    is_yield = bool(call.args) and ast.unparse(call.args[0]) == "0"
    return name in ("time.sleep", "asyncio.sleep") and not is_yield

"""The public scenarios: how many are decided as expected, those where nothing may change counted apart."""

from __future__ import annotations

import pytest

from tests.scenarios import scoring
from tests.support import shared

LEAST_CHANGING = 171  # policy matches among scenarios where something changes
LEAST_NO_CHANGE = 81  # policy matches among scenarios where nothing may change
LEAST_PLACED = 122  # forced nodes as expected
MOST_BROKEN = 0  # scenarios in which a rule that always holds was broken


@pytest.fixture(scope="module")
def found() -> list[scoring.Judged]:
    """Every public scenario, decided and compared."""
    return list(scoring.judged(shared.data(scoring.PUBLIC)))


def test_scenarios_are_decided_as_expected(found: list[scoring.Judged]) -> None:
    messages = "\n".join(scoring.report(found) + scoring.deviations(found))
    print(messages)
    assert scoring.score(found, changes=True).matched >= LEAST_CHANGING, messages
    assert scoring.score(found, changes=False).matched >= LEAST_NO_CHANGE, messages
    assert scoring.placement(found).matched >= LEAST_PLACED, messages


def test_rules_that_always_hold_are_kept(found: list[scoring.Judged]) -> None:
    broken = [f"{item.id}: {text}" for item in found for text in item.broken]
    assert sum(bool(item.broken) for item in found) <= MOST_BROKEN, "\n".join(broken)

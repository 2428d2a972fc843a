"""Budgets counted along evictions."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.answer.drain import disruption_account
from tests.answer.drain.building import budget, budget_of, pod, pod_of


def account(*budgets: dict[str, Any], count: int = 4, unready: int = 0) -> Any:
    present = [pod_of(pod(f"p{number}", is_ready=number >= unready)) for number in range(count)]
    made = disruption_account.Account([budget_of(tree) for tree in budgets], present)
    return made, present


def evicted(*budgets: dict[str, Any], count: int = 4, unready: int = 0) -> int:
    """How many of the pods may go one after the other."""
    made, present = account(*budgets, count=count, unready=unready)
    return sum(made.evict(each) is None for each in present)


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"minAvailable": 3}, 1),
        ({"minAvailable": "50%"}, 2),
        ({"minAvailable": "51%"}, 1),  # rounded up: 3 of 4 have to stay
        ({"maxUnavailable": "30%"}, 2),  # rounded up as well
        ({"maxUnavailable": 0}, 0),
        ({"maxUnavailable": 9}, 4),
        ({}, 4),
    ],
)
def test_a_budget_allows_so_many_evictions_in_a_row(spec: dict[str, Any], allowed: int) -> None:
    assert evicted(budget(**spec)) == allowed


def test_what_the_controller_wrote_counts_and_not_what_is_seen() -> None:
    status = {"disruptionsAllowed": 1, "currentHealthy": 9, "desiredHealthy": 8, "expectedPods": 9}
    assert evicted(budget(minAvailable=8, status=status | {"observedGeneration": 1})) == 1


def test_a_status_behind_its_spec_allows_nothing() -> None:
    lagging = budget(minAvailable=1, status={"disruptionsAllowed": 3, "observedGeneration": 1})
    lagging["metadata"]["generation"] = 2
    made, (first, *_) = account(lagging)
    refusal = made.evict(first)
    assert refusal is not None
    assert "still being counted" in refusal.message


def test_a_pod_that_is_back_lets_the_next_go() -> None:
    made, (first, second, *_) = account(budget(maxUnavailable=1))
    assert made.evict(first) is None
    refusal = made.evict(second)
    assert refusal is not None
    assert refusal.message == "budget default/web needs 3 healthy pods and has 3"
    assert not refusal.is_final

    made.returned(first)

    assert made.evict(second) is None


def test_unready_pods_go_while_enough_are_healthy_or_where_the_policy_lets_them() -> None:
    assert evicted(budget(minAvailable=3), unready=1) == 1  # the unready one only
    assert evicted(budget(minAvailable=4), unready=1) == 0
    always = budget(minAvailable=4, unhealthyPodEvictionPolicy="AlwaysAllow")
    assert evicted(always, unready=1) == 1
    # With nothing desired, an unready pod is counted, and none is healthy: the server refuses it.
    assert evicted(budget(maxUnavailable="100%"), unready=4) == 0


def test_two_budgets_over_a_pod_refuse_for_good_unless_it_is_finished() -> None:
    made, (first, *_) = account(budget("a", minAvailable=0), budget("b", minAvailable=0))
    refusal = made.evict(first)
    assert refusal is not None
    assert refusal.is_final
    finished = pod("done")
    finished["status"]["phase"] = "Succeeded"
    assert made.evict(pod_of(finished)) is None

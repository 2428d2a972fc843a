"""The checker of hostile campaigns finds each kind of harm in a history made for it, and none where there is none."""

from __future__ import annotations

from typing import Any

from tests.hostile import checker
from tests.support.rest import Seen


def version(
    uid: str, at: float, *, node: str = "", kind: str = "MODIFIED", **metadata: Any
) -> Seen:
    messages = {"type": "PodScheduled", "message": "no room"}
    tree = {
        "metadata": {"uid": uid, "name": f"pod-{uid}"} | metadata,
        "spec": {"nodeName": node} if node else {},
        "status": {"conditions": [messages]},
    }
    return Seen(kind, tree, at)


def rules(*history: Seen, ended: float = 100.0) -> list[str]:
    return [
        violation.rule
        for violation in checker.judged(history, ended=ended, bound_seconds=30.0).violations
    ]


def test_a_pod_that_is_bound_in_time_is_well() -> None:
    assert rules(version("a", 0.0), version("a", 29.0, node="n")) == []


def test_a_pod_that_is_bound_late_is_a_violation() -> None:
    assert rules(version("a", 0.0), version("a", 31.0, node="n")) == ["late"]


def test_a_pod_that_still_waits_at_the_end_is_a_violation_once_it_is_old_enough() -> None:
    assert rules(version("a", 0.0)) == ["late"]
    assert rules(version("a", 80.0)) == []


def test_a_pod_whose_owner_gave_up_in_time_is_well_and_later_is_not() -> None:
    assert rules(version("a", 0.0), version("a", 20.0, kind="DELETED")) == []
    assert rules(
        version("a", 0.0), version("a", 40.0, deletionTimestamp="2026-01-01T00:00:00Z")
    ) == ["late"]


def test_a_pod_of_the_same_name_made_again_is_another() -> None:
    assert (
        rules(version("a", 0.0, node="n"), version("b", 50.0), version("b", 60.0, node="n")) == []
    )


def test_percentiles_are_those_of_pods_that_were_bound() -> None:
    history = [
        seen
        for n in range(100)
        for seen in (version(str(n), 0.0), version(str(n), n / 10, node="n"))
    ]
    verdict = checker.judged(history, ended=100.0, bound_seconds=30.0)
    assert (verdict.percentile(0.5), verdict.percentile(0.95), verdict.percentile(1)) == (
        5.0,
        9.5,
        9.9,
    )

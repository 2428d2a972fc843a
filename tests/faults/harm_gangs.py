"""Harm done to gangs, and by them, for the tests of the checker: each changes a history that was sound before."""

from __future__ import annotations

from tests.faults.story import HistoryBuilder


def _gang(history_builder: HistoryBuilder, name: str, size: int) -> list[str]:
    names = [f"{name}-{number}" for number in range(size)]
    for item in names:
        history_builder.pod(item)
        history_builder.change(
            "pods",
            f"t/{item}",
            metadata={"labels": {"dovetail.dev/gang": name, "dovetail.dev/gang-min": "2"}},
        )
    return names


def _yields(
    history_builder: HistoryBuilder, pod: str, gang: str, *, is_ending: bool = True
) -> None:
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "message": f"yields to t/gang/{gang} (Preempted): so",
    }
    history_builder.change("pods", f"t/{pod}", status={"conditions": [condition]}, by="two")
    if is_ending:
        history_builder.change(
            "pods", f"t/{pod}", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}, by="two"
        )


def half_a_gang_for_long(history_builder: HistoryBuilder) -> None:
    first, _ = _gang(history_builder, "half", 2)
    history_builder.bind(first, "b", by="two")
    history_builder.wait(50)
    history_builder.lead("two")
    history_builder.delete("pods", f"t/{first}")


def half_a_gang_at_the_end(history_builder: HistoryBuilder) -> None:
    first, _ = _gang(history_builder, "half", 2)
    history_builder.bind(first, "b", by="two")
    history_builder.wait(50)


def a_binding_before_the_claims_of_its_gang(history_builder: HistoryBuilder) -> None:
    for name in ("early-0", "early-1"):
        history_builder.pod(name, claims=(name,))
        labels = {"dovetail.dev/gang": "early", "dovetail.dev/gang-min": "2"}
        history_builder.change("pods", f"t/{name}", metadata={"labels": labels})
        history_builder.claim(name, owner=name)
    history_builder.allocate("early-0", {"device": "gpu-1"}, pods=("early-0",), node="a", by="two")
    history_builder.bind("early-0", "a", by="two")


def a_gang_that_takes_too_much(history_builder: HistoryBuilder) -> None:
    _gang(history_builder, "greedy", 2)
    for number in range(6):
        history_builder.pod(f"victim-{number}")
        history_builder.bind(f"victim-{number}", "b", by="two")
        _yields(history_builder, f"victim-{number}", "greedy")


def a_gang_that_does_not_start_after_all(history_builder: HistoryBuilder) -> None:
    _gang(history_builder, "idle", 2)
    history_builder.pod("victim")
    history_builder.bind("victim", "b", by="two")
    _yields(history_builder, "victim", "idle")
    history_builder.delete("pods", "t/victim")
    history_builder.wait(90)


# What is allowed


def a_gang_that_starts_as_a_whole(history_builder: HistoryBuilder) -> None:
    for name in _gang(history_builder, "whole", 2):
        history_builder.bind(name, "b", by="two")
    history_builder.wait(90)


def half_a_gang_that_is_taken_back(history_builder: HistoryBuilder) -> None:
    first, second = _gang(history_builder, "half", 2)
    history_builder.refuse(second, "no room", by="two")
    history_builder.bind(first, "b", by="two")
    history_builder.wait(20)
    history_builder.delete("pods", f"t/{first}")
    history_builder.wait(90)


def a_gang_that_is_deleted_while_it_starts(history_builder: HistoryBuilder) -> None:
    first, second = _gang(history_builder, "brief", 2)
    history_builder.delete("pods", f"t/{first}")
    history_builder.bind(second, "b", by="two")
    history_builder.delete("pods", f"t/{second}")


def a_gang_that_lost_a_pod_after_it_ran(history_builder: HistoryBuilder) -> None:
    first, second = _gang(history_builder, "whole", 2)
    for name in (first, second):
        history_builder.bind(name, "b", by="two")
    history_builder.delete("pods", f"t/{first}")
    history_builder.wait(90)


def a_gang_that_a_pod_yields_to(history_builder: HistoryBuilder) -> None:
    names = _gang(history_builder, "next", 2)
    history_builder.pod("victim")
    history_builder.bind("victim", "b", by="two")
    _yields(history_builder, "victim", "next")
    history_builder.delete("pods", "t/victim")
    for name in names:
        history_builder.bind(name, "b", by="two")
    history_builder.wait(90)


def a_gang_that_is_gone_before_it_starts(history_builder: HistoryBuilder) -> None:
    names = _gang(history_builder, "gone", 2)
    history_builder.pod("victim")
    history_builder.bind("victim", "b", by="two")
    _yields(history_builder, "victim", "gone")
    history_builder.delete("pods", "t/victim")
    for name in names:
        history_builder.delete("pods", f"t/{name}")
    history_builder.wait(90)

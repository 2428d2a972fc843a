"""Harm done to gangs, and by them, for the tests of the checker: each changes a tale that was sound before."""

from __future__ import annotations

from tests.faults.story import Tale


def _gang(tale: Tale, name: str, size: int) -> list[str]:
    names = [f"{name}-{number}" for number in range(size)]
    for item in names:
        tale.pod(item)
        tale.change(
            "pods",
            f"t/{item}",
            metadata={"labels": {"dovetail.dev/gang": name, "dovetail.dev/gang-min": "2"}},
        )
    return names


def _yields(tale: Tale, pod: str, gang: str, *, is_ending: bool = True) -> None:
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "message": f"yields to t/gang/{gang} (Preempted): so",
    }
    tale.change("pods", f"t/{pod}", status={"conditions": [condition]}, by="two")
    if is_ending:
        tale.change(
            "pods", f"t/{pod}", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}, by="two"
        )


def half_a_gang_for_long(tale: Tale) -> None:
    first, _ = _gang(tale, "half", 2)
    tale.bind(first, "b", by="two")
    tale.wait(50)
    tale.lead("two")
    tale.delete("pods", f"t/{first}")


def half_a_gang_at_the_end(tale: Tale) -> None:
    first, _ = _gang(tale, "half", 2)
    tale.bind(first, "b", by="two")
    tale.wait(50)


def a_binding_before_the_claims_of_its_gang(tale: Tale) -> None:
    for name in ("early-0", "early-1"):
        tale.pod(name, claims=(name,))
        labels = {"dovetail.dev/gang": "early", "dovetail.dev/gang-min": "2"}
        tale.change("pods", f"t/{name}", metadata={"labels": labels})
        tale.claim(name, owner=name)
    tale.allocate("early-0", {"device": "gpu-1"}, pods=("early-0",), node="a", by="two")
    tale.bind("early-0", "a", by="two")


def a_gang_that_takes_too_much(tale: Tale) -> None:
    _gang(tale, "greedy", 2)
    for number in range(6):
        tale.pod(f"victim-{number}")
        tale.bind(f"victim-{number}", "b", by="two")
        _yields(tale, f"victim-{number}", "greedy")


def a_gang_that_does_not_start_after_all(tale: Tale) -> None:
    _gang(tale, "idle", 2)
    tale.pod("victim")
    tale.bind("victim", "b", by="two")
    _yields(tale, "victim", "idle")
    tale.delete("pods", "t/victim")
    tale.wait(90)


# What is allowed


def a_gang_that_starts_as_a_whole(tale: Tale) -> None:
    for name in _gang(tale, "whole", 2):
        tale.bind(name, "b", by="two")
    tale.wait(90)


def half_a_gang_that_is_taken_back(tale: Tale) -> None:
    first, second = _gang(tale, "half", 2)
    tale.refuse(second, "no room", by="two")
    tale.bind(first, "b", by="two")
    tale.wait(20)
    tale.delete("pods", f"t/{first}")
    tale.wait(90)


def a_gang_that_is_deleted_while_it_starts(tale: Tale) -> None:
    first, second = _gang(tale, "brief", 2)
    tale.delete("pods", f"t/{first}")
    tale.bind(second, "b", by="two")
    tale.delete("pods", f"t/{second}")


def a_gang_that_lost_a_pod_after_it_ran(tale: Tale) -> None:
    first, second = _gang(tale, "whole", 2)
    for name in (first, second):
        tale.bind(name, "b", by="two")
    tale.delete("pods", f"t/{first}")
    tale.wait(90)


def a_gang_that_somebody_yields_to(tale: Tale) -> None:
    names = _gang(tale, "next", 2)
    tale.pod("victim")
    tale.bind("victim", "b", by="two")
    _yields(tale, "victim", "next")
    tale.delete("pods", "t/victim")
    for name in names:
        tale.bind(name, "b", by="two")
    tale.wait(90)


def a_gang_that_is_gone_before_it_starts(tale: Tale) -> None:
    names = _gang(tale, "gone", 2)
    tale.pod("victim")
    tale.bind("victim", "b", by="two")
    _yields(tale, "victim", "gone")
    tale.delete("pods", "t/victim")
    for name in names:
        tale.delete("pods", f"t/{name}")
    tale.wait(90)

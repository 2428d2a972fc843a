"""The checker of histories accepts a sound upgrade, and names each thing that was not allowed."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.upgrade.fleet.upgrade_checker import Checker
from tests.upgrade.fleet.upgrade_history import FENCE, NODE, STATE, WORK, Change, Scene

Tree = dict[str, Any]
SCENE = Scene(
    most_unavailable=1,
    driver_app="driver",
    images={"1": "driver:1", "2": "driver:2"},
    cordoned=frozenset({"gpu-3"}),
)


class Tale:
    """A history that is written down event by event."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self._revisions = itertools.count(1)
        for name in ("gpu-1", "gpu-2", "gpu-3"):
            self.node(name, cordoned=name == "gpu-3")
            self.driver(name, "1")
        self.upgrade("Waiting")

    def verdict(self, *, is_over: bool = False) -> list[str]:
        checker = Checker(SCENE).replay(self.changes)
        if is_over:
            checker.end()
        return [violation.partition(": ")[2] for violation in checker.violations]

    def node(
        self, name: str, fence: str = "", *, cordoned: bool = False, state: str = "", team: str = ""
    ) -> None:
        taints = [{"key": FENCE, "value": fence, "effect": "NoSchedule"}] if fence else []
        taints += [{"key": "team", "value": team, "effect": "NoSchedule"}] if team else []
        metadata = {"name": name, "labels": {STATE: state} if state else {}}
        self._add("nodes", {"metadata": metadata, "spec": _spec(taints, cordoned)})

    def rule(self, node: str, *, type_: str = "ADDED") -> None:
        metadata = {"name": f"r-{node}", "labels": {FENCE: "roll"}, "annotations": {NODE: node}}
        self._add("devicetaintrules", {"metadata": metadata}, type_)

    def driver(self, node: str, version: str, *, ends: bool = False, ready: bool = True) -> None:
        metadata: Tree = {"name": f"driver-{node}", "uid": f"{node}-{version}"}
        metadata["labels"] = {"app": "driver"}
        self._pod(metadata, node, f"driver:{version}", ends=ends, ready=ready)

    def work(self, name: str, node: str, *, gang: int = 1, ends: bool = False) -> None:
        metadata: Tree = {"name": name, "uid": name}
        metadata["labels"] = {WORK: "w", "dovetail.dev/gang-min": str(gang)}
        self._pod(metadata, node, "work", ends=ends)

    def upgrade(self, phase: str, *, drain: Tree | None = None, **node: Any) -> None:
        nodes = [{"name": "gpu-1", "phase": phase} | node, {"name": "gpu-2", "phase": "Waiting"}]
        status = {"phase": "Progressing", "nodes": nodes} | ({"drain": drain} if drain else {})
        tree = {"metadata": {"name": "roll"}, "spec": {"to": {"driver": "2"}}, "status": status}
        self._add("stackupgrades", tree)

    def _pod(
        self, metadata: Tree, node: str, image: str, *, ends: bool, ready: bool = True
    ) -> None:
        if ends:
            metadata["deletionTimestamp"] = "now"
        spec = {"nodeName": node, "containers": [{"image": image}]}
        status = {"containerStatuses": [{"ready": ready}]}
        self._add("pods", {"metadata": metadata, "spec": spec, "status": status})

    def _add(self, kind: str, tree: Tree, type_: str = "MODIFIED") -> None:
        self.changes.append(Change(next(self._revisions), kind, type_, tree))


def _spec(taints: list[Tree], cordoned: bool) -> Tree:
    return {"taints": taints, "unschedulable": cordoned}


def fenced(phase: str = "Draining") -> Tale:
    """gpu-1 behind a whole fence, in this phase."""
    tale = Tale()
    tale.changes = [each for each in tale.changes if each.name != "gpu-3"]  # one node may be out
    tale.work("a", "gpu-1")
    order = ("Fencing", "Draining", "Applying", "Validating", "Unfencing")
    tale.upgrade("Fencing")
    tale.rule("gpu-1")
    tale.node("gpu-1", "roll")
    for each in order[1 : order.index(phase) + 1]:
        tale.upgrade(each)
    return tale


def test_a_sound_upgrade_of_a_node_has_no_violation() -> None:
    tale = fenced("Draining")
    tale.work("a", "gpu-1", ends=True)
    tale.changes.append(tale.changes[-1]._replace(type="DELETED", revision=90))
    tale._revisions = itertools.count(91)
    tale.upgrade("Applying")
    tale.node("gpu-1", "roll", cordoned=True, state="pod-restart-required")
    tale.driver("gpu-1", "1", ends=True)
    tale.changes.append(tale.changes[-1]._replace(type="DELETED", revision=100))
    tale._revisions = itertools.count(101)
    tale.driver("gpu-1", "2")
    tale.node("gpu-1", "roll", state="upgrade-done")
    tale.upgrade("Validating")
    tale.upgrade("Unfencing")
    tale.rule("gpu-1", type_="DELETED")
    tale.node("gpu-1", state="upgrade-done")
    tale.upgrade("Done")
    assert tale.verdict(is_over=True) == []


def test_two_owners() -> None:
    tale = fenced()
    tale.node("gpu-1", "other")
    assert "the fence of gpu-1 went from roll to other at once" in tale.verdict()


def test_too_many_nodes_out_of_service() -> None:
    tale = fenced()
    tale.node("gpu-2", "roll")
    assert "2 nodes are unavailable: ['gpu-1', 'gpu-2']" in tale.verdict()


def test_an_eviction_without_a_fence() -> None:
    tale = Tale()
    tale.work("a", "gpu-1")
    tale.upgrade("Draining")
    tale.work("a", "gpu-1", ends=True)
    assert any("without a fence" in each for each in tale.verdict())


def test_an_eviction_behind_half_a_fence() -> None:
    tale = fenced()
    tale.rule("gpu-1", type_="DELETED")
    tale.work("a", "gpu-1", ends=True)
    assert any("without a fence" in each for each in tale.verdict())


def test_a_gang_that_the_status_does_not_name() -> None:
    tale = fenced()
    tale.work("g", "gpu-1", gang=2)
    tale.work("g", "gpu-1", gang=2, ends=True)
    assert any("a status that names it" in each for each in tale.verdict())


def test_a_gang_that_is_left_half_evicted() -> None:
    tale = fenced()
    drain = {"gang": "default/g", "pods": ["g-0", "g-1"], "isEvicting": True}
    for name in ("g-0", "g-1"):
        tale.work(name, "gpu-1", gang=2)
    tale.upgrade("Draining", drain=drain)
    tale.work("g-0", "gpu-1", gang=2, ends=True)
    tale.changes.append(tale.changes[-1]._replace(type="DELETED", revision=90))
    tale._revisions = itertools.count(91)
    tale.upgrade("Draining")
    assert tale.verdict() == ["gang default/g is half evicted: 1 pods stay"]


def test_a_fence_that_goes_before_the_driver_is_ready() -> None:
    tale = fenced("Unfencing")
    tale.driver("gpu-1", "1", ends=True)
    tale.driver("gpu-1", "2", ready=False)
    tale.node("gpu-1")
    assert any("without a ready driver" in each for each in tale.verdict())


def test_a_fence_that_goes_in_the_middle() -> None:
    tale = fenced("Applying")
    tale.driver("gpu-1", "2")
    tale.node("gpu-1")
    assert tale.verdict() == ["gpu-1 was unfenced in phase Applying"]


def test_a_driver_that_ends_under_running_work() -> None:
    tale = fenced("Applying")
    tale.driver("gpu-1", "1", ends=True)
    assert tale.verdict() == ["the driver of gpu-1 ended under ['a']"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"cordoned": True}, "gpu-2 was cordoned without our fence"),
        ({"state": "drain-required"}, "the library has gpu-2 in drain-required"),
    ],
)
def test_a_library_that_works_on_a_node_out_of_turn(change: Tree, expected: str) -> None:
    tale = Tale()
    tale.node("gpu-2", **change)
    assert any(each.startswith(expected) for each in tale.verdict())


def test_what_belongs_to_others() -> None:
    tale = Tale()
    tale.node("gpu-3")
    tale.node("gpu-2", team="a")
    tale.node("gpu-2")
    verdict = tale.verdict()
    assert "the cordon of another on gpu-3 was removed" in verdict
    assert any(each.startswith("foreign taints of gpu-2 went") for each in verdict)


def test_a_phase_that_goes_backwards() -> None:
    tale = fenced("Validating")
    tale.upgrade("Draining")
    assert tale.verdict() == ["node gpu-1 went from Validating to Draining"]


def test_what_is_left_over() -> None:
    tale = fenced()
    verdict = tale.verdict(is_over=True)
    assert f"left on node gpu-1: {FENCE}" in verdict
    assert "left: rule r-gpu-1" in verdict

"""Upgrades from beginning to end on a server in memory, and killed between any two writes."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest

from dovetail.kubetypes import registry
from dovetail.kubetypes.custom.stack_upgrades import Phase
from dovetail.ports import failures
from dovetail.ports.api import Target
from tests.upgrade.simulated_upgrade import NEW, OLD, SimulatedUpgrade, ended, in_phase


def test_all_nodes_get_the_driver_and_no_fence_is_left() -> None:
    rig = SimulatedUpgrade(nodes=3)
    rig.run_gang("train", "gpu-0", "gpu-1")
    rig.run_pod("serve", "gpu-2")
    rig.run()
    assert rig.upgrade.status.phase is Phase.COMPLETED, rig.upgrade.status.reason
    assert set(rig.drivers().values()) == {NEW}
    assert rig.fences() == {}
    assert rig.api.all(registry.TAINT_RULE) == []
    assert rig.upgrade.status.progress == "3/3"


def test_a_failed_canary_stops_the_upgrade_and_stays_fenced() -> None:
    rig = SimulatedUpgrade(nodes=3)
    rig.bad = {"gpu-0"}
    rig.run()
    assert rig.upgrade.status.phase is Phase.STOPPED
    assert "canary gpu-0 failed: 2 of 8 GPUs are missing" in rig.upgrade.status.reason
    assert rig.fences() == {"gpu-0": "roll"}
    assert rig.drivers() == {"gpu-0": NEW, "gpu-1": OLD, "gpu-2": OLD}


def test_a_failed_node_stops_its_wave_and_not_the_fleet() -> None:
    policy = {"maxUnavailable": "50%", "parallel": 2, "canary": 1}
    rig = SimulatedUpgrade(nodes=6, spec={"waves": policy})
    rig.bad = {"gpu-2"}
    rig.run()
    assert rig.upgrade.status.phase is Phase.COMPLETED, rig.upgrade.status.reason
    assert rig.phases()["gpu-2"] == "Failed"
    assert rig.phases()["gpu-5"] == "Done"
    assert [str(wave.state) for wave in rig.upgrade.status.waves] == [
        "Done",
        "Stopped",
        "Done",
        "Done",
    ]


def test_failed_nodes_go_back_where_the_rules_want_it() -> None:
    rig = SimulatedUpgrade(nodes=3, spec={"rollback": "FailedNodes"})
    rig.bad = {"gpu-0"}
    rig.run()
    assert rig.phases()["gpu-0"] == "RolledBack"
    assert rig.drivers()["gpu-0"] == OLD
    assert rig.fences() == {}


def test_all_nodes_go_back_after_a_stop() -> None:
    rig = SimulatedUpgrade(nodes=4, spec={"rollback": "AllNodes", "stop": {"failures": 1}})
    rig.bad = {"gpu-2"}
    rig.run()
    assert rig.upgrade.status.phase is Phase.STOPPED
    assert set(rig.drivers().values()) == {OLD}
    assert rig.fences() == {}


def test_foreign_taints_and_cordons_stay() -> None:
    rig = SimulatedUpgrade(nodes=3, spec={"waves": {"maxUnavailable": "50%"}})
    rig.taint("gpu-1", key="team", value="a", effect="NoSchedule")
    rig._patch("gpu-2", {"spec": {"unschedulable": True}})
    rig.run()
    assert rig.upgrade.status.phase is Phase.COMPLETED, rig.upgrade.status.reason
    assert [taint.key for taint in rig.api.find(registry.NODE, "gpu-1").spec.taints] == ["team"]
    assert rig.api.find(registry.NODE, "gpu-2").spec.unschedulable


def test_a_node_whose_driver_does_not_tolerate_our_taint_is_cordoned_instead() -> None:
    rig = _cordoning()
    rig.run(until=lambda rig: "gpu-1" in rig.fences())
    node = rig.api.find(registry.NODE, "gpu-1")
    assert node.spec.unschedulable
    assert node.spec.taints == ()
    rig.run()
    assert rig.upgrade.status.phase is Phase.COMPLETED, rig.upgrade.status.reason
    nodes = {node.metadata.name: node for node in rig.api.all(registry.NODE)}
    assert [name for name, node in nodes.items() if node.spec.unschedulable] == ["gpu-2"]
    left = [key for node in nodes.values() for key in node.metadata.annotations]
    assert [key for key in left if "stack-upgrade" in key] == []


def test_a_cordon_of_ours_that_a_person_lifts_is_set_again() -> None:
    rig = _cordoning()
    rig.run_pod("serve", "gpu-1")
    rig.run(until=lambda rig: rig.phases().get("gpu-1") == "Draining")
    rig._patch("gpu-1", {"spec": {"unschedulable": False}})
    rig.run(until=lambda rig: rig.phases().get("gpu-1") == "Unfencing")
    assert rig.api.find(registry.NODE, "gpu-1").spec.unschedulable


def test_paused_no_node_begins_and_resumed_all_do() -> None:
    rig = SimulatedUpgrade(nodes=3)
    rig.run(until=lambda rig: bool(rig.fences()))
    rig.edit(paused=True)
    rig.run(60, until=lambda rig: False)
    assert rig.upgrade.status.phase is Phase.PAUSED
    assert rig.phases()["gpu-1"] == "Waiting"
    rig.edit(paused=False)
    rig.run()
    assert rig.upgrade.status.phase is Phase.COMPLETED


def test_aborted_the_untouched_nodes_return_and_the_rest_finish() -> None:
    rig = SimulatedUpgrade(nodes=3)
    rig.run_pod("serve", "gpu-0")
    rig.run(until=lambda rig: "Draining" in rig.phases().values())
    rig.edit(aborted=True)
    rig.run()
    assert rig.upgrade.status.phase is Phase.ABORTED
    assert rig.fences() == {}
    assert set(rig.drivers().values()) == {OLD}


def test_a_deleted_upgrade_is_aborted_before_its_object_goes() -> None:
    rig = SimulatedUpgrade(nodes=3)
    rig.run(until=lambda rig: bool(rig.fences()))
    rig.api.shelf.delete(registry.STACK_UPGRADE, ("", "roll"), grace_seconds=0)
    for _ in range(60):
        if not rig.api.all(registry.STACK_UPGRADE):
            break
        rig.run(1, until=lambda rig: False)
    assert rig.api.all(registry.STACK_UPGRADE) == []
    assert rig.fences() == {}


def test_an_impossible_spec_is_refused_and_nothing_is_touched() -> None:
    rig = SimulatedUpgrade(nodes=3, spec={"nodeSelector": {"matchLabels": {"pool": "none"}}})
    rig.run()
    assert rig.upgrade.status.phase is Phase.REFUSED
    assert "no nodes are selected" in rig.upgrade.status.reason
    assert rig.fences() == {}


def test_an_adapter_that_serves_no_node_is_refused() -> None:
    rig = SimulatedUpgrade(nodes=2, spec={"adapter": "other"})
    rig.run()
    assert rig.upgrade.status.phase is Phase.REFUSED
    assert "label serves it, not other" in rig.upgrade.status.reason
    assert rig.fences() == {}


def test_a_clock_that_is_set_forward_fails_no_node() -> None:
    rig = SimulatedUpgrade(nodes=2)
    rig.run_pod("serve", "gpu-0")
    rig.run(until=lambda rig: "Draining" in rig.phases().values())
    real = rig.clock.now
    rig.clock.now = lambda: real() + datetime.timedelta(days=2)  # type: ignore[method-assign]
    rig.run()
    assert rig.upgrade.status.phase is Phase.COMPLETED, rig.upgrade.status.reason


def _plain() -> SimulatedUpgrade:
    rig = SimulatedUpgrade(nodes=3)
    rig.run_gang("train", "gpu-0", "gpu-1", "gpu-2")
    rig.run_pod("serve", "gpu-2")
    return rig


def _wide() -> SimulatedUpgrade:
    rig = SimulatedUpgrade(nodes=5, spec={"waves": {"maxUnavailable": "40%", "parallel": 2}})
    rig.run_gang("a", "gpu-1", "gpu-2")
    rig.run_gang("b", "gpu-1", "gpu-2")
    return rig


def _failing() -> SimulatedUpgrade:
    policy = {"maxUnavailable": "50%", "parallel": 2}
    rig = SimulatedUpgrade(nodes=4, spec={"waves": policy, "rollback": "FailedNodes"})
    rig.run_gang("train", "gpu-1", "gpu-3")
    rig.bad = {"gpu-1"}
    return rig


def _returning() -> SimulatedUpgrade:
    rig = SimulatedUpgrade(nodes=3, spec={"rollback": "AllNodes", "stop": {"failures": 1}})
    rig.bad = {"gpu-2"}
    return rig


def _cordoning() -> SimulatedUpgrade:
    """Drivers that would not start again behind a taint; one node was cordoned by others before."""
    rig = SimulatedUpgrade(nodes=3, spec={"waves": {"maxUnavailable": "70%"}})
    for name in ("gpu-0", "gpu-1", "gpu-2"):
        rig.run_driver(name)
    rig._patch("gpu-2", {"spec": {"unschedulable": True}})
    return rig


SCENARIOS = (_plain, _wide, _failing, _returning, _cordoning)


@pytest.mark.slow
@pytest.mark.parametrize("build", SCENARIOS)
def test_killed_between_any_two_writes_the_end_is_the_same(
    build: Callable[[], SimulatedUpgrade],
) -> None:
    whole = build()
    whole.run()
    expected = _end(whole)
    for number in range(1, whole.writes + 1):
        rig = build()
        rig.kill_at = number
        rig.run()
        assert _end(rig) == expected, f"killed before write {number}"


@pytest.mark.parametrize("build", SCENARIOS)
def test_processes_that_live_for_one_write_each_come_to_the_same_end(
    build: Callable[[], SimulatedUpgrade],
) -> None:
    whole = build()
    whole.run()
    rig = build()
    rig.is_fragile = True
    rig.run(2000)
    assert _end(rig) == _end(whole)


def _end(rig: SimulatedUpgrade) -> tuple[object, ...]:
    status = rig.upgrade.status
    rules = len(rig.api.all(registry.TAINT_RULE))
    return status.phase, rig.phases(), rig.fences(), rig.drivers(), rules


def test_there_are_more_than_two_hundred_kill_points() -> None:
    writes = 0
    for build in SCENARIOS:
        rig = build()
        rig.run()
        writes += rig.writes
    assert writes >= 200


def test_paused_is_reached_and_left() -> None:
    rig = SimulatedUpgrade(nodes=2)
    rig.run(until=lambda rig: bool(rig.fences()))
    rig.edit(paused=True)
    rig.run(until=in_phase(Phase.PAUSED))
    assert rig.upgrade.status.phase is Phase.PAUSED


@pytest.mark.parametrize(("lag", "pod_lag"), [(1, 0), (3, 0), (0, 3), (2, 2)])
def test_watches_that_are_behind_change_nothing_about_the_end(lag: int, pod_lag: int) -> None:
    policy = {"maxUnavailable": "50%"}
    rig = SimulatedUpgrade(nodes=4, spec={"waves": policy}, lag=lag, pod_lag=pod_lag)
    rig.run_gang("train", "gpu-0", "gpu-1")
    rig.run_pod("lone", "gpu-2")
    rig.run()
    assert set(rig.phases().values()) == {"Done"}
    assert rig.fences() == {}


def test_a_pod_that_comes_while_its_watch_is_behind_is_not_installed_under() -> None:
    """It was bound before the scheduler saw the fence. The player fails the story where the driver goes under it."""
    rig = SimulatedUpgrade(nodes=2, pod_lag=3)
    rig.run(until=lambda rig: rig.phases().get("gpu-0") == "Draining")
    rig.run_pod("late", "gpu-0")
    rig.run()
    assert set(rig.phases().values()) == {"Done"}
    assert set(rig.drivers().values()) == {NEW}


def test_its_own_writes_are_awaited_and_not_written_against() -> None:
    """With watches that are behind, no write of the status meets a conflict."""
    rig = SimulatedUpgrade(nodes=2, lag=2)
    refused: list[str] = []
    rig.api.after = lambda verb, target: None
    patch = rig.api.patch

    async def counted(target: Target, body: bytes, **options: Any) -> bytes:
        try:
            return await patch(target, body, **options)
        except failures.Conflict as conflict:
            refused.append(str(conflict))
            raise

    rig.api.patch = counted  # type: ignore[method-assign]
    rig.run()
    assert ended(rig)
    assert [text for text in refused if "stackupgrade" in text.lower()] == []


def test_how_an_upgrade_ended_is_an_event_and_so_is_its_last_node() -> None:
    rig = SimulatedUpgrade(nodes=2)
    rig.run()
    rig.run(passes=1, until=lambda rig: False)
    notes = {(event.reason, event.regarding.name) for event in rig.api.all(registry.EVENT)}
    assert {("UpgradeCompleted", "roll"), ("StackDone", "gpu-0"), ("StackDone", "gpu-1")} <= notes
    rig.api.settle()
    count = len(rig.api.all(registry.EVENT))
    rig._restart()
    rig.run(passes=2, until=lambda rig: False)
    assert len(rig.api.all(registry.EVENT)) == count, "another process records none twice"


def test_an_upgrade_that_stopped_is_degraded_and_says_by_which_rule() -> None:
    rig = SimulatedUpgrade(nodes=3, spec={"stop": {"totalSeconds": 30}})
    rig.run_pod("stays", "gpu-0")
    rig.run()
    assert rig.upgrade.status.phase is Phase.STOPPED
    conditions = {each.type: each for each in rig.upgrade.status.conditions}
    assert {name: each.status for name, each in conditions.items()} == {
        "Progressing": "False",
        "Completed": "False",
        "Degraded": "True",
    }
    assert conditions["Degraded"].message == "takes longer than 30 s"

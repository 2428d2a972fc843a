"""From a fault to a remedy: every entry of the table has a rung or a person, and the driver's word decides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.kubetypes.node_selectors import DeviceTaint
from dovetail.node.health import device_taints, policy_table
from dovetail.node.health.gpu_health import Fault, GpuHealth
from dovetail.node.health.policy_table import Advice, HealthPolicy
from dovetail.node.health.readings import RecoveryAction
from dovetail.upgrade.heal import remedy_ladder
from dovetail.upgrade.heal.remedy_ladder import Nothing, Person, Rung, SeenFault

TABLE = HealthPolicy()


def seen(name: str, effect: str = "NoSchedule", since: float = 0.0) -> SeenFault:
    return SeenFault(name=name, effect=effect, since=since)


@pytest.mark.parametrize("advice", Advice)
def test_every_advice_of_the_table_is_a_rung_or_a_persons_work(advice: Advice) -> None:
    remedy = remedy_ladder.remedy_of(advice)
    assert isinstance(remedy, Nothing) == (advice is Advice.IGNORE)
    assert isinstance(remedy, Rung | Person | Nothing)


@pytest.mark.parametrize(
    "action", [each for each in RecoveryAction if each is not RecoveryAction.NONE]
)
def test_every_word_of_the_driver_has_a_rule_of_its_own(action: RecoveryAction) -> None:
    name = f"recovery-{action.value}"
    assert name in policy_table.DEFAULTS
    each = remedy_ladder.diagnosis([seen(name)], TABLE)
    assert each is not None
    assert not isinstance(each.remedy, Nothing)


@pytest.mark.parametrize("name", sorted(policy_table.DEFAULTS))
def test_every_fault_that_the_agent_taints_is_read_back_from_its_taint(name: str) -> None:
    fault = "xid-171" if name == policy_table.OTHER_XID else name
    detail = fault.removeprefix("xid-")
    health = GpuHealth(0, (Fault(name=fault, since=5.0, last_seen=5.0, detail=detail),))
    for taint in device_taints.taints(health, TABLE):
        assert remedy_ladder.fault_of(taint, since=5.0) == seen(fault, taint.effect, 5.0)


def test_taints_of_other_writers_are_no_faults() -> None:
    for key in ("example.com/xid", "gpu.nvidia.com/maintenance", "dovetail.dev/upgrade"):
        taint = DeviceTaint(key=key, value="48", effect="NoSchedule")
        assert remedy_ladder.fault_of(taint, since=0.0) is None


def test_the_drivers_own_word_wins_over_the_table() -> None:
    faults = [seen("xid-79"), seen("recovery-gpu-reset")]
    each = remedy_ladder.diagnosis(faults, TABLE)
    assert each is not None
    assert each.remedy is Rung.RESET_GPU  # the table says reboot for Xid 79


def test_of_several_faults_the_highest_rung_that_keeps_work_away_decides() -> None:
    each = remedy_ladder.diagnosis([seen("xid-48"), seen("xid-79"), seen("xid-13", "None")], TABLE)
    assert each is not None
    assert each.remedy is Rung.REBOOT


@given(
    base=st.sampled_from(Rung),
    earlier=st.lists(st.sampled_from(Rung), max_size=8),
    tries=st.integers(1, 3),
)
def test_the_ladder_is_climbed_and_never_descended_within_the_window(
    base: Rung, earlier: list[Rung], tries: int
) -> None:
    rung = remedy_ladder.escalated(base, earlier, tries=tries)
    assert remedy_ladder.height(rung) >= remedy_ladder.height(base)
    if base is Rung.RESTART_APP:
        assert rung is base
        return
    assert all(remedy_ladder.height(rung) >= remedy_ladder.height(each) for each in earlier)
    if rung is not Rung.REPLACE:
        assert earlier.count(rung) < tries

"""Faults begin with events and readings, and end by their rules; taints and advice follow from them."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies as st

from dovetail.node.health import device_taints, gpu_health, policy_table
from dovetail.node.health.gpu_health import GpuHealth
from dovetail.node.health.policy_table import Advice, Effect, HealthPolicy
from dovetail.node.health.readings import GpuReading, RecoveryAction, Throttle
from dovetail.node.kubelet.claim_service import HealthState

POLICY = HealthPolicy()
WELL = GpuReading(minor=0)


def read(health: GpuHealth, reading: GpuReading, *, now: float) -> GpuHealth:
    return gpu_health.after_reading(health, reading, POLICY, now=now)


def tainted(health: GpuHealth) -> dict[str, tuple[str, str]]:
    return {
        taint.key: (taint.value, taint.effect) for taint in device_taints.taints(health, POLICY)
    }


def test_a_double_bit_error_keeps_work_away_until_the_gpu_is_reset() -> None:
    health = gpu_health.after_xid(GpuHealth(0), 48, now=100.0)
    assert tainted(health) == {"gpu.nvidia.com/xid": ("48", "NoSchedule")}
    assert not gpu_health.is_fit(health, POLICY)

    a_day_later = read(health, WELL, now=100_000.0)
    assert tainted(a_day_later) == {"gpu.nvidia.com/xid": ("48", "NoSchedule")}

    reset = gpu_health.after_reset(a_day_later, POLICY)
    assert tainted(reset) == {}
    assert gpu_health.is_fit(reset, POLICY)


def test_a_contained_error_asks_for_a_restart_and_keeps_no_work_away() -> None:
    health = gpu_health.after_xid(GpuHealth(3), 94, now=100.0)
    assert tainted(health) == {"gpu.nvidia.com/xid": ("94", "None")}
    assert gpu_health.is_fit(health, POLICY)
    assert device_taints.state(health, POLICY) == (
        HealthState.HEALTHY,
        "gpu-3: xid 94: restart the application",
    )


def test_an_application_error_is_over_after_five_quiet_minutes() -> None:
    health = gpu_health.after_xid(GpuHealth(0), 31, now=0.0)
    health = gpu_health.after_xid(health, 31, now=200.0)
    assert health.fault("xid-31") is not None
    assert read(health, WELL, now=499.0).fault("xid-31") is not None
    assert read(health, WELL, now=500.0).faults == ()


def test_the_worst_xid_speaks_for_all_of_them() -> None:
    health = gpu_health.after_xid(GpuHealth(0), 79, now=1.0)
    health = gpu_health.after_xid(health, 13, now=2.0)
    assert tainted(health) == {"gpu.nvidia.com/xid": ("79", "NoSchedule")}


def test_an_xid_without_a_rule_keeps_work_away_and_asks_for_support() -> None:
    health = gpu_health.after_xid(GpuHealth(0), 9999, now=1.0)
    assert tainted(health) == {"gpu.nvidia.com/xid": ("9999", "NoSchedule")}
    assert "contact the vendor" in device_taints.state(health, POLICY)[1]


def test_a_lost_gpu_that_returns_is_trusted_after_a_minute() -> None:
    health = read(GpuHealth(0), GpuReading(minor=0, is_lost=True), now=10.0)
    assert tainted(health) == {"gpu.nvidia.com/gpu-lost": ("", "NoSchedule")}
    assert tainted(read(health, WELL, now=60.0)) == tainted(health)
    assert tainted(read(health, WELL, now=70.0)) == {}


def test_a_fault_that_comes_and_goes_stays_until_it_is_gone_for_the_whole_hysteresis() -> None:
    hot = GpuReading(minor=0, throttles=frozenset({Throttle.HARDWARE_THERMAL}))
    health = GpuHealth(0)
    for second in range(0, 600, 100):
        health = read(health, hot if second % 200 == 0 else WELL, now=float(second))
        assert not gpu_health.is_fit(health, POLICY), second
    assert gpu_health.is_fit(read(health, WELL, now=520.0), POLICY)


def test_what_the_driver_asks_for_itself_counts_as_long_as_it_asks() -> None:
    asks = GpuReading(minor=0, recovery_action=RecoveryAction.DRAIN_AND_RESET)
    health = read(GpuHealth(0), asks, now=0.0)
    assert tainted(health) == {"dovetail.dev/recovery-drain-and-reset": ("", "NoSchedule")}
    assert tainted(read(health, WELL, now=10.0)) == {}


def test_every_recovery_action_and_throttle_has_a_rule() -> None:
    actions = [action for action in RecoveryAction if action is not RecoveryAction.NONE]
    assert {f"recovery-{action}" for action in actions} <= set(policy_table.DEFAULTS)
    assert {f"throttle-{throttle}" for throttle in Throttle} <= set(policy_table.DEFAULTS)


def test_an_administrators_rule_replaces_ours() -> None:
    policy = policy_table.read(
        b"xid-13: {advice: drain the GPU and reset it, effect: NoExecute, over: quiet, seconds: 5}"
    )
    health = gpu_health.after_xid(GpuHealth(0), 13, now=0.0)
    (taint,) = device_taints.taints(health, policy)
    assert taint.effect == "NoExecute"
    assert gpu_health.after_reading(health, WELL, policy, now=5.0).faults == ()


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (b"xid-13: {advice: pray}", "pray"),
        (b"xid-13: {advice: nothing to do, effects: None}", "effects"),
        (b"xid13: {advice: nothing to do}", 'unknown fault "xid13"; known: xid-NUMBER'),
        (b"- xid-13", "object"),
    ],
)
def test_a_bad_policy_is_refused_with_its_place(document: bytes, problem: str) -> None:
    with pytest.raises(policy_table.PolicyInvalid, match="health policy") as refused:
        policy_table.read(document)
    assert problem in str(refused.value)


def test_nothing_evicts_by_default() -> None:
    assert Effect.NO_EXECUTE not in {rule.effect for rule in policy_table.DEFAULTS.values()}
    assert {rule.advice for rule in policy_table.DEFAULTS.values()} == set(Advice)


@hypothesis.given(
    st.lists(
        st.tuples(st.sampled_from([13, 48, 63, 79, 94, 119, 12345]), st.floats(0, 1000)), max_size=8
    )
)
def test_after_a_reset_and_well_readings_no_fault_is_left(
    occurrences: list[tuple[int, float]],
) -> None:
    health = GpuHealth(0)
    for code, now in occurrences:
        health = gpu_health.after_xid(health, code, now=now)
    assert len(device_taints.taints(health, POLICY)) <= 1
    assert gpu_health.after_reset(health, POLICY).faults == ()

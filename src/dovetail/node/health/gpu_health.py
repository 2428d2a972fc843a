"""Concludes the health of one GPU from readings and events: a state machine without a clock of its own.

State in, state out. A fault begins with an event or a reading, and ends by its rule: after a quiet time, when
readings have not shown it for a while, or with a reset. Never taints and never writes.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dovetail.node.health import policy_table
from dovetail.node.health.policy_table import Effect, HealthPolicy, Over, Rule
from dovetail.node.health.readings import GpuReading, RecoveryAction


class Fault(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Something wrong with a GPU. Times are Unix seconds."""

    name: str  # a key of the policy table: xid-48, gpu-lost
    since: float
    last_seen: float
    count: int = 1
    detail: str = ""


class GpuHealth(msgspec.Struct, frozen=True, gc=False):
    """The faults of one GPU, by name."""

    minor: int
    faults: tuple[Fault, ...] = ()

    def fault(self, name: str) -> Fault | None:
        """The fault of this name, if the GPU has it."""
        return next((fault for fault in self.faults if fault.name == name), None)


def after_xid(health: GpuHealth, code: int, *, now: float) -> GpuHealth:
    """With one more occurrence of an Xid."""
    return _with(health, f"xid-{code}", now=now, detail=str(code), is_event=True)


def after_reset(health: GpuHealth, policy: HealthPolicy) -> GpuHealth:
    """Without the faults that a reset ends. What lasts shows up in the next reading again."""
    kept = [fault for fault in health.faults if policy.rule(fault.name).over is Over.NEVER]
    return GpuHealth(health.minor, tuple(kept))


def after_reading(
    health: GpuHealth, reading: GpuReading, policy: HealthPolicy, *, now: float
) -> GpuHealth:
    """With the faults that a reading shows; those it no longer shows end by their rules."""
    shown = dict(_shown_by(reading))
    for name, detail in shown.items():
        health = _with(health, name, now=now, detail=detail, is_event=False)
    return _expired(health, policy, now=now)


def is_fit(health: GpuHealth, policy: HealthPolicy) -> bool:
    """Whether new work may use the GPU."""
    effects = (policy.rule(fault.name).effect for fault in health.faults)
    return all(effect in (None, Effect.NONE) for effect in effects)


def worst_first(health: GpuHealth, policy: HealthPolicy) -> list[tuple[Fault, Rule]]:
    """The faults with their rules: those that keep work away first, then the newest."""
    ruled = [(fault, policy.rule(fault.name)) for fault in health.faults]
    return sorted(ruled, key=lambda pair: (_severity(pair[1]), -pair[0].last_seen, pair[0].name))


def _severity(rule: Rule) -> int:
    order = (Effect.NO_EXECUTE, Effect.NO_SCHEDULE, Effect.NONE)
    return len(order) if rule.effect is None else order.index(rule.effect)


def _shown_by(reading: GpuReading) -> Iterator[tuple[str, str]]:
    """Names and details of the faults in a reading."""
    if reading.is_lost:
        yield policy_table.LOST, ""
        return  # nothing else that is read of it means anything
    if not reading.is_monitored:
        yield policy_table.UNMONITORED, ""
    if reading.uncorrectable_ecc_errors:
        yield policy_table.UNCORRECTABLE_ECC, str(reading.uncorrectable_ecc_errors)
    if reading.has_row_remap_failed:
        yield policy_table.ROW_REMAP_FAILED, ""
    elif reading.is_row_remap_pending:
        yield policy_table.ROW_REMAP_PENDING, ""
    if reading.are_pages_pending_retirement:
        yield policy_table.PAGES_PENDING, ""
    if reading.recovery_action is not RecoveryAction.NONE:
        yield f"recovery-{reading.recovery_action.value}", ""
    if reading.fabric_fault:
        yield policy_table.FABRIC, reading.fabric_fault
    for throttle in sorted(reading.throttles):
        yield f"throttle-{throttle.value}", ""
    celsius = reading.temperature_celsius
    if celsius is not None and celsius >= policy_table.HOT_CELSIUS:
        yield policy_table.HOT, str(celsius)


def _with(health: GpuHealth, name: str, *, now: float, detail: str, is_event: bool) -> GpuHealth:
    known = health.fault(name)
    others = tuple(fault for fault in health.faults if fault.name != name)
    if known is None:
        fault = Fault(name=name, since=now, last_seen=now, detail=detail)
    else:
        count = known.count + 1 if is_event else known.count
        fault = Fault(name=name, since=known.since, last_seen=now, count=count, detail=detail)
    faults = sorted((*others, fault), key=lambda each: each.name)
    return GpuHealth(health.minor, tuple(faults))


def _expired(health: GpuHealth, policy: HealthPolicy, *, now: float) -> GpuHealth:
    kept = tuple(fault for fault in health.faults if not _is_over(fault, policy, now=now))
    return health if len(kept) == len(health.faults) else GpuHealth(health.minor, kept)


def _is_over(fault: Fault, policy: HealthPolicy, *, now: float) -> bool:
    rule = policy.rule(fault.name)
    if rule.over not in (Over.QUIET, Over.GONE):
        return False
    # A fault that was seen at this very instant lasts, even with a hysteresis of zero.
    return now > fault.last_seen and now - fault.last_seen >= rule.seconds

"""Adds quarantined devices to the reasons of pods that wait for devices. Never changes a decision."""

from __future__ import annotations

import datetime
from typing import Final

import msgspec

from dovetail.model import plan as plans
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule import refusal_summary
from dovetail.world.world import World

SHOWN: Final = 3  # pods named
ABOUT_DEVICES: Final = frozenset(
    {
        ReasonCode.IN_USE,
        ReasonCode.COUNTERS,
        ReasonCode.CAPACITY,
        ReasonCode.ALL_DEVICES,
        ReasonCode.COMBINATION,
        ReasonCode.QUEUE_LIMIT,
        ReasonCode.QUEUE_QUOTA,
    }
)


def with_quarantine_reasons(plan: plans.Plan, world: World) -> plans.Plan:
    """The plan with the quarantine as a further reason for pods that wait for devices or their queue's limit."""
    reason = _reason(world)
    if reason is None or not plan.refusals:
        return plan
    return msgspec.structs.replace(
        plan, refusals=tuple(_with_reason(refusal, reason) for refusal in plan.refusals)
    )


def _with_reason(refusal: plans.Refusal, reason: Reason) -> plans.Refusal:
    is_about = any(obstacle.reason.code in ABOUT_DEVICES for obstacle in refusal.obstacles)
    return refusal_summary.with_reason(refusal, reason) if is_about else refusal


def _reason(world: World) -> Reason | None:
    if not world.uncertain_holds:
        return None
    until: dict[str, datetime.datetime] = {}
    devices = 0
    for name, doubt in world.uncertain_holds.items():
        devices += sum(not result.admin_access for result in world.held[name].devices.results)
        until[doubt.pod] = max(doubt.until, until.get(doubt.pod, doubt.until))
    last = max(until.values()).astimezone(datetime.UTC).strftime("%H:%M:%SZ")
    pods = sorted(until)
    unnamed = f" and {len(pods) - SHOWN} more" if len(pods) > SHOWN else ""
    which = "pod" if len(pods) == 1 else "pods"
    was = "was" if len(pods) == 1 else "were"
    detail = f"{devices} {'device' if devices == 1 else 'devices'} quarantined until {last} because {which} "
    detail += f"{', '.join(pods[:SHOWN])}{unnamed} {was} removed by force"
    return Reason(code=ReasonCode.QUARANTINE, detail=detail)

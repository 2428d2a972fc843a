"""Names devices that are kept out of use for a while to pods that wait for devices. Changes words of a plan only."""

from __future__ import annotations

import datetime
from typing import Final

import msgspec

from dovetail.model import plan as plans
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule import refuse
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


def named(plan: plans.Plan, world: World) -> plans.Plan:
    """The plan in which everybody who waits for devices, or for its queue's limit, hears of the quarantine."""
    reason = _reason(world)
    if reason is None or not plan.refusals:
        return plan
    return msgspec.structs.replace(plan, refusals=tuple(_told(one, reason) for one in plan.refusals))


def _told(refusal: plans.Refusal, reason: Reason) -> plans.Refusal:
    is_about = any(one.reason.code in ABOUT_DEVICES for one in refusal.obstacles)
    return refuse.also(refusal, reason) if is_about else refusal


def _reason(world: World) -> Reason | None:
    if not world.doubts:
        return None
    until: dict[str, datetime.datetime] = {}
    devices = 0
    for name, doubt in world.doubts.items():
        devices += sum(not one.admin_access for one in world.held[name].devices.results)
        until[doubt.pod] = max(doubt.until, until.get(doubt.pod, doubt.until))
    last = max(until.values()).astimezone(datetime.UTC).strftime("%H:%M:%SZ")
    pods = sorted(until)
    more = f" and {len(pods) - SHOWN} more" if len(pods) > SHOWN else ""
    which = "pod" if len(pods) == 1 else "pods"
    was = "was" if len(pods) == 1 else "were"
    detail = f"{devices} {'device' if devices == 1 else 'devices'} quarantined until {last} because {which} "
    detail += f"{', '.join(pods[:SHOWN])}{more} {was} removed by force"
    return Reason(code=ReasonCode.QUARANTINE, detail=detail)

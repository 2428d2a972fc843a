"""Removes from a plan what cannot be carried out: unknown or repeated pods, nodes and victims that are gone.

Stands between the engine and everything that acts on its plans: whatever a plan says, the rest can be
bound, reported and written. A gang of which one placement is wrong does not start at all. Given a plan,
the pods it was asked about and the World. Never decides anything itself.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import Protocol, TypeVar

import msgspec

from dovetail.model import plan
from dovetail.ports import meter
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.schedule")


class _AboutPod(Protocol):
    @property
    def pod(self) -> plan.PodRef: ...


_Entry = TypeVar("_Entry", bound=_AboutPod)


def checked(
    decided: plan.Plan, pod_ids: Collection[str], world: World, meter_: meter.Meter
) -> plan.Plan:
    """The plan for these pods, without what it says about others, twice, or about missing objects."""
    # Only pods that the plan mentions are examined: very many may wait.
    entries: tuple[_AboutPod, ...] = (
        *decided.placements,
        *decided.nominations,
        *decided.refusals,
    )
    mentioned = {entry.pod.uid for entry in entries}
    startable = {uid for uid in mentioned if uid in pod_ids and _can_start(uid, world)}
    going = {eviction.pod.uid for eviction in decided.evictions if _can_go(eviction, world)}
    nominated = [entry for entry in decided.nominations if entry.node in world.nodes]
    checked = msgspec.structs.replace(
        decided,
        # Each call takes its pods out of `startable`, so placements win over nominations and those
        # over refusals.
        placements=_once(_sound_placements(decided, startable, world), startable),
        nominations=_once(nominated, startable),
        refusals=_once(decided.refusals, startable),
        evictions=_once(decided.evictions, going),
    )
    total = _count(decided)
    removed = total - _count(checked)
    if not removed:
        return decided
    meter_.count("dovetail_plan_errors_total", removed)
    LOG.error("plan.not_possible: entries removed", extra={"left_out": removed, "of": total})
    return checked


def _sound_placements(
    decided: plan.Plan, startable: Collection[str], world: World
) -> list[plan.Placement]:
    """Placements that can be written; no part of a gang starts where the rest of it cannot."""
    sound = [entry for entry in decided.placements if _is_sound(entry, startable, world)]
    if len(sound) == len(decided.placements):
        return sound
    unsound_gangs = {
        entry.gang
        for entry in decided.placements
        if entry.gang is not None and not _is_sound(entry, startable, world)
    }
    return [entry for entry in sound if entry.gang not in unsound_gangs]


def _count(decided: plan.Plan) -> int:
    about_waiting = len(decided.placements) + len(decided.nominations) + len(decided.refusals)
    return about_waiting + len(decided.evictions)


def _can_start(uid: str, world: World) -> bool:
    pod = world.pods.get(uid)
    if pod is None or pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
        return False
    return uid not in world.assumed


def _is_sound(placement: plan.Placement, startable: Collection[str], world: World) -> bool:
    return placement.pod.uid in startable and placement.node in world.nodes


def _can_go(eviction: plan.Eviction, world: World) -> bool:
    pod = world.pods.get(eviction.pod.uid)
    return pod is not None and bool(pod.spec.node_name)


def _once(entries: Iterable[_Entry], open_uids: set[str]) -> tuple[_Entry, ...]:
    """The first entry about each pod that is still open; the pod is closed then."""
    first: list[_Entry] = []
    for entry in entries:
        if entry.pod.uid in open_uids:
            open_uids.discard(entry.pod.uid)
            first.append(entry)
    return tuple(first)

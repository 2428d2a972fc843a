"""What of a plan may be carried out: each pod that was asked about once, on a node that is there, with its whole gang.

Stands between the engine and all that acts on its answers: whatever a plan says, what is left of it can be started,
told and written. Given a plan, the pods it was asked about and the World. Never decides anything itself.
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


_Said = TypeVar("_Said", bound=_AboutPod)


def vetted(decided: plan.Plan, asked: Collection[str], world: World, meter_: meter.Meter) -> plan.Plan:
    """The plan without what it cannot mean: other pods, a pod twice, nodes and victims that are not there."""
    spoken = {one.pod.uid for one in decided.placements}
    spoken.update(one.pod.uid for one in decided.nominations)
    spoken.update(one.pod.uid for one in decided.refusals)  # of very many that wait a plan may speak of few
    open_ = {uid for uid in spoken if uid in asked and _can_start(uid, world)}
    unsound = {
        one.gang for one in decided.placements if one.gang is not None and not _is_sound(one, open_, world)
    }  # no part of a gang starts where the rest of it cannot
    starting = [one for one in decided.placements if one.gang not in unsound and _is_sound(one, open_, world)]
    placements = _once(starting, open_)
    nominated = [one for one in decided.nominations if one.node in world.nodes]
    nominations = _once(nominated, open_)
    refusals = _once(decided.refusals, open_)
    going = {one.pod.uid for one in decided.evictions if _can_go(one, world)}
    evictions = _once(decided.evictions, going)
    kept = len(placements) + len(nominations) + len(refusals) + len(evictions)
    said = len(decided.placements) + len(decided.nominations) + len(decided.refusals) + len(decided.evictions)
    if kept == said:
        return decided
    meter_.count("dovetail_plan_errors_total", said - kept)
    LOG.error("a plan says what cannot be carried out", extra={"left_out": said - kept, "of": said})
    return msgspec.structs.replace(
        decided, placements=placements, nominations=nominations, refusals=refusals, evictions=evictions
    )


def _can_start(uid: str, world: World) -> bool:
    pod = world.pods.get(uid)
    if pod is None or pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
        return False
    return uid not in world.assumed


def _is_sound(placement: plan.Placement, asked: Collection[str], world: World) -> bool:
    return placement.pod.uid in asked and placement.node in world.nodes


def _can_go(eviction: plan.Eviction, world: World) -> bool:
    pod = world.pods.get(eviction.pod.uid)
    return pod is not None and bool(pod.spec.node_name)


def _once(said: Iterable[_Said], open_: set[str]) -> tuple[_Said, ...]:
    """The first word about each pod of which nothing was said before; it is closed then."""
    kept: list[_Said] = []
    for one in said:
        if one.pod.uid in open_:
            open_.discard(one.pod.uid)
            kept.append(one)
    return tuple(kept)

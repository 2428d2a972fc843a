"""Decides which work is idle: whether its devices stayed under a threshold for long enough, and what follows from it.

Given samples of utilisation as they come. Only evidence counts: a device nobody measures, or measures no more, is not
idle, and a hole in the samples begins the time anew. One busy device makes a pod busy, one busy pod its gang. Whatever
is idle is never ended for that alone: it only comes first where somebody has to yield. Never asks for samples.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Final, NamedTuple

from dovetail.model import pods, queues
from dovetail.model.idling import Device, IdleState, Sample, Stage
from dovetail.schedule.gangs.jobs import Job, State
from dovetail.world import ledger
from dovetail.world.world import World

MAX_GAP_SECONDS: Final = 300.0  # between two samples, and since the last one


class Track(NamedTuple):
    """What samples say of one device: idle since when, if it is, and when it was last measured."""

    since: datetime.datetime | None = None
    seen: datetime.datetime | None = None


def followed(track: Track, samples: Iterable[Sample], *, threshold: float) -> Track:
    """What is known after more samples; those that are not newer than what was seen say nothing new."""
    since, seen = track
    for one in sorted(samples):
        if seen is not None and one.at <= seen:
            continue
        has_hole = seen is None or (one.at - seen).total_seconds() > MAX_GAP_SECONDS
        if not one.percent < threshold:  # what is no number is no evidence either
            since = None
        elif since is None or has_hole:
            since = one.at
        seen = one.at
    return Track(since, seen)


def together(tracks: Iterable[Track], now: datetime.datetime) -> datetime.datetime | None:
    """Since when all of these are idle; None if one is not, or nobody can say."""
    moments = []
    for one in tracks:
        if one.since is None or one.seen is None or (now - one.seen).total_seconds() > MAX_GAP_SECONDS:
            return None
        moments.append(one.since)
    return max(moments, default=None)


def advanced(
    state: IdleState | None, since: datetime.datetime | None, *, policy: queues.IdlePolicy, now: datetime.datetime
) -> IdleState | None:
    """The state of a pod that is idle since a moment: first warned, and preemptible a while after that."""
    if since is None or (now - since).total_seconds() < policy.window_seconds:
        return None
    if state is None or state.since != since:
        return IdleState(since=since, warned=now, stage=Stage.WARNED)
    is_over = (now - state.warned).total_seconds() >= policy.grace_seconds
    return IdleState(since=since, warned=state.warned, stage=Stage.PREEMPTIBLE if is_over else Stage.WARNED)


def devices_of(world: World, pod: pods.Pod) -> tuple[Device, ...]:
    """The GPUs a pod holds through claims. Of GPUs a device plugin counts nobody knows which they are."""
    found: dict[Device, None] = {}
    for key in world.claims_used(pod):
        allocation = world.allocation(key)
        for one in allocation.devices.results if allocation is not None else ():
            if not one.admin_access and ledger.publishes_gpus(one.driver):
                found[Device(one.driver, one.pool, one.device)] = None
    return tuple(found)


def since(world: World, job: Job) -> datetime.datetime | None:
    """Since when a job may be made to yield because all it holds is idle; None if it may not."""
    if not world.idle:
        return None
    moments = []
    for id_, state in job.state.items():
        if state is not State.ACTIVE:
            continue
        known = world.idle.get(id_)
        if known is not None and known.stage is Stage.PREEMPTIBLE:
            moments.append(known.since)
        elif devices_of(world, job.pods[id_]):
            return None
    return max(moments, default=None)

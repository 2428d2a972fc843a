"""Decides which work is idle: whether its devices stayed below a utilisation threshold for long enough.

Given samples of utilisation as they come. Only evidence counts: a device without samples, or without recent ones,
is not idle, and a gap in the samples restarts the time. One busy device makes its pod busy, one busy pod its gang.
Idle work is never evicted for that alone; it is only the first to go when pods have to be evicted. Never fetches
samples.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Final, NamedTuple

from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import queues
from dovetail.model.idle import Device, IdleStage, IdleState, Sample
from dovetail.schedule.gang.jobs import Job, State
from dovetail.world.devices import gpu_ledger
from dovetail.world.world import World

MAX_GAP_SECONDS: Final = 300.0  # between two samples, and since the last one
FRESH_SECONDS: Final = 150.0  # work whose last sample is older is not evicted for being idle


class Track(NamedTuple):
    """What samples say of one device: since when it is idle, if it is, and when it was last measured."""

    since: datetime.datetime | None = None
    seen: datetime.datetime | None = None


def updated(track: Track, samples: Iterable[Sample], *, threshold: float) -> Track:
    """The track after more samples; samples not newer than the last one add nothing."""
    since, last_sample = track
    for sample in sorted(samples):
        if last_sample is not None and sample.at <= last_sample:
            continue
        has_gap = last_sample is None or (sample.at - last_sample).total_seconds() > MAX_GAP_SECONDS
        if not sample.percent < threshold:  # written so that NaN counts as busy
            since = None
        elif since is None or has_gap:
            since = sample.at
        last_sample = sample.at
    return Track(since, last_sample)


def all_idle_since(tracks: Iterable[Track], now: datetime.datetime) -> datetime.datetime | None:
    """Since when all of these devices are idle; None if one is busy or not measured."""
    idle_times = []
    for track in tracks:
        if track.since is None or track.seen is None:
            return None
        if (now - track.seen).total_seconds() > MAX_GAP_SECONDS:
            return None
        idle_times.append(track.since)
    return max(idle_times, default=None)


def measured_until(tracks: Iterable[Track], now: datetime.datetime) -> datetime.datetime:
    """Up to when all of these devices were measured; never later than now."""
    return min((track.seen for track in tracks if track.seen is not None), default=now)


def next_state(
    state: IdleState | None,
    since: datetime.datetime | None,
    *,
    policy: queues.IdlePolicy,
    now: datetime.datetime,
    measured: datetime.datetime | None = None,
) -> IdleState | None:
    """The next state of a pod that has been idle since then: first warned, after a grace period preemptible.

    `measured` is up to when there are samples. Time without samples brings no pod nearer to eviction.
    """
    until = now if measured is None else min(measured, now)
    if since is None or (until - since).total_seconds() < policy.window_seconds:
        return None
    if state is None or state.since != since:
        return IdleState(since=since, warned=now, stage=IdleStage.WARNED)
    is_over = (until - state.warned).total_seconds() >= policy.grace_seconds
    is_fresh = (now - until).total_seconds() <= FRESH_SECONDS
    stage = IdleStage.PREEMPTIBLE if is_over and is_fresh else IdleStage.WARNED
    return IdleState(since=since, warned=state.warned, stage=stage)


def devices_of(world: World, pod: pods.Pod) -> tuple[Device, ...]:
    """The GPUs a pod holds through claims. A device plugin's GPUs are only counted: which ones they are is unknown."""
    devices: dict[Device, None] = {}
    for key in world.claims_used(pod):
        allocation = world.allocation(key)
        if allocation is None:
            continue
        for result in allocation.devices.results:
            if not result.admin_access and gpu_ledger.publishes_gpus(result.driver):
                devices[Device(result.driver, result.pool, result.device)] = None
    return tuple(devices)


def idle_since(world: World, job: Job) -> datetime.datetime | None:
    """Since when a job may be evicted because all it holds is idle; None if it may not."""
    if not world.idle:
        return None
    idle_times = []
    for pod_id, state in job.state.items():
        if state is not State.ACTIVE:
            continue
        idle = world.idle.get(pod_id)
        if idle is not None and idle.stage is IdleStage.PREEMPTIBLE:
            idle_times.append(idle.since)
        elif devices_of(world, job.pods[pod_id]):
            return None
    return max(idle_times, default=None)

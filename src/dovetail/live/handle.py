"""What the parts of one running scheduler share, in the manner of kube-scheduler's framework.Handle.

Holds the cluster state, the clock, the scheduling queue and the places to report to. Built once per
scheduler, before any part that uses it. Never decides and never writes.
"""

from __future__ import annotations

from typing import NamedTuple

from dovetail.live import supervised_tasks
from dovetail.live.cycle import settings as live_settings
from dovetail.live.informer import informer
from dovetail.live.queue import requeue, scheduling_queue
from dovetail.live.report import recorder, scheduler_metrics
from dovetail.ports import clock as clocks
from dovetail.ports import meter as meters
from dovetail.world.world import World


class Handle(NamedTuple):
    """Shared state and services; each part keeps the fields it needs."""

    picture: informer.Informer  # the World, and the way in for the answers to our own writes
    clock: clocks.Clock
    meter: meters.Meter
    settings: live_settings.Settings
    queue: scheduling_queue.SchedulingQueue
    requeuer: requeue.Requeuer  # wakes the scheduling cycle and parked pods
    recorder: recorder.Recorder  # events and conditions for pod owners
    metrics: scheduler_metrics.SchedulerMetrics
    background: supervised_tasks.Background  # writes under way

    @property
    def world(self) -> World:
        """The cluster as last seen, with our own assumptions."""
        return self.picture.world

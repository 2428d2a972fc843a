"""Measures how busy the GPUs of running pods are, in queues with an idle policy, and marks idle pods in the World.

Given the World and a source of device metrics. A pod whose GPUs stay below the queue's threshold for the policy's
window is warned and, after a grace period, marked as evictable; an event on the pod reports each step, and when
it is busy again. Without metrics no pod is idle. Never chooses victims, never evicts.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from dovetail.errors import DovetailError
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import queues
from dovetail.model import idle
from dovetail.model.idle import Device, IdleStage, IdleState
from dovetail.model.queue import queue_access
from dovetail.ports import clock as clocks
from dovetail.ports import device_metrics, meter
from dovetail.schedule import pod_order
from dovetail.schedule.evict import idle_work
from dovetail.schedule.evict.idle_work import Track
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.idle")
EVERY_SECONDS: Final = 30.0
PORTION: Final = 200  # pods processed before other tasks get a turn
MOST_LINEAGE: Final = 64  # levels of queues; bounds the walk where parents form a cycle
WARNING: Final = "Warning"
NORMAL: Final = "Normal"
IDLE: Final = "IdleDevices"
YIELDS: Final = "IdleMayYield"
BUSY: Final = "BusyAgain"
UNKNOWN: Final = "IdleUnknown"


class RecordEvent(Protocol):
    """Records an event on a pod."""

    def __call__(self, pod: pods.Pod, *, reason: str, note: str, kind: str = NORMAL) -> None:
        """Returns at once."""
        ...


class _Watched(NamedTuple):
    pod: pods.Pod
    queue: str
    policy: queues.IdlePolicy
    devices: tuple[Device, ...]


class IdleWatch:
    """Device measurements, and the idle state of each pod."""

    def __init__(
        self,
        world: World,
        measured: device_metrics.Metrics,
        *,
        clock: clocks.Clock,
        record_event: RecordEvent,
        changed: Callable[[], None] = lambda: None,
        meter_: meter.Meter | None = None,
        every_seconds: float = EVERY_SECONDS,
    ) -> None:
        self._world = world
        self._metrics = measured
        self._clock = clock
        self._record_event = record_event
        self._changed = changed  # called when a pod became evictable, or no longer is
        self._meter = meter_ or meter.NoMeter()
        self._every_seconds = every_seconds
        self._tracks: dict[tuple[Device, float], Track] = {}

    async def run(self) -> None:
        """Measures periodically, until cancelled."""
        while True:
            await self.measure()
            await self._clock.sleep(self._every_seconds)

    async def measure(self) -> None:
        """Reads the metrics once and updates which pods are idle."""
        watched = {pod_id: watched_pod async for pod_id, watched_pod in self._watched()}
        if not watched and not self._world.idle:
            self._tracks.clear()
            return

        devices: dict[Device, None] = {}
        for watched_pod in watched.values():
            devices |= dict.fromkeys(watched_pod.devices)
        try:
            samples = await self._metrics.utilisation(devices) if devices else {}
        except (TimeoutError, DovetailError, OSError) as error:
            LOG.warning("idle.metrics.unavailable", extra={"why": str(error)})
            samples = {}

        self._follow(watched, samples)
        self._update(watched)

    async def _watched(self) -> AsyncIterator[tuple[str, _Watched]]:
        """Running pods with GPUs in queues with an idle policy, a portion at a time."""
        world = self._world
        if not any(queue.spec.idle is not None for queue in world.queues.values()):
            return

        doors = queue_access.QueueAccess(world.queues, world.namespaces)
        for number, pod_id in enumerate([*world.running()]):
            if number % PORTION == PORTION - 1:
                await asyncio.sleep(0)

            pod = world.pods.get(pod_id)
            if pod is None or not _has_claims(pod):
                continue
            watched_pod = self._watched_pod(pod_id, pod, doors)
            if watched_pod is not None:
                yield pod_id, watched_pod

    def _watched_pod(
        self, pod_id: str, pod: pods.Pod, doors: queue_access.QueueAccess
    ) -> _Watched | None:
        member = self._world.gangs.of(pod_id)
        if member is None:
            return None

        gang = self._world.gangs.definition(member.gang)
        resolved = doors.resolve(gang.labels, gang.metadata.namespace, named=gang.queue)
        queue = resolved.requested_queue or ""
        policy = self._policy(queue)
        if policy is None:
            return None

        devices = idle_work.devices_of(self._world, pod)
        if not devices or pod.status.start_time is None:
            return None
        return _Watched(pod, queue, policy, devices)

    def _policy(self, name: str) -> queues.IdlePolicy | None:
        """The queue's own policy, or its nearest ancestor's."""
        for _ in range(MOST_LINEAGE):
            queue = self._world.queues.get(name)
            if queue is None:
                return None
            if queue.spec.idle is not None:
                return queue.spec.idle
            name = queue.spec.parent
        return None

    def _follow(
        self, watched: Mapping[str, _Watched], samples: Mapping[Device, Sequence[idle.Sample]]
    ) -> None:
        """Extends each device's track by its new samples; drops tracks no pod needs."""
        tracks: dict[tuple[Device, float], Track] = {}
        for watched_pod in watched.values():
            threshold = float(watched_pod.policy.threshold_percent)
            for device in watched_pod.devices:
                key = (device, threshold)
                if key in tracks:
                    continue
                before = self._tracks.get(key, Track())
                tracks[key] = idle_work.updated(
                    before, samples.get(device, ()), threshold=threshold
                )
        self._tracks = tracks

    def _update(self, watched: Mapping[str, _Watched]) -> None:
        """Writes each pod's idle state into the World; reports every change of stage."""
        now = self._clock.now()
        is_changed = False
        for pod_id in [pod_id for pod_id in self._world.idle if pod_id not in watched]:
            del self._world.idle[pod_id]
            is_changed = True

        for pod_id, watched_pod in watched.items():
            if pod_id not in self._world.pods:
                continue  # deleted while the metrics were read

            before = self._world.idle.get(pod_id)
            since = self._since(watched_pod, now)
            measured = idle_work.measured_until(self._tracks_of(watched_pod), now)
            after = idle_work.next_state(
                before, since, policy=watched_pod.policy, now=now, measured=measured
            )
            if after is None:
                self._world.idle.pop(pod_id, None)
            else:
                self._world.idle[pod_id] = after

            if _stage(before) is not _stage(after):
                is_changed = True
                self._report(watched_pod, after, now)

        self._count(watched)
        if is_changed:
            self._changed()

    def _count(self, watched: Mapping[str, _Watched]) -> None:
        for stage in IdleStage:
            idle_pods = [
                watched[pod_id]
                for pod_id, state in self._world.idle.items()
                if state.stage is stage and pod_id in watched
            ]
            held = {device for watched_pod in idle_pods for device in watched_pod.devices}
            self._meter.gauge("dovetail_idle_pods", len(idle_pods), stage=stage.value)
            self._meter.gauge("dovetail_idle_devices", len(held), stage=stage.value)

    def _tracks_of(self, watched_pod: _Watched) -> list[Track]:
        threshold = float(watched_pod.policy.threshold_percent)
        return [self._tracks[device, threshold] for device in watched_pod.devices]

    def _since(self, watched_pod: _Watched, now: datetime.datetime) -> datetime.datetime | None:
        """Since when all its devices are idle; what a device did before the pod started does not count."""
        since = idle_work.all_idle_since(self._tracks_of(watched_pod), now)
        if since is None:
            return None
        return max(since, pod_order.instant(watched_pod.pod.status.start_time))

    def _report(
        self, watched_pod: _Watched, after: IdleState | None, now: datetime.datetime
    ) -> None:
        pod, policy = watched_pod.pod, watched_pod.policy
        if after is None and self._is_unmeasured(watched_pod, now):
            note = "its GPUs are not measured any more; the idle warning no longer applies"
            self._record_event(pod, reason=UNKNOWN, note=note)
            return
        if after is None:
            note = "its GPUs are in use again; the idle warning no longer applies"
            self._record_event(pod, reason=BUSY, note=note)
            return

        minutes = (now - after.since).total_seconds() / 60
        note = (
            f"its {len(watched_pod.devices)} GPUs stayed under {policy.threshold_percent} % "
            f"for {minutes:.0f} min"
        )
        if after.stage is IdleStage.WARNED:
            grace = policy.grace_seconds / 60
            note += f"; in {grace:.0f} min it may be evicted if other pods wait for them"
            note += f" (queue {watched_pod.queue})"
            self._record_event(pod, reason=IDLE, note=note, kind=WARNING)
        else:
            note += "; it is evicted first if other pods wait for them"
            self._record_event(pod, reason=YIELDS, note=note, kind=WARNING)

    def _is_unmeasured(self, watched_pod: _Watched, now: datetime.datetime) -> bool:
        for track in self._tracks_of(watched_pod):
            if track.seen is None:
                return True
            if (now - track.seen).total_seconds() > idle_work.MAX_GAP_SECONDS:
                return True
        return False


def _has_claims(pod: pods.Pod) -> bool:
    has_extended_claim = pod.status.extended_resource_claim_status is not None
    return bool(pod.spec.resource_claims) or has_extended_claim


def _stage(state: IdleState | None) -> IdleStage | None:
    return state.stage if state is not None else None

"""Follows how busy the devices of running pods are, where their queue asks for it, and notes in the World who is idle.

Given a picture and somebody who measures. A pod whose devices stay under the queue's threshold for its window is
warned, and after a grace noted as one that may be made to yield; its owner is told each time, also when it is busy
again. Where nobody measures nobody is idle. Never decides who yields, never ends anything.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from dovetail.errors import DovetailError
from dovetail.model import idling, pods, queues, queueuse
from dovetail.model.idling import Device, IdleState, Stage
from dovetail.ports import clock as clocks
from dovetail.ports import metrics
from dovetail.schedule import order
from dovetail.schedule.yielding import idleness
from dovetail.schedule.yielding.idleness import Track
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.idle")
EVERY_SECONDS: Final = 30.0
PORTION: Final = 200  # pods looked at without letting others go on
MOST_LINEAGE: Final = 64  # queues above one another; a circle is somebody else's problem
WARNING: Final = "Warning"
NORMAL: Final = "Normal"
IDLE: Final = "IdleDevices"
YIELDS: Final = "IdleMayYield"
BUSY: Final = "BusyAgain"


class Tell(Protocol):
    """Tells a pod's owner something, as an event."""

    def __call__(self, pod: pods.Pod, *, reason: str, note: str, kind: str = NORMAL) -> None:
        """Never waits."""
        ...


class _Watched(NamedTuple):
    pod: pods.Pod
    queue: str
    policy: queues.IdlePolicy
    devices: tuple[Device, ...]


class Idle:
    """What was measured, and who was told what."""

    def __init__(
        self,
        world: World,
        measured: metrics.Metrics,
        *,
        clock: clocks.Clock,
        tell: Tell,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._world = world
        self._metrics = measured
        self._clock = clock
        self._tell = tell
        self._changed = changed  # somebody may be made to yield from now on, or no longer
        self._tracks: dict[tuple[Device, float], Track] = {}

    async def run(self) -> None:
        """Looks now and then, until cancelled."""
        while True:
            await self.look()
            await self._clock.sleep(EVERY_SECONDS)

    async def look(self) -> None:
        """Takes in what was measured, and notes who is idle."""
        watched = {id_: one async for id_, one in self._watched()}
        if not watched and not self._world.idle:
            self._tracks.clear()
            return
        wanted = dict.fromkeys(device for one in watched.values() for device in one.devices)
        try:
            samples = await self._metrics.utilisation(wanted) if wanted else {}
        except (TimeoutError, DovetailError, OSError) as error:
            LOG.warning("nobody could say how busy devices are", extra={"why": str(error)})
            samples = {}
        self._follow(watched, samples)
        self._note(watched)

    async def _watched(self) -> AsyncIterator[tuple[str, _Watched]]:
        """Pods with GPUs of their own in queues that ask for it, a portion at a time."""
        world = self._world
        if not any(queue.spec.idle is not None for queue in world.queues.values()):
            return
        doors = queueuse.Doors(world.queues, world.namespaces)
        for number, id_ in enumerate([*world.running()]):
            if number % PORTION == PORTION - 1:
                await asyncio.sleep(0)
            pod = world.pods.get(id_)
            if pod is None or (not pod.spec.resource_claims and pod.status.extended_resource_claim_status is None):
                continue
            member = world.gangs.of(id_)
            if member is None:
                continue
            gang = world.gangs.known(member.gang)
            queue = doors.resolve(gang.labels, gang.metadata.namespace, named=gang.queue).named or ""
            policy = self._policy(queue)
            devices = idleness.devices_of(world, pod) if policy is not None else ()
            if policy is not None and devices and pod.status.start_time is not None:
                yield id_, _Watched(pod, queue, policy, devices)

    def _policy(self, name: str) -> queues.IdlePolicy | None:
        """The queue's own, or the nearest above it."""
        for _ in range(MOST_LINEAGE):
            queue = self._world.queues.get(name)
            if queue is None:
                return None
            if queue.spec.idle is not None:
                return queue.spec.idle
            name = queue.spec.parent
        return None

    def _follow(self, watched: Mapping[str, _Watched], samples: Mapping[Device, Sequence[idling.Sample]]) -> None:
        kept: dict[tuple[Device, float], Track] = {}
        for one in watched.values():
            threshold = float(one.policy.threshold_percent)
            for device in one.devices:
                key = (device, threshold)
                if key not in kept:
                    before = self._tracks.get(key, Track())
                    kept[key] = idleness.followed(before, samples.get(device, ()), threshold=threshold)
        self._tracks = kept

    def _note(self, watched: Mapping[str, _Watched]) -> None:
        now = self._clock.now()
        is_news = False
        for id_ in [id_ for id_ in self._world.idle if id_ not in watched]:
            del self._world.idle[id_]
            is_news = True
        for id_, one in watched.items():
            if id_ not in self._world.pods:
                continue  # gone while somebody was asked
            before = self._world.idle.get(id_)
            after = idleness.advanced(before, self._since(one, now), policy=one.policy, now=now)
            if after is None:
                self._world.idle.pop(id_, None)
            else:
                self._world.idle[id_] = after
            if _stage(before) is not _stage(after):
                is_news = True
                self._told(one, before, after, now)
        if is_news:
            self._changed()

    def _since(self, one: _Watched, now: datetime.datetime) -> datetime.datetime | None:
        """What a device did before the pod began is not the pod's."""
        threshold = float(one.policy.threshold_percent)
        found = idleness.together((self._tracks[device, threshold] for device in one.devices), now)
        return None if found is None else max(found, order.instant(one.pod.status.start_time))

    def _told(self, one: _Watched, before: IdleState | None, after: IdleState | None, now: datetime.datetime) -> None:
        if after is None:
            self._tell(one.pod, reason=BUSY, note="its GPUs are in use again: nothing follows from the warning")
            return
        policy = one.policy
        minutes = (now - after.since).total_seconds() / 60
        note = f"its {len(one.devices)} GPUs stayed under {policy.threshold_percent} % for {minutes:.0f} min"
        if after.stage is Stage.WARNED:
            note += f"; in {policy.grace_seconds / 60:.0f} min it may be made to yield if others wait for them"
            self._tell(one.pod, reason=IDLE, note=f"{note} (queue {one.queue})", kind=WARNING)
        else:
            self._tell(one.pod, reason=YIELDS, note=f"{note}; it yields first if others wait for them", kind=WARNING)


def _stage(state: IdleState | None) -> Stage | None:
    return state.stage if state is not None else None

"""The recorder of history: a state machine from events of the World to records. Events in, records out.

Given a World that events have just changed, what the store has open, and the time. Each thing that can change by itself
is a subject: a pool, a node, a claim, a pod. After an event the subjects it concerns are looked at again; what is
different from what is open ends, and what is new begins. What ended unseen, while the recorder was away, ends at the
last time it was known to be true, and the time between is a gap. Never reads a clock, never stores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from dovetail import timestamps
from dovetail.history import gpu_allocations, gpu_assets
from dovetail.history.waiting_gpus import WaitingGpus
from dovetail.kubetypes import registry
from dovetail.kubetypes.core import namespaces, nodes, pods
from dovetail.kubetypes.custom import queues
from dovetail.kubetypes.resource import claims, device_classes, slices
from dovetail.model.accounting.records import (
    Allocation,
    Asset,
    Decision,
    Gap,
    GapSource,
    Millis,
    Owner,
    Records,
    Waiting,
)
from dovetail.model.queue import queue_access
from dovetail.world import events
from dovetail.world.devices import gpu_ledger
from dovetail.world.devices.device_pools import PoolKey
from dovetail.world.events import ObjectKey
from dovetail.world.world import World

# What the recorder watches; queues where they are installed.
KINDS: Final = (
    registry.NAMESPACE,
    registry.NODE,
    registry.SLICE,
    registry.DEVICE_CLASS,
    registry.CLAIM,
    registry.TEMPLATE,
    registry.POD,
)
STARTED: Final = "started"
YIELDED: Final = "yielded"
AWAY: Final = "the recorder was not running"
SCHEDULED: Final = "PodScheduled"
DISRUPTED: Final = "DisruptionTarget"

Subject = tuple[str, object]
Interval = Asset | Allocation | Waiting


class Times(NamedTuple):
    """When something happened that was just seen: between the last time all was known, and now."""

    known_until: Millis
    now: Millis

    def begun(self, stated: Millis | None) -> Millis:
        """When something new began: when its object says, if that is possible."""
        return self.now if stated is None else min(max(stated, self.known_until), self.now)


class Recorder:
    """What is open, by subject. Call `resume` once the World is complete, then `observe` for each event."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ledger = gpu_ledger.Ledger()
        self._waiting_gpus = WaitingGpus(world)
        self._access: queue_access.QueueAccess | None = None
        self._behind: dict[str, str] | None = None
        self._open: dict[Subject, dict[str, Interval]] = {}
        self._restored: dict[tuple[type, str], Interval] = {}
        self._last_start: dict[str, Millis] = {}  # of what began and ended at this time
        self._pool_of_slice: dict[str, PoolKey] = {}
        self._pools_of_node: dict[str, set[PoolKey]] = {}
        self._counting_pods: dict[str, set[str]] = {}  # node -> pods that hold counted GPUs
        self._guessed: dict[PoolKey, set[ObjectKey]] = {}  # claims of devices that were unpublished
        self._yielding: set[str] = set()
        self._times = Times(0, 0)
        self._draft = _Draft()

    # After a start

    def resume(self, opened: Records, *, watched_until: Millis | None, now: Millis) -> Records:
        """Compares what the store has open with the complete World. Without a past, history begins now."""
        known_until = now if watched_until is None else min(watched_until, now)
        self._times = Times(known_until, now)
        for kind, intervals in (
            (Asset, opened.assets),
            (Allocation, opened.allocations),
            (Waiting, opened.waiting),
        ):
            for interval in intervals:
                self._restored[kind, _id_of(interval)] = interval
        is_new = watched_until is None
        known_pods = {interval.owner.pod_uid for interval in opened.allocations}
        for subject in self._all_subjects():
            self._look_at(subject)
        if not is_new:
            self._note_missed_starts(known_pods)
        for interval in self._restored.values():
            self._draft.add(_ended(interval, max(known_until, interval.start)))
        self._restored.clear()
        if not is_new and now > known_until:
            self._draft.gaps.append(Gap(GapSource.API, known_until, now, AWAY))
        return self._draft.take()

    def _all_subjects(self) -> Iterator[Subject]:
        world = self._world
        for name in world.nodes:
            yield ("node", name)
        for pool in list(dict.fromkeys(self._pool_of_slice.values())):
            yield ("pool", pool)
        for key in world.claims:
            yield ("claim", key)
        for pod_id in world.pods:
            yield ("pod", pod_id)

    def _note_missed_starts(self, known_pods: set[str]) -> None:
        """Pods that were bound while the recorder was away, by what their condition says."""
        for allocation in self._draft.allocations:
            pod = self._world.pods.get(allocation.owner.pod_uid)
            if allocation.end is None and pod is not None and pod.metadata.uid not in known_pods:
                known_pods.add(pod.metadata.uid)
                self._note_start(pod)

    # Events

    def prime(self, event: events.Event) -> None:
        """An event before `resume`: the World keeps all but the names of slices."""
        if isinstance(event.object, slices.ResourceSlice):
            list(self._of_slice(event.object, is_there=isinstance(event, events.Changed)))

    def observe(self, event: events.Event, *, times: Times) -> Records:
        """The records of one event, which the World has applied already."""
        if times.known_until > self._times.known_until:
            self._last_start.clear()
        self._times = times
        is_there = isinstance(event, events.Changed)
        for subject in list(dict.fromkeys(self._concerned(event.object, is_there=is_there))):
            self._look_at(subject)
        if isinstance(event.object, pods.Pod):
            self._note_yield(event.object, is_there=is_there)
        return self._draft.take()

    def note_gap(self, times: Times, why: str) -> Records:
        """The watch was interrupted for the time between."""
        return Records(gaps=(Gap(GapSource.API, times.known_until, times.now, why),))

    def _concerned(self, changed: Any, *, is_there: bool) -> Iterator[Subject]:
        match changed:
            case pods.Pod():
                pod_id = events.pod_id(changed)
                yield ("pod", pod_id)
                yield from (("claim", key) for key in self._world.claims_used(changed))
            case claims.ResourceClaim():
                yield ("claim", events.key_of(changed))
            case slices.ResourceSlice():
                yield from self._of_slice(changed, is_there=is_there)
            case nodes.Node():
                name = changed.metadata.name
                yield ("node", name)
                yield from (("pool", pool) for pool in self._pools_of_node.get(name, ()))
                yield from (("pod", pod_id) for pod_id in self._counting_pods.get(name, ()))
            case namespaces.Namespace() | queues.Queue():
                self._access = None
            case device_classes.DeviceClass():
                self._behind = None
            case _:
                pass

    def _of_slice(self, slice_: slices.ResourceSlice, *, is_there: bool) -> Iterator[Subject]:
        name = slice_.metadata.name
        before = self._pool_of_slice.pop(name, None)
        pool = before
        if is_there:
            pool = (slice_.spec.driver, slice_.spec.pool.name)
            self._pool_of_slice[name] = pool
        for each in {before, pool} - {None}:
            assert each is not None
            yield ("pool", each)
            yield from (("claim", key) for key in self._guessed.pop(each, ()))

    # Subjects

    def _look_at(self, subject: Subject) -> None:
        match subject:
            case ("node", str(name)):
                node = self._world.nodes.get(name)
                wanted = {each.asset: each for each in gpu_assets.counted(node)} if node else {}
                self._settle(subject, wanted, lambda _: None)
            case ("pool", pool):
                self._look_at_pool(subject, pool)  # type: ignore[arg-type]
            case ("claim", key):
                self._look_at_claim(subject, key)  # type: ignore[arg-type]
            case ("pod", str(pod_id)):
                self._look_at_pod(subject, pod_id)
            case _:
                raise AssertionError(subject)

    def _look_at_pool(self, subject: Subject, pool: PoolKey) -> None:
        published, expected = self._world.slice_counts(pool)
        if 0 < published < expected:
            return  # its driver is writing it
        devices = self._world.devices_in(pool)
        wanted: dict[str, Asset] = {}
        if devices is not None and len(devices):
            name = devices.origins[0].node_name or ""
            if name:
                self._pools_of_node.setdefault(name, set()).add(pool)
            node = self._world.nodes.get(name)
            wanted = {each.asset: each for each in gpu_assets.of_pool(pool, devices, node)}
        self._settle(subject, wanted, lambda _: None)

    def _look_at_claim(self, subject: Subject, key: ObjectKey) -> None:
        claim = self._world.claims.get(key)
        wanted: dict[str, Allocation] = {}
        if claim is not None:
            found = gpu_allocations.of_claim(self._world, self._ledger, claim, self._owner_of)
            for allocation, is_published in found:
                if not is_published:
                    self._note_guess(claim)
                    allocation = self._as_before(subject, allocation)
                wanted[allocation.allocation] = allocation
        self._settle(subject, wanted, self._allocated_at)

    def _note_guess(self, claim: claims.ResourceClaim) -> None:
        assert claim.status.allocation is not None
        for result in claim.status.allocation.devices.results:
            pool = (result.driver, result.pool)
            self._guessed.setdefault(pool, set()).add(events.key_of(claim))

    def _as_before(self, subject: Subject, allocation: Allocation) -> Allocation:
        """The allocation with the price it had while its device was published: devices come and go in updates."""
        before = self._open.get(subject, {}).get(allocation.allocation) or self._restored.get(
            (Allocation, allocation.allocation)
        )
        if not isinstance(before, Allocation):
            return allocation
        return msgspec.structs.replace(before, owner=allocation.owner, start=0)

    def _look_at_pod(self, subject: Subject, pod_id: str) -> None:
        pod = self._world.pods.get(pod_id)
        if pod is None:
            self._settle(subject, {}, lambda _: None)
            return
        if self._behind is None:
            self._behind = gpu_allocations.resources_behind(self._world)
        was_waiting = any(
            isinstance(interval, Waiting) for interval in self._open.get(subject, {}).values()
        )
        wanted: dict[str, Interval] = {
            each.allocation: each
            for each in gpu_allocations.of_pod(
                self._world, pod, self._owner_of, behind=self._behind
            )
        }
        if wanted:
            self._counting_pods.setdefault(pod.spec.node_name, set()).add(pod_id)
        elif pod.spec.node_name in self._counting_pods:
            self._counting_pods[pod.spec.node_name].discard(pod_id)
        if waiting := self._waiting_of(subject, pod):
            wanted[_waiting_id(waiting)] = waiting
        self._settle(subject, wanted, self._since)
        if was_waiting and pod.spec.node_name:
            self._note_start(pod)

    def _waiting_of(self, subject: Subject, pod: pods.Pod) -> Waiting | None:
        """A pod that waits for GPUs. It is priced once: what would serve it changes all the time."""
        if pod.spec.node_name or pod.status.phase in pods.TERMINAL_PHASES:
            return None
        identity = f"waiting/{events.pod_id(pod)}"
        before = self._open.get(subject, {}).get(identity) or self._restored.get(
            (Waiting, identity)
        )
        if isinstance(before, Waiting):
            micro_gpu = before.micro_gpu
        else:
            micro_gpu = self._waiting_gpus.micro_gpu(pod)
        if not micro_gpu:
            return None
        return Waiting(self._owner_of(pod), micro_gpu, 0, reason=_waiting_reason(pod))

    def _settle(
        self,
        subject: Subject,
        wanted: dict[str, Any],
        stated: Callable[[Any], Millis | None],
    ) -> None:
        """Ends what is open and no longer wanted, begins what is wanted and not open."""
        opened = self._open.pop(subject, {})
        for identity, interval in wanted.items():
            restored = self._restored.pop((type(interval), identity), None)
            if restored is not None:
                opened[identity] = restored
        still: dict[str, Interval] = {}
        for identity, interval in opened.items():
            target = wanted.get(identity)
            if target is not None and _is_same(interval, target):
                still[identity] = interval
                continue
            at = max(self._times.known_until, interval.start)
            if interval.start >= self._times.known_until:
                self._last_start[identity] = interval.start
            self._draft.add(_ended(interval, at))
            if target is not None:  # the same thing goes on with other numbers, without a hole
                still[identity] = self._begun(identity, target, at)
        for identity, target in wanted.items():
            if identity not in still:
                still[identity] = self._begun(identity, target, self._times.begun(stated(target)))
        if still:
            self._open[subject] = still

    def _begun(self, identity: str, target: Any, at: Millis) -> Any:
        """Begins an interval, later than any earlier one of the same thing: its start is part of its key."""
        last = self._last_start.pop(identity, None)
        start = at if last is None else max(at, last + 1)
        interval = msgspec.structs.replace(target, start=start, end=None)
        self._draft.add(interval)
        return interval

    # What objects state

    def _allocated_at(self, allocation: Allocation) -> Millis | None:
        """When a claim was allocated; a shared one changes hands later, and its objects do not say when."""
        if not allocation.owner.pod_uid:
            return None
        claim = self._world.claims.get((allocation.owner.namespace, allocation.claim))
        if claim is None or claim.status.allocation is None or len(claim.status.reserved_for) > 1:
            return None
        stated = millis_of(claim.status.allocation.allocation_timestamp)
        return stated if stated is not None else self._scheduled_at(allocation.owner.pod_uid)

    def _since(self, interval: Allocation | Waiting) -> Millis | None:
        if isinstance(interval, Allocation):
            return self._scheduled_at(interval.owner.pod_uid)
        pod = self._world.pods.get(interval.owner.pod_uid)
        return None if pod is None else millis_of(pod.metadata.creation_timestamp)

    def _scheduled_at(self, pod_id: str) -> Millis | None:
        pod = self._world.pods.get(pod_id)
        condition = None if pod is None else _condition(pod, SCHEDULED)
        if condition is None or condition.status != "True":
            return None
        return millis_of(condition.last_transition_time)

    def _owner_of(self, pod: pods.Pod) -> Owner:
        if self._access is None:
            self._access = queue_access.QueueAccess(self._world.queues, self._world.namespaces)
        metadata = pod.metadata
        controller = next(
            (reference for reference in metadata.owner_references if reference.controller), None
        )
        queue = self._access.resolve(metadata.labels, metadata.namespace)
        return Owner(
            namespace=metadata.namespace,
            pod=metadata.name,
            pod_uid=events.pod_id(pod),
            controller_kind=controller.kind if controller is not None else "",
            controller=controller.name if controller is not None else "",
            queue=queue.queue or queue.requested_queue or "",
            labels=metadata.labels,
        )

    # Decisions

    def _note_start(self, pod: pods.Pod) -> None:
        at = self._times.begun(self._scheduled_at(events.pod_id(pod)))
        self._draft.decisions.append(
            Decision(at, STARTED, self._owner_of(pod), node=pod.spec.node_name)
        )

    def _note_yield(self, pod: pods.Pod, *, is_there: bool) -> None:
        """A pod that was told to go: once, although its condition is seen many times."""
        pod_id = events.pod_id(pod)
        condition = _condition(pod, DISRUPTED)
        if not is_there:
            self._yielding.discard(pod_id)
            return
        if condition is None or condition.status != "True" or pod_id in self._yielding:
            return
        self._yielding.add(pod_id)
        if not self._holds(pod_id, pod):
            return
        at = millis_of(condition.last_transition_time)
        self._draft.decisions.append(
            Decision(
                at=self._times.now if at is None else min(at, self._times.now),
                kind=YIELDED,
                owner=self._owner_of(pod),
                node=pod.spec.node_name,
                rule=condition.reason,
                detail=condition.message,
            )
        )

    def _holds(self, pod_id: str, pod: pods.Pod) -> bool:
        keys = self._world.claims_used(pod)
        subjects: Iterable[Subject] = (("pod", pod_id), *(("claim", key) for key in keys))
        return any(subject in self._open for subject in subjects)


class _Draft:
    """Records that are being made."""

    def __init__(self) -> None:
        self.assets: list[Asset] = []
        self.allocations: list[Allocation] = []
        self.waiting: list[Waiting] = []
        self.decisions: list[Decision] = []
        self.gaps: list[Gap] = []

    def add(self, interval: Interval) -> None:
        match interval:
            case Asset():
                self.assets.append(interval)
            case Allocation():
                self.allocations.append(interval)
            case Waiting():
                self.waiting.append(interval)

    def take(self) -> Records:
        records = Records(
            assets=tuple(self.assets),
            allocations=tuple(self.allocations),
            waiting=tuple(self.waiting),
            decisions=tuple(self.decisions),
            gaps=tuple(self.gaps),
        )
        self.__init__()  # type: ignore[misc]
        return records


def millis_of(text: str | None) -> Millis | None:
    """A time of an object in milliseconds; None if there is none, or it cannot be read."""
    moment = timestamps.parse_or_none(text)
    return None if moment is None else int(moment.timestamp() * 1000)


def _is_same(interval: Interval, target: Interval) -> bool:
    """Whether two intervals are equal but for their times."""
    return interval == msgspec.structs.replace(target, start=interval.start, end=interval.end)


def _ended(interval: Interval, at: Millis) -> Interval:
    return msgspec.structs.replace(interval, end=at)


def _id_of(interval: Interval) -> str:
    match interval:
        case Asset():
            return interval.asset
        case Allocation():
            return interval.allocation
        case Waiting():
            return _waiting_id(interval)


def _waiting_id(waiting: Waiting) -> str:
    return f"waiting/{waiting.owner.pod_uid}"


def _waiting_reason(pod: pods.Pod) -> str:
    condition = _condition(pod, SCHEDULED)
    return condition.reason if condition is not None and condition.status != "True" else ""


def _condition(pod: pods.Pod, kind: str) -> pods.PodCondition | None:
    return next((each for each in pod.status.conditions if each.type == kind), None)

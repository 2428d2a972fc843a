"""The recorder of history: a state machine from events of the World to records. Events in, records out.

Given a World that events have just changed, what the store has open, and the time. Each thing that can change by itself
is a subject: a pool, a node, a claim, a pod. After an event the subjects it concerns are looked at again; what is
different from what is open ends, and what is new begins. What ended unseen, while the recorder was away, ends at the
last time it was known to be true, and the time between is a gap. Never reads a clock, never stores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from dovetail import timestamps
from dovetail.history import gpu_allocations, gpu_assets, intervals, unusable_capacity
from dovetail.history.intervals import Interval
from dovetail.history.waiting_gpus import WaitingGpus
from dovetail.kubetypes import registry
from dovetail.kubetypes.core import namespaces, nodes, pods
from dovetail.kubetypes.custom import intents, queues
from dovetail.kubetypes.resource import claims, device_classes, slices
from dovetail.live.intents import current_promises
from dovetail.model import plan
from dovetail.model.accounting.records import (
    Allocation,
    Asset,
    Decision,
    Gap,
    GapSource,
    Millis,
    Owner,
    PriceList,
    Promise,
    Records,
    Unusable,
    Waiting,
)
from dovetail.model.queue import queue_access
from dovetail.tables.timeline import eviction_messages
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
_UNUSABLE: Final[Subject] = ("unusable", "")
_PRICES: Final[Subject] = ("prices", "")


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
        self._restored: dict[str, Interval] = {}
        self._last_start: dict[str, Millis] = {}  # of what began and ended at this time
        self._pool_of_slice: dict[str, PoolKey] = {}
        self._pools_of_node: dict[str, set[PoolKey]] = {}
        self._counting_pods: dict[str, set[str]] = {}  # node -> pods that hold counted GPUs
        self._guessed: dict[PoolKey, set[ObjectKey]] = {}  # claims of devices that were unpublished
        self._yielding: set[str] = set()
        self._promises = current_promises.CurrentPromises()
        self._times = Times(0, 0)
        self._draft = intervals.Draft()

    # After a start

    def resume(self, opened: Records, *, watched_until: Millis | None, now: Millis) -> Records:
        """Compares what the store has open with the complete World. Without a past, history begins now."""
        known_until = now if watched_until is None else min(watched_until, now)
        self._times = Times(known_until, now)
        self._restored = {
            intervals.id_of(interval): interval for interval in intervals.all_of(opened)
        }
        is_new = watched_until is None
        known_pods = {interval.owner.pod_uid for interval in opened.allocations}
        for subject in self._all_subjects():
            self._look_at(subject)
        if not is_new:
            self._note_missed_starts(known_pods)
        for subject, kind in ((_UNUSABLE, Unusable), (_PRICES, PriceList)):
            self._keep_open(subject, kind)
        for interval in self._restored.values():
            self._draft.add(intervals.ended(interval, max(known_until, interval.start)))
        self._restored.clear()
        if not is_new and now > known_until:
            self._draft.gaps.append(Gap(GapSource.API, known_until, now, AWAY))
        return self._draft.take()

    def _keep_open(self, subject: Subject, kind: type[Unusable] | type[PriceList]) -> None:
        """What only a measurement, or a file, shows to be over goes on until then."""
        kept: dict[str, Interval] = {
            key: each for key, each in self._restored.items() if isinstance(each, kind)
        }
        for key in kept:
            del self._restored[key]
        if kept:
            self._open[subject] = kept

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
        for gang in self._promises.gangs():
            yield ("promise", gang)

    def _note_missed_starts(self, known_pods: set[str]) -> None:
        """Pods that came and were bound while the recorder was away. Those it saw waiting are noted already."""
        noted = known_pods | {decision.owner.pod_uid for decision in self._draft.decisions}
        for allocation in self._draft.allocations:
            pod = self._world.pods.get(allocation.owner.pod_uid)
            if allocation.end is not None or pod is None or not gpu_allocations.is_running(pod):
                continue
            if events.pod_id(pod) not in noted:
                noted.add(events.pod_id(pod))
                self._note_start(pod)

    # Events

    def prime(self, event: events.Event) -> None:
        """An event before `resume`: the World keeps all but the names of slices."""
        if isinstance(event.object, slices.ResourceSlice):
            list(self._of_slice(event.object, is_there=isinstance(event, events.Changed)))

    def observe(self, event: events.Event, *, times: Times) -> Records:
        """The records of one event, which the World has applied already."""
        self._set_times(times)
        is_there = isinstance(event, events.Changed)
        for subject in list(dict.fromkeys(self._concerned(event.object, is_there=is_there))):
            self._look_at(subject)
        if isinstance(event.object, pods.Pod):
            self._note_yield(event.object, is_there=is_there)
        return self._draft.take()

    def _set_times(self, times: Times) -> None:
        if times.known_until > self._times.known_until:
            self._last_start.clear()
        self._times = times

    def prime_intents(self, listed: Iterable[intents.Intent]) -> None:
        """All Intents, before `resume`."""
        self._promises.replace(listed)

    def observe_intents(self, listed: Iterable[intents.Intent], *, times: Times) -> Records:
        """The records of a complete list of Intents."""
        self._set_times(times)
        for gang in sorted(self._promises.replace(listed)):
            self._look_at(("promise", gang))
        return self._draft.take()

    def observe_intent(self, intent: intents.Intent, *, is_there: bool, times: Times) -> Records:
        """The records of one Intent that came, changed or is gone."""
        self._set_times(times)
        gang = self._promises.put(intent, is_there=is_there)
        if gang is not None:
            self._look_at(("promise", gang))
        return self._draft.take()

    def note_unusable(self, fragmented: Mapping[str, int], *, times: Times) -> Records:
        """What a measurement says: by node, millionths of a GPU that are free and of no use to the observed mix."""
        self._set_times(times)
        opened = [each for subject in self._open.values() for each in subject.values()]
        free = unusable_capacity.free_parts(
            (each for each in opened if isinstance(each, Asset)),
            (each for each in opened if isinstance(each, Allocation)),
        )
        before = [each for each in opened if isinstance(each, Unusable)]
        parts = unusable_capacity.unusable(free, fragmented, self._world.nodes, before)
        self._settle(_UNUSABLE, _by_id(parts), lambda _: None)
        return self._draft.take()

    def note_prices(self, document: PriceList | None, *, times: Times) -> Records:
        """The prices that are in force from now on; None if there are none."""
        self._set_times(times)
        self._settle(_PRICES, _by_id([document] if document else []), lambda _: None)
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
                counted = gpu_assets.counted(node) if node else ()
                self._settle(subject, _by_id(counted), lambda _: None)
            case ("pool", pool):
                self._look_at_pool(subject, pool)  # type: ignore[arg-type]
            case ("claim", key):
                self._look_at_claim(subject, key)  # type: ignore[arg-type]
            case ("pod", str(pod_id)):
                self._look_at_pod(subject, pod_id)
            case ("promise", plan.GangRef() as gang):
                self._look_at_promise(subject, gang)
            case _:
                raise AssertionError(subject)

    def _look_at_pool(self, subject: Subject, pool: PoolKey) -> None:
        published, expected = self._world.slice_counts(pool)
        if 0 < published < expected:
            return  # its driver is writing it
        devices = self._world.devices_in(pool)
        wanted: dict[str, Interval] = {}
        if devices is not None and len(devices):
            name = devices.origins[0].node_name or ""
            if name:
                self._pools_of_node.setdefault(name, set()).add(pool)
            node = self._world.nodes.get(name)
            wanted = _by_id(gpu_assets.of_pool(pool, devices, node))
        self._settle(subject, wanted, lambda _: None)

    def _look_at_claim(self, subject: Subject, key: ObjectKey) -> None:
        claim = self._world.claims.get(key)
        wanted: dict[str, Interval] = {}
        if claim is not None:
            held = gpu_allocations.of_claim(self._world, self._ledger, claim, self._owner_of)
            for allocation, is_published in held:
                if not is_published:
                    self._note_guess(claim)
                    allocation = self._as_before(subject, allocation)
                wanted[intervals.id_of(allocation)] = allocation
        self._settle(subject, wanted, self._allocated_at)

    def _note_guess(self, claim: claims.ResourceClaim) -> None:
        assert claim.status.allocation is not None
        for result in claim.status.allocation.devices.results:
            pool = (result.driver, result.pool)
            self._guessed.setdefault(pool, set()).add(events.key_of(claim))

    def _as_before(self, subject: Subject, allocation: Allocation) -> Allocation:
        """The allocation with the price it had while its device was published: devices come and go in updates."""
        before = self._before(subject, intervals.id_of(allocation))
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
        was_waiting = self._open_waiting(subject, pod) is not None
        counted = gpu_allocations.of_pod(self._world, pod, self._owner_of, behind=self._behind)
        wanted = _by_id(counted)
        if wanted:
            self._counting_pods.setdefault(pod.spec.node_name, set()).add(pod_id)
        elif pod.spec.node_name in self._counting_pods:
            self._counting_pods[pod.spec.node_name].discard(pod_id)
        if waiting := self._waiting_of(subject, pod):
            wanted[intervals.id_of(waiting)] = waiting
        self._settle(subject, wanted, self._since)
        if was_waiting and pod.spec.node_name:
            self._note_start(pod)

    def _open_waiting(self, subject: Subject, pod: pods.Pod) -> Waiting | None:
        identity = intervals.id_of(Waiting(Owner("", "", events.pod_id(pod)), 0, 0))
        interval = self._before(subject, identity)
        return interval if isinstance(interval, Waiting) else None

    def _before(self, subject: Subject, identity: str) -> Interval | None:
        """What is open under this id, also from before a restart."""
        return self._open.get(subject, {}).get(identity) or self._restored.get(identity)

    def _waiting_of(self, subject: Subject, pod: pods.Pod) -> Waiting | None:
        """A pod that waits for GPUs. It is priced once: what would serve it changes all the time."""
        if pod.spec.node_name or pod.status.phase in pods.TERMINAL_PHASES:
            return None
        before = self._open_waiting(subject, pod)
        micro_gpu = self._waiting_gpus.micro_gpu(pod) if before is None else before.micro_gpu
        if not micro_gpu:
            return None
        return Waiting(self._owner_of(pod), micro_gpu, 0, reason=_waiting_reason(pod))

    def _look_at_promise(self, subject: Subject, gang: plan.GangRef) -> None:
        promise = self._promises.promise(gang)
        wanted: dict[str, Interval] = {}
        if promise is not None:
            interval = self._promise_of(subject, promise)
            wanted[intervals.id_of(interval)] = interval
        self._settle(subject, wanted, lambda _: self._promised_at(gang))

    def _promise_of(self, subject: Subject, promise: plan.Promise) -> Promise:
        """A promise keeps the owner it began with: one that was lost names no pod any more."""
        interval = Promise(
            gang=str(promise.gang),
            owner=Owner(promise.gang.namespace, "", ""),
            start=0,
            promised_start=_millis_at(promise.start),
            moved_from=_millis_at(promise.moved_from),
            cause=promise.lost_to or promise.cause,
            nodes=tuple(sorted(promise.nodes)),
        )
        before = self._before(subject, intervals.id_of(interval))
        if isinstance(before, Promise):
            return msgspec.structs.replace(interval, owner=before.owner)
        if not promise.seats:
            return interval
        first = min(seat.pod for seat in promise.seats)
        pod = self._world.pods.get(first.uid)
        owner = (
            Owner(first.namespace, first.name, first.uid) if pod is None else self._owner_of(pod)
        )
        return msgspec.structs.replace(interval, owner=owner)

    def _promised_at(self, gang: plan.GangRef) -> Millis | None:
        intent = self._promises.intent(gang)
        return None if intent is None else millis_of(intent.metadata.creation_timestamp)

    def _settle(
        self,
        subject: Subject,
        wanted: dict[str, Any],
        stated: Callable[[Any], Millis | None],
    ) -> None:
        """Ends what is open and no longer wanted, begins what is wanted and not open."""
        opened = self._open.pop(subject, {})
        for identity in wanted:
            restored = self._restored.pop(identity, None)
            if restored is not None:
                opened[identity] = restored
        still: dict[str, Interval] = {}
        for identity, interval in opened.items():
            target = wanted.get(identity)
            if target is not None and intervals.is_same(interval, target):
                still[identity] = interval
                continue
            at = max(self._times.known_until, interval.start)
            if interval.start >= self._times.known_until:
                self._last_start[identity] = interval.start
            self._draft.add(intervals.ended(interval, at))
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
        decision = Decision(
            at=self._times.now if at is None else min(at, self._times.now),
            kind=YIELDED,
            owner=self._owner_of(pod),
            node=pod.spec.node_name,
            rule=condition.reason,
            detail=condition.message,
        )
        self._draft.decisions.append(_with_beneficiary(decision))

    def _holds(self, pod_id: str, pod: pods.Pod) -> bool:
        keys = self._world.claims_used(pod)
        subjects: Iterable[Subject] = (("pod", pod_id), *(("claim", key) for key in keys))
        return any(subject in self._open for subject in subjects)


def millis_of(text: str | None) -> Millis | None:
    """A time of an object in milliseconds; None if there is none, or it cannot be read."""
    moment = timestamps.parse_or_none(text)
    return None if moment is None else int(moment.timestamp() * 1000)


def _millis_at(instant: plan.Instant | None) -> Millis | None:
    return None if instant is None else int(instant.timestamp() * 1000)


def _by_id(made: Iterable[Interval]) -> dict[str, Interval]:
    return {intervals.id_of(interval): interval for interval in made}


def _with_beneficiary(decision: Decision) -> Decision:
    """With the rule, and for whom the pod yields, where the scheduler's message says so."""
    message = eviction_messages.read(decision.detail)
    if message is None:
        return decision
    return msgspec.structs.replace(
        decision, rule=message.rule, in_favour_of=message.beneficiary, detail=message.detail
    )


def _waiting_reason(pod: pods.Pod) -> str:
    condition = _condition(pod, SCHEDULED)
    return condition.reason if condition is not None and condition.status != "True" else ""


def _condition(pod: pods.Pod, kind: str) -> pods.PodCondition | None:
    return next((each for each in pod.status.conditions if each.type == kind), None)

"""One scheduling cycle: decides about waiting pods, begins to bind those that fit, parks the others.

Without queues and gangs a cycle takes a batch, small enough to hold the event loop only briefly; with
them it takes all waiting pods, except gangs that back off after a failed write. The call of the engine
is in `fault_isolation.Decider`. A placement is assumed in the World until events confirm it or a write
fails. Evictions, nominations and promises of the plan are left to `cycle_runner`. Never chooses a node.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from dovetail.kubetypes.core import pods
from dovetail.live import handle as handles
from dovetail.live.bind import binding_cycle
from dovetail.live.cycle import fault_isolation, plan_check
from dovetail.live.evict import slot_reservations
from dovetail.live.queue import awaited_objects, queueing_hints
from dovetail.model import gangs, plan, reservations
from dovetail.schedule import pod_order, refusal_summary
from dovetail.world import events

LOG = logging.getLogger("dovetail.schedule")
FIRST_BATCH: Final = 8
MOST_IN_BATCH: Final = 512
REPORTED_AFTER: Final = 5  # unfinished searches before the owner gets a message: most need fewer
MOST_CUT_SECONDS: Final = 0.5  # a search that its budget ended rarely takes longer
LONGEST_REST: Final = 0.25  # after a cycle whose search a budget ended


class Cycle(NamedTuple):
    """A cycle's plan, and the pods that it was about."""

    decided: plan.Plan
    pods: tuple[pods.Pod, ...]
    rest_seconds: float = 0.0  # before the next cycle, so that other tasks get the event loop


class _Groups(Mapping[gangs.GangKey, list[str]]):
    """Pod ids by gang, worked out on first use: only a decision that failed needs them."""

    def __init__(self, make: Callable[[], dict[gangs.GangKey, list[str]]]) -> None:
        self._make = make

    @functools.cached_property
    def _groups(self) -> dict[gangs.GangKey, list[str]]:
        return self._make()

    def __getitem__(self, key: gangs.GangKey) -> list[str]:
        return self._groups[key]

    def __iter__(self) -> Iterator[gangs.GangKey]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)


class SchedulingCycles:
    """Scheduling cycles over one World."""

    def __init__(
        self,
        handle: handles.Handle,
        decider: fault_isolation.Decider,
        binding_cycles: binding_cycle.BindingCycles,
        slots: slot_reservations.SlotReservations,
    ) -> None:
        self._handle = handle
        self._world = handle.world
        self._queue = handle.queue
        self._clock = handle.clock
        self._meter = handle.meter
        self._recorder = handle.recorder
        self._metrics = handle.metrics
        self._settings = handle.settings
        self._decider = decider
        self._binding_cycles = binding_cycles
        self._slots = slots
        self._batch = FIRST_BATCH
        self._in_hand: list[str] = []  # taken from the queue in this cycle, perhaps in none now
        self.count = 0

    # A batch

    def run_batch(self, room: int, spared: Collection[str] = ()) -> Cycle | None:
        """Decides about the next pods of the queue. None if none of them can be decided about."""
        size = self._settings.batch_pods or self._batch
        self._in_hand = self._queue.take(min(size, room))
        pod_ids = [pod_id for pod_id in self._in_hand if self._can_decide(pod_id)]
        if not pod_ids:
            self._in_hand = []
            return None
        began = self._begin()
        waiting = {pod_id: self._world.pods[pod_id] for pod_id in pod_ids}
        batch = tuple(waiting.values())
        decided = self._decide([*waiting], waiting, spared, began)
        self._carry_out_batch(decided, waiting, began)
        self._in_hand = []
        seconds = self._clock.monotonic() - began
        self._metrics.decided(pod_ids, decided, seconds)
        is_cut = any(map(refusal_summary.is_to_be_continued, decided.refusals))
        is_bounded = is_cut and seconds <= MOST_CUT_SECONDS
        self._size_batch(len(pod_ids), seconds, least=self._batch if is_bounded else 1)
        return Cycle(decided, batch, rest_seconds=min(seconds, LONGEST_REST) if is_cut else 0.0)

    def _carry_out_batch(
        self, decided: plan.Plan, waiting: dict[str, pods.Pod], began: float
    ) -> None:
        for placement in decided.placements:
            self._binding_cycles.start(waiting.pop(placement.pod.uid), placement)
        for refusal in decided.refusals:
            self._refuse(waiting.pop(refusal.pod.uid), refusal)
        for nomination in decided.nominations:
            pod = waiting.pop(nomination.pod.uid)
            self._recorder.nominated(pod, nomination.node)
            names = awaited_objects.names_for(pod)
            self._queue.park(nomination.pod.uid, pod_order.rank(pod), names)
        for pod_id, pod in waiting.items():
            self._not_mentioned(pod_id, pod, began)

    def _not_mentioned(self, pod_id: str, pod: pods.Pod, now: float) -> None:
        """A pod that the plan does not mention: it stopped waiting, or the plan is wrong."""
        if self._is_waiting(pod_id, self._world.pods.get(pod_id, pod)):
            self._queue.delay(pod_id, pod_order.rank(pod), now)
            LOG.warning("plan.pod_missing: it is retried", extra={"pod": pod.metadata.name})
        else:
            self._queue.drop(pod_id)
            LOG.debug("plan.pod_left_out", extra={"pod": pod.metadata.name})

    def _can_decide(self, pod_id: str) -> bool:
        """Whether the pod is there, and none of its claims is being released."""
        pod = self._world.pods.get(pod_id)
        if pod is None:
            return False
        uses = reservations.used_claims(pod)
        if self._binding_cycles.releasing.isdisjoint(uses):
            return True
        self._queue.park(pod_id, pod_order.rank(pod), uses)
        return False

    def _size_batch(self, count: int, seconds: float, *, least: int) -> None:
        """Sizes the next batch to take about the bound. Where a budget ended the search, fewer pods
        would not have been faster, so the batch does not shrink.
        """
        seconds_per_pod = max(seconds / count, 1e-6)
        fitting = int(self._settings.loop_bound_seconds / seconds_per_pod)
        self._batch = max(least, min(MOST_IN_BATCH, fitting, count * 2))

    async def rest(self, turn: Cycle | None) -> None:
        """Gives other tasks the event loop; longer after a search that its budget ended."""
        if turn is not None and turn.rest_seconds:
            await self._clock.sleep(turn.rest_seconds)
        await asyncio.sleep(0)

    # All waiting pods

    def run_whole(self, spared: Collection[str]) -> Cycle:
        """Decides about all waiting pods. Evictions and nominations are left to the caller."""
        began = self._begin()
        self._in_hand = self._queue.take_all()
        pod_ids = (*self._in_hand, *self._queue.parked())
        latest = self._world.pods
        waiting = {pod_id: latest[pod_id] for pod_id in pod_ids if pod_id in latest}
        backing_off = self._gangs_backing_off(waiting.values())
        self._leave_backing_off(waiting, backing_off)
        if len(self._slots):
            self._fill_slots(waiting, spared)
        decided = self._decide([*waiting] if backing_off else None, waiting, spared, began)
        placed = [placement.pod.uid for placement in decided.placements]
        refused = [refusal.pod.uid for refusal in decided.refusals if not refusal.is_undecided]
        mentioned = [*placed, *(refusal.pod.uid for refusal in decided.refusals)]
        answered = tuple(waiting[pod_id] for pod_id in (*placed, *refused) if pod_id in waiting)
        self._carry_out_whole(decided, waiting)
        self._in_hand = []
        if mentioned:
            self._metrics.decided(mentioned, decided, self._clock.monotonic() - began)
        return Cycle(decided, answered)

    def _carry_out_whole(self, decided: plan.Plan, waiting: dict[str, pods.Pod]) -> None:
        self._start(decided.placements, waiting)
        for refusal in decided.refusals:
            self._unpark(refusal.pod.uid)
            self._refuse(waiting.pop(refusal.pod.uid), refusal)
        for nomination in decided.nominations:
            if nomination.pod.uid in waiting:
                self._recorder.nominated(waiting[nomination.pod.uid], nomination.node)
        for pod_id in self._in_hand:  # nominated, or the plan says nothing new about it
            if pod_id in waiting:
                self._stay(pod_id, waiting[pod_id])

    def _leave_backing_off(
        self, waiting: dict[str, pods.Pod], backing_off: Collection[gangs.GangKey]
    ) -> None:
        """Pods of gangs that back off stay parked."""
        if not backing_off:
            return
        pod_ids = [pod_id for pod_id, pod in waiting.items() if self._gang_of(pod) in backing_off]
        for pod_id in pod_ids:
            self._stay(pod_id, waiting.pop(pod_id))

    def _gangs_backing_off(self, waiting: Iterable[pods.Pod]) -> set[gangs.GangKey]:
        """Gangs one of whose pods backs off, or is releasing something."""
        unwinding: list[pods.Pod] = []
        if self._binding_cycles.is_undoing_any:
            unwinding = [pod for pod in waiting if self._binding_cycles.is_being_undone(pod)]
        delayed = [self._world.pods.get(pod_id) for pod_id in self._queue.backing_off]
        backing_off = [pod for pod in delayed if pod is not None]
        return {self._gang_of(pod) for pod in (*backing_off, *unwinding)}

    def _stay(self, pod_id: str, pod: pods.Pod) -> None:
        """The pod waits on, until an event may help it."""
        if pod_id not in self._queue.parked():
            self._queue.park(pod_id, pod_order.rank(pod), awaited_objects.names_for(pod))

    def _unpark(self, pod_id: str) -> None:
        if pod_id in self._queue.parked():
            self._queue.take_parked(pod_id)
            self._in_hand.append(pod_id)

    def _start(self, placements: Iterable[plan.Placement], waiting: dict[str, pods.Pod]) -> None:
        """Begins to bind: the pods of one gang together, others each alone."""
        by_gang: dict[plan.GangRef, list[tuple[pods.Pod, plan.Placement]]] = {}
        for placement in placements:
            pod = waiting.pop(placement.pod.uid, None)
            if pod is None:
                continue  # the cycle did not ask about it: it backs off, or is not ours
            self._unpark(placement.pod.uid)
            if placement.gang is None:
                self._binding_cycles.start(pod, placement)
            else:
                by_gang.setdefault(placement.gang, []).append((pod, placement))
        for gang, members in by_gang.items():
            if len(members) == 1:
                self._binding_cycles.start(*members[0])
            else:
                self._binding_cycles.start_gang(gang, members)

    def _fill_slots(self, waiting: dict[str, pods.Pod], spared: Collection[str]) -> None:
        """Decides first, alone, about pods that a slot is kept for; unused slots are kept again."""
        keys: dict[str, slot_reservations.ReplacementKey] = {}  # which slots each pod may take
        for pod_id, pod in waiting.items():
            key = slot_reservations.replacement_key_of(pod, self._gang_of(pod))
            if key is not None:
                keys[pod_id] = key
        lifted = self._slots.lift({*keys.values()})
        if not lifted:
            return
        slot_keys = {slot.replacement_key for slot in lifted.values()}
        used: list[slot_reservations.UsedSlot] = []
        try:
            candidates = {pod_id: key for pod_id, key in keys.items() if key in slot_keys}
            nodes = self._slots.nodes_for(lifted, candidates)
            answer = self._decider.plan_for([*candidates], spared=spared, toward=nodes)
            decided = plan_check.checked(answer, candidates, self._world, self._meter)
            for placement in decided.placements:
                uid = placement.pod.uid
                if uid in keys:
                    used.append(slot_reservations.UsedSlot(keys[uid], placement.node, uid))
            self._start(decided.placements, waiting)
        except Exception:
            # It costs the slot, not the cycle: the decision that follows finds the fault.
            LOG.exception("slots.not_filled")
        self._slots.restore(lifted, used)

    # Both

    def _begin(self) -> float:
        self.count += 1
        self._metrics.begin(self.count)
        return self._clock.monotonic()

    def _decide(
        self,
        among: Collection[str] | None,
        waiting: dict[str, pods.Pod],
        spared: Collection[str],
        now: float,
    ) -> plan.Plan:
        """The plan for these pods. Pods that `decide` fails over back off and leave `waiting`."""
        groups = _Groups(lambda: self._by_gang(waiting.values()))
        outcome = self._decider.decided(among, groups, spared=spared)
        for pod_id, fault in outcome.faults.items():
            self._unpark(pod_id)
            fault_isolation.set_aside(waiting.pop(pod_id), fault, self._handle, now)
        for pod_id in outcome.later:
            self._queue.ready(pod_id, pod_order.rank(waiting.pop(pod_id)))
        return plan_check.checked(outcome.decided, waiting, self._world, self._meter)

    def _refuse(self, pod: pods.Pod, refusal: plan.Refusal) -> None:
        """Parks a refused pod, or retries it if only a budget ended the search."""
        pod_id, rank = events.pod_id(pod), pod_order.rank(pod)
        if refusal_summary.is_to_be_continued(refusal):
            if self._queue.unfinished(pod_id, rank) == REPORTED_AFTER:
                self._recorder.refused(pod, refusal)
            return
        self._recorder.refused(pod, refusal)
        if refusal.is_undecided:
            self._queue.delay(pod_id, rank, self._clock.monotonic())
        else:
            self._queue.park(pod_id, rank, queueing_hints.parked_under(pod, refusal))
            self._metrics.queued(pod_id, "unschedulable", "ScheduleAttemptFailure")
        # Devices where the pod cannot start would keep it from starting elsewhere.
        for claim_ref in refusal.holding:
            key = (claim_ref.namespace, claim_ref.name)
            self._binding_cycles.release(
                key, pod.metadata.uid, why="held where the pod cannot start"
            )

    def back_off(self) -> int:
        """After a cycle that failed: its pods that are in no queue back off. Returns how many."""
        pod_ids, self._in_hand = self._in_hand, []
        count = 0
        for pod_id in pod_ids:
            pod = self._world.pods.get(pod_id)
            if pod_id in self._queue or pod is None or not self._is_waiting(pod_id, pod):
                continue
            self._queue.delay(pod_id, pod_order.rank(pod), self._clock.monotonic())
            count += 1
        return count

    def _is_waiting(self, pod_id: str, pod: pods.Pod) -> bool:
        is_assumed = pod_id in self._binding_cycles or pod_id in self._world.assumed
        is_placed = bool(pod.spec.node_name) or is_assumed
        return not is_placed and pod.metadata.deletion_timestamp is None

    def _by_gang(self, waiting: Iterable[pods.Pod]) -> dict[gangs.GangKey, list[str]]:
        groups: dict[gangs.GangKey, list[str]] = {}
        for pod in waiting:
            groups.setdefault(self._gang_of(pod), []).append(events.pod_id(pod))
        return groups

    def _gang_of(self, pod: pods.Pod) -> gangs.GangKey:
        member = self._world.gangs.of(events.pod_id(pod))
        return gangs.lone_membership(pod).gang if member is None else member.gang

"""One turn of deciding: asks `decide` about pods that wait, begins to write what it answers, parks the others.

Without queues and gangs a turn is a batch, small enough to hold the event loop only for a moment; with them it is about
everybody who waits, but for gangs that rest because a write failed. What is decided counts as done (assumed) until
events confirm it or a write fails. Never chooses a node.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from dovetail.loops import awaited, deciding, flights, meaning, report, slots, tell, waiting
from dovetail.model import gangs, plan, pods
from dovetail.model.reasons import ReasonCode
from dovetail.ports import clock as clocks
from dovetail.schedule import order
from dovetail.world import events
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.schedule")
FIRST_BATCH: Final = 8
MOST_IN_BATCH: Final = 512


class Ask(Protocol):
    """Asks for a plan."""

    def __call__(
        self, among: Collection[str] | None, *, spared: Collection[str] = (), toward: Mapping[str, str] | None = None
    ) -> plan.Plan:
        """The plan for these pods, or for all, in which nobody spared yields and nodes are tried that are kept."""
        ...


class Bounds(NamedTuple):
    """How much one turn may take on."""

    loop_seconds: float  # a batch is sized to hold the event loop no longer
    pods: int = 0  # of a batch; 0: sized by what the last ones took


class Turn(NamedTuple):
    """What was decided, and about whom it was asked."""

    decided: plan.Plan
    asked: tuple[pods.Pod, ...]


class Turns:
    """Turns over one World."""

    def __init__(
        self,
        world: World,
        queue: waiting.Waiting,
        ask: Ask,
        *,
        clock: clocks.Clock,
        flights_: flights.Flights,
        teller: tell.Teller,
        report_: report.Report,
        slots_: slots.Slots,
        bounds: Bounds,
    ) -> None:
        self._world = world
        self._queue = queue
        self._ask = ask
        self._clock = clock
        self._flights = flights_
        self._teller = teller
        self._report = report_
        self._slots = slots_
        self._bounds = bounds
        self._batch = FIRST_BATCH
        self.count = 0

    def batch(self, room: int, spared: Collection[str] = ()) -> Turn | None:
        """One batch: decide, assume, start writing. None where nobody can be asked about."""
        size = self._bounds.pods or self._batch
        taken = [id_ for id_ in self._queue.take(min(size, room)) if self._can_ask_about(id_)]
        if not taken:
            return None
        began = self._begin()
        known = {id_: self._world.pods[id_] for id_ in taken}
        asked = tuple(known.values())
        decided, faults = deciding.decided(functools.partial(self._ask, spared=spared), known.keys())
        for id_, fault in faults.items():
            deciding.set_aside(known.pop(id_), fault, teller=self._teller, queue=self._queue, now=began)
        for placement in decided.placements:
            self._flights.start(known.pop(placement.pod.uid), placement)
        for refusal in decided.refusals:
            self._refuse(known.pop(refusal.pod.uid), refusal)
        for nomination in decided.nominations:
            if (pod := known.pop(nomination.pod.uid, None)) is not None:
                self._queue.park(nomination.pod.uid, order.rank(pod), awaited.names_for(pod))
        for id_, pod in known.items():  # not decided about: no longer waiting in the World's eyes
            self._queue.drop(id_)
            LOG.debug("left out", extra={"pod": pod.metadata.name})
        self._measure(taken, decided, self._clock.monotonic() - began)
        return Turn(decided, asked)

    def whole(self, spared: Collection[str]) -> Turn:
        """Everybody who waits: decide, assume, start writing. Who yields and who is nominated is left to the caller."""
        began = self._begin()
        known = {id_: self._world.pods[id_] for id_ in self._queue.take_all() if id_ in self._world.pods}
        resting = self._resting(known.values())
        for id_ in [id_ for id_, pod in known.items() if self._gang_of(pod) in resting]:
            pod = known.pop(id_)
            self._queue.park(id_, order.rank(pod), awaited.names_for(pod))
        if len(self._slots):
            self._fill_slots(known, spared)
        groups = self._by_gang(known.values())
        among = [id_ for ids in groups.values() for id_ in ids] if resting else None
        ask = functools.partial(self._ask, spared=spared)
        decided, faults = deciding.decided_together(ask, among, list(groups.values()))
        for id_, fault in faults.items():
            deciding.set_aside(known.pop(id_), fault, teller=self._teller, queue=self._queue, now=began)
        taken, asked = list(known), tuple(known.values())
        self._start(decided.placements, known)
        for refusal in decided.refusals:
            if (refused := known.pop(refusal.pod.uid, None)) is not None:
                self._refuse(refused, refusal)
        for id_, pod in known.items():  # promised a node, or nothing can be said about it
            self._queue.park(id_, order.rank(pod), awaited.names_for(pod))
        if taken:
            self._report.decided(taken, decided, self._clock.monotonic() - began)
        return Turn(decided, asked)

    def _start(self, placements: Iterable[plan.Placement], known: dict[str, pods.Pod]) -> None:
        """Pods of one gang are written together, others each alone."""
        gangs_: dict[plan.GangRef, list[tuple[pods.Pod, plan.Placement]]] = {}
        for placement in placements:
            pod = known.pop(placement.pod.uid, None)
            if pod is None:
                continue  # nobody asked about it: it rests, or is not ours
            if placement.gang is None:
                self._flights.start(pod, placement)
            else:
                gangs_.setdefault(placement.gang, []).append((pod, placement))
        for gang, members in gangs_.items():
            if len(members) == 1:
                self._flights.start(*members[0])
            else:
                self._flights.start_together(gang, members)

    def _fill_slots(self, known: dict[str, pods.Pod], spared: Collection[str]) -> None:
        """Whoever room is kept for is asked about first, alone; what is not used is kept again."""
        kin = {id_: slots.kin_of(pod, self._gang_of(pod)) for id_, pod in known.items()}
        lifted = self._slots.lift({one for one in kin.values() if one is not None})
        if not lifted:
            return
        wanted = {slot.kin for slot in lifted.values()}
        used: list[slots.Used] = []
        try:
            asked = {id_: one for id_, one in kin.items() if one is not None and one in wanted}
            decided = self._ask([*asked], spared=spared, toward=self._slots.nodes_for(lifted, asked))
            used = [
                slots.Used(one, made.node, made.pod.uid)
                for made in decided.placements
                if (one := kin.get(made.pod.uid)) is not None
            ]
            self._start(decided.placements, known)
        except Exception:  # it costs the slot, not the turn
            LOG.exception("slots are not filled")  # everybody is asked about right after this, which finds the fault
        self._slots.put_back(lifted, used)

    def _resting(self, waiting_: Iterable[pods.Pod]) -> set[gangs.GangKey]:
        """Gangs one of whose pods waits for its time, or is giving something back."""
        late = [pod for id_ in self._queue.resting if (pod := self._world.pods.get(id_)) is not None]
        return {self._gang_of(pod) for pod in (*late, *filter(self._flights.is_unwinding, waiting_))}

    def _by_gang(self, waiting_: Iterable[pods.Pod]) -> dict[gangs.GangKey, list[str]]:
        found: dict[gangs.GangKey, list[str]] = {}
        for pod in waiting_:
            found.setdefault(self._gang_of(pod), []).append(events.pod_id(pod))
        return found

    def _gang_of(self, pod: pods.Pod) -> gangs.GangKey:
        found = self._world.gangs.of(events.pod_id(pod))
        return gangs.alone(pod).gang if found is None else found.gang

    def _begin(self) -> float:
        self.count += 1
        self._report.begin(self.count)
        return self._clock.monotonic()

    def _can_ask_about(self, id_: str) -> bool:
        """Whether the pod is there, and none of its claims is about to lose its devices."""
        pod = self._world.pods.get(id_)
        if pod is None:
            return False
        uses = awaited.claims_of(pod)
        if self._flights.releasing.isdisjoint(uses):
            return True
        self._queue.park(id_, order.rank(pod), uses)
        return False

    def _refuse(self, pod: pods.Pod, refusal: plan.Refusal) -> None:
        id_ = events.pod_id(pod)
        if refusal.is_undecided and all(one.reason.code is ReasonCode.TO_BE_CONTINUED for one in refusal.obstacles):
            self._queue.ready(id_, order.rank(pod))
            return
        self._teller.refused(pod, refusal)
        if refusal.is_undecided:
            self._queue.delay(id_, order.rank(pod), self._clock.monotonic())
        else:
            tied = (awaited.NEIGHBOURS,) if meaning.is_tied(refusal) else ()
            self._queue.park(id_, order.rank(pod), (*awaited.names_for(pod), *tied))
            self._report.queued(id_, "unschedulable", "ScheduleAttemptFailure")
        for ref in refusal.holding:  # devices where the pod cannot start keep it from starting elsewhere
            self._flights.release((ref.namespace, ref.name), pod.metadata.uid, why="held where the pod cannot start")

    def _measure(self, taken: list[str], decided: plan.Plan, seconds: float) -> None:
        per_pod = max(seconds / len(taken), 1e-6)
        fitting = int(self._bounds.loop_seconds / per_pod)
        self._batch = max(1, min(MOST_IN_BATCH, fitting, len(taken) * 2))
        self._report.decided(taken, decided, seconds)

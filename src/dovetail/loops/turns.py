"""One turn of deciding: asks `decide` about pods that wait, begins to write what it answers, parks the others.

Without queues and gangs a turn is a batch, small enough to hold the event loop only for a moment; with them it is about
everybody who waits, but for gangs that rest because a write failed. What is decided counts as done (assumed) until
events confirm it or a write fails. Never chooses a node.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from dovetail.loops import awaited, deciding, flights, meaning, report, slots, tell, vetting, waiting
from dovetail.model import gangs, plan, pods
from dovetail.model import policy as policies
from dovetail.ports import clock as clocks
from dovetail.ports import meter
from dovetail.schedule import order, refuse
from dovetail.world import events
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.schedule")
FIRST_BATCH: Final = 8
MOST_IN_BATCH: Final = 512
TOLD_AFTER: Final = 5  # turns without an answer: most pods have one before
MOST_CUT_SECONDS: Final = 0.5  # a turn that a budget cut short takes no longer as a rule; fewer pods would not help
LONGEST_REST: Final = 0.25  # after a turn that a budget cut short


class Ask(Protocol):
    """Asks for a plan."""

    def __call__(
        self,
        among: Collection[str] | None,
        *,
        spared: Collection[str] = (),
        toward: Mapping[str, str] | None = None,
        aside: Collection[gangs.GangKey] = (),
    ) -> plan.Plan:
        """The plan for these pods, or for all: nobody spared yields, and nodes are tried that are kept.

        Gangs set aside are no part of it.
        """
        ...


class Decide(Protocol):
    """What decides: `schedule.cycle.decide`, or somebody who plays it."""

    def __call__(
        self,
        world: World,
        policy: policies.Policy,
        now: plan.Instant,
        budget: policies.Budget,
        *,
        among: Collection[str] | None,
        spared: Collection[str],
        toward: Mapping[str, str],
        aside: Collection[gangs.GangKey],
    ) -> plan.Plan:
        """The plan."""
        ...


class Bounds(NamedTuple):
    """How much one turn may take on."""

    loop_seconds: float  # a batch is sized to hold the event loop no longer
    pods: int = 0  # of a batch; 0: sized by what the last ones took


class Turn(NamedTuple):
    """What was decided, and about whom it was asked."""

    decided: plan.Plan
    asked: tuple[pods.Pod, ...]
    rest_seconds: float = 0.0  # before the next one, for others: it was cut short, and there is more of the kind


class _Groups(Mapping[gangs.GangKey, list[str]]):
    """Pods by gang, worked out once somebody looks: only where a decision failed."""

    def __init__(self, make: Callable[[], dict[gangs.GangKey, list[str]]]) -> None:
        self._make = make

    @functools.cached_property
    def _made(self) -> dict[gangs.GangKey, list[str]]:
        return self._make()

    def __getitem__(self, key: gangs.GangKey) -> list[str]:
        return self._made[key]

    def __iter__(self) -> Iterator[gangs.GangKey]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


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
        meter_: meter.Meter,
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
        self._meter = meter_
        self._deciding = deciding.Deciding(world, clock, meter_)
        self._batch = FIRST_BATCH
        self._hands: list[str] = []  # taken from the queue in this turn, and perhaps nowhere yet
        self.count = 0

    def batch(self, room: int, spared: Collection[str] = ()) -> Turn | None:
        """One batch: decide, assume, start writing. None where nobody can be asked about."""
        size = self._bounds.pods or self._batch
        self._hands = self._queue.take(min(size, room))
        taken = [id_ for id_ in self._hands if self._can_ask_about(id_)]
        if not taken:
            self._hands = []
            return None
        began = self._begin()
        known = {id_: self._world.pods[id_] for id_ in taken}
        asked = tuple(known.values())
        decided = self._decided([*known], known, spared, began)
        for placement in decided.placements:
            self._flights.start(known.pop(placement.pod.uid), placement)
        for refusal in decided.refusals:
            self._refuse(known.pop(refusal.pod.uid), refusal)
        for nomination in decided.nominations:
            pod = known.pop(nomination.pod.uid)
            self._teller.nominated(pod, nomination.node)
            self._queue.park(nomination.pod.uid, order.rank(pod), awaited.names_for(pod))
        for id_, pod in known.items():
            self._leave(id_, pod, began)
        self._hands = []
        seconds = self._clock.monotonic() - began
        self._report.decided(taken, decided, seconds)
        is_cut = any(map(refuse.is_to_be_continued, decided.refusals))
        is_bounded = is_cut and seconds <= MOST_CUT_SECONDS
        self._size_batch(taken, seconds, least=self._batch if is_bounded else 1)
        return Turn(decided, asked, rest_seconds=min(seconds, LONGEST_REST) if is_cut else 0.0)

    async def rest(self, turn: Turn | None) -> None:
        """Lets others have the event loop; for as long as the turn took, where a budget cut it short."""
        if turn is not None and turn.rest_seconds:
            await self._clock.sleep(turn.rest_seconds)
        await asyncio.sleep(0)

    def whole(self, spared: Collection[str]) -> Turn:
        """Everybody who waits: decide, assume, start writing. Who yields and who is nominated is left to the caller."""
        began = self._begin()
        self._hands = self._queue.take_all()
        there = self._world.pods
        known = {id_: there[id_] for id_ in (*self._hands, *self._queue.parked()) if id_ in there}
        resting = self._resting(known.values())
        for id_ in [id_ for id_, pod in known.items() if self._gang_of(pod) in resting] if resting else ():
            self._stay(id_, known.pop(id_))
        if len(self._slots):
            self._fill_slots(known, spared)
        decided = self._decided([*known] if resting else None, known, spared, began)
        placed = [one.pod.uid for one in decided.placements]
        refused = [one.pod.uid for one in decided.refusals if not one.is_undecided]
        taken = [*placed, *(one.pod.uid for one in decided.refusals)]
        asked = tuple(known[id_] for id_ in (*placed, *refused) if id_ in known)
        self._start(decided.placements, known)
        for refusal in decided.refusals:
            self._lift(refusal.pod.uid)
            self._refuse(known.pop(refusal.pod.uid), refusal)
        for nomination in decided.nominations:
            if nomination.pod.uid in known:
                self._teller.nominated(known[nomination.pod.uid], nomination.node)
        for id_ in self._hands:  # promised a node, or nothing new can be said about it
            if id_ in known:
                self._stay(id_, known[id_])
        self._hands = []
        if taken:
            self._report.decided(taken, decided, self._clock.monotonic() - began)
        return Turn(decided, asked)

    def _stay(self, id_: str, pod: pods.Pod) -> None:
        """The pod waits on, until something changed."""
        if id_ not in self._queue.parked():
            self._queue.park(id_, order.rank(pod), awaited.names_for(pod))

    def _lift(self, id_: str) -> None:
        """A pod that may be parked is in our hands."""
        if id_ in self._queue.parked():
            self._queue.lift(id_)
            self._hands.append(id_)

    def put_back(self) -> int:
        """After a turn that failed: every pod that it had taken, and that is nowhere, waits for a time. How many."""
        hands, self._hands = self._hands, []
        count = 0
        for id_ in hands:
            pod = self._world.pods.get(id_)
            if id_ in self._queue or pod is None or not self._is_waiting(id_, pod):
                continue
            self._queue.delay(id_, order.rank(pod), self._clock.monotonic())
            count += 1
        return count

    def _is_waiting(self, id_: str, pod: pods.Pod) -> bool:
        is_placed = bool(pod.spec.node_name) or id_ in self._flights or id_ in self._world.assumed
        return not is_placed and pod.metadata.deletion_timestamp is None

    def _leave(self, id_: str, pod: pods.Pod, now: float) -> None:
        """The plan does not speak of the pod: it waits no longer, or the plan is wrong and it is asked about again."""
        if self._is_waiting(id_, self._world.pods.get(id_, pod)):
            self._queue.delay(id_, order.rank(pod), now)
            LOG.warning("not decided about", extra={"pod": pod.metadata.name})
        else:
            self._queue.drop(id_)
            LOG.debug("left out", extra={"pod": pod.metadata.name})

    def _decided(
        self, among: Collection[str] | None, known: dict[str, pods.Pod], spared: Collection[str], now: float
    ) -> plan.Plan:
        """The plan for these pods; those that cannot be decided about wait for a time, and are no longer known."""
        groups = _Groups(lambda: self._by_gang(known.values()))
        ask = functools.partial(self._ask, spared=spared)
        outcome = self._deciding.decided(ask, among, groups)
        for id_, fault in outcome.faults.items():
            self._lift(id_)
            deciding.set_aside(known.pop(id_), fault, teller=self._teller, queue=self._queue, now=now)
        for id_ in outcome.later:
            self._queue.ready(id_, order.rank(known.pop(id_)))
        return vetting.vetted(outcome.decided, known, self._world, self._meter)

    def _start(self, placements: Iterable[plan.Placement], known: dict[str, pods.Pod]) -> None:
        """Pods of one gang are written together, others each alone."""
        gangs_: dict[plan.GangRef, list[tuple[pods.Pod, plan.Placement]]] = {}
        for placement in placements:
            pod = known.pop(placement.pod.uid, None)
            if pod is None:
                continue  # nobody asked about it: it rests, or is not ours
            self._lift(placement.pod.uid)
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
            nodes = self._slots.nodes_for(lifted, asked)
            answer = self._ask([*asked], spared=spared, toward=nodes, aside=self._deciding.aside)
            decided = vetting.vetted(answer, asked, self._world, self._meter)
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
        unwinding = filter(self._flights.is_unwinding, waiting_) if self._flights.is_unwinding_any else ()
        late = [pod for id_ in self._queue.resting if (pod := self._world.pods.get(id_)) is not None]
        return {self._gang_of(pod) for pod in (*late, *unwinding)}

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
        if refuse.is_to_be_continued(refusal):
            if self._queue.go_on_later(id_, order.rank(pod)) == TOLD_AFTER:
                self._teller.refused(pod, refusal)
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

    def _size_batch(self, taken: list[str], seconds: float, *, least: int) -> None:
        """The next batch is as large as would have taken the bound; no smaller where a budget was the bound."""
        per_pod = max(seconds / len(taken), 1e-6)
        fitting = int(self._bounds.loop_seconds / per_pod)
        self._batch = max(least, min(MOST_IN_BATCH, fitting, len(taken) * 2))

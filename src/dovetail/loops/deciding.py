"""Asks for a plan, and finds out what it cannot be asked about: no job may keep the others waiting for ever.

Given a function that decides. A fault in it is ours to mend; until then every job it trips over is set aside, whether
the job waits or runs, and however many there are. A job that waits says so and is tried again later and later; a job
that runs goes on, but is no part of decisions. What was set aside is remembered, so that later turns do not search
again. A fault that no job explains is raised. Never decides itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from dovetail.loops import tell, waiting
from dovetail.model import plan, pods
from dovetail.model.gangs import GangKey
from dovetail.ports import clock as clocks
from dovetail.ports import meter
from dovetail.schedule import order
from dovetail.world import events
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.schedule")
SAID: Final = "an error inside the scheduler keeps it from deciding about this pod; its log says which"
MOST_ASKS: Final = 64  # of one turn; what is not looked at by then is looked at in the next
MOST_PROBES: Final = 8  # of one turn: jobs that were set aside before and are tried again
MOST_BLAMED: Final = 4  # running jobs that one waiting job may trip over before it is to blame itself
PROBE_SECONDS: Final = 30.0  # after which a running job that was set aside is tried again


class Ask(Protocol):
    """Asks for a plan."""

    def __call__(self, among: Collection[str] | None, *, aside: Collection[GangKey]) -> plan.Plan:
        """The plan for these pods, or for all, without the gangs set aside."""
        ...


class Outcome(NamedTuple):
    """The plan for the pods that can be decided about, what went wrong with others, and which were not looked at."""

    decided: plan.Plan
    faults: dict[str, Exception]  # by id of a pod that waits
    later: tuple[str, ...] = ()


class Culprit(NamedTuple):
    """A running job that decisions trip over: about which waiting pods, and when it is tried again."""

    fault: Exception
    witnesses: tuple[str, ...]
    until: float


Groups = Mapping[GangKey, Sequence[str]]
Raises = Callable[[Sequence[GangKey]], Exception | None]


class Deciding:
    """Decides in spite of faults, and remembers which jobs they are about."""

    def __init__(self, world: World, clock: clocks.Clock, meter_: meter.Meter) -> None:
        self._world = world
        self._clock = clock
        self._meter = meter_
        self._waiting: dict[GangKey, Exception] = {}
        self._running: dict[GangKey, Culprit] = {}

    @property
    def aside(self) -> frozenset[GangKey]:
        """The gangs that are no part of decisions for now."""
        return frozenset((*self._waiting, *self._running))

    @property
    def running_aside(self) -> Collection[GangKey]:
        """Those of them that run."""
        return self._running.keys()

    def decided(self, ask: Ask, among: Collection[str] | None, groups: Groups) -> Outcome:
        """The plan for all of these groups, or for those that can be decided about."""
        self._forget_gone()
        turn = _Asks(ask)
        left, faults = self._tried_again(turn, groups)
        try:
            outcome = Outcome(ask(among, aside=self.aside), faults)
        except Exception as error:  # whatever it is: one job must not keep all others waiting
            self._meter.count("dovetail_decision_errors_total")
            outcome = self._searched(turn, left, faults, error)
        self._meter.gauge("dovetail_gangs_set_aside", len(self._waiting), state="waiting")
        self._meter.gauge("dovetail_gangs_set_aside", len(self._running), state="running")
        return outcome

    def _forget_gone(self) -> None:
        members, there = self._world.gangs.members, self._world.pods
        for key in [*self._waiting]:
            if not any(not there[id_].spec.node_name for id_ in members(key) if id_ in there):
                del self._waiting[key]
        for key in [*self._running]:
            if not members(key):
                del self._running[key]

    # Those that were set aside before

    def _tried_again(self, turn: _Asks, groups: Groups) -> tuple[Groups, dict[str, Exception]]:
        """The groups to decide about now, and the faults of those that were set aside before and still are."""
        if not self._waiting and not self._running:
            return groups, {}  # as a rule; they are not even looked at
        self._try_running_again(turn, {id_ for ids in groups.values() for id_ in ids})
        left: dict[GangKey, Sequence[str]] = {}
        faults: dict[str, Exception] = {}
        probes = 0
        for key, ids in groups.items():
            if key in self._running:
                faults |= dict.fromkeys(ids, self._running[key].fault)
                continue
            if key in self._waiting:
                fault: Exception | None = self._waiting[key]
                if probes < MOST_PROBES:
                    probes += 1
                    fault = turn.raised(ids, self.aside - {key})
                if fault is not None:
                    self._waiting[key] = fault
                    faults |= dict.fromkeys(ids, fault)
                    continue
                del self._waiting[key]
            left[key] = ids
        return left, faults

    def _try_running_again(self, turn: _Asks, asked: Collection[str]) -> None:
        now = self._clock.monotonic()
        due = [key for key, culprit in self._running.items() if culprit.until <= now]
        for key in due[:MOST_PROBES]:
            culprit = self._running[key]
            there = [id_ for id_ in culprit.witnesses if id_ in asked]
            fault = turn.raised(there, self.aside - {key})
            if fault is None:
                del self._running[key]
                LOG.info("decided about again", extra={"gang": "/".join(key)})
            else:
                self._running[key] = culprit._replace(fault=fault, until=now + PROBE_SECONDS)

    # Searching

    def _searched(self, turn: _Asks, groups: Groups, faults: dict[str, Exception], error: Exception) -> Outcome:
        """Sets aside one culprit after the other until the rest can be decided about.

        Groups are added to those that are known to do no harm: as many at once as the last culprit was away, so that
        few culprits among many groups cost a logarithm each, and culprits in a row one step each.
        """
        LOG.warning("deciding failed", extra={"gangs": len(groups), "why": repr(error)})
        outside = frozenset(groups)
        if (fault := turn.raised((), self.aside | outside)) is not None:
            self._blame_running(turn, (), outside, fault)
            turn.go_on()
        queue = [key for key in groups if key not in self._running]
        good: list[GangKey] = []
        step = len(queue)

        def raises(keys: Sequence[GangKey]) -> Exception | None:
            ids = [id_ for key in keys for id_ in groups[key]]
            return turn.raised(ids, self.aside | outside.difference(keys))

        while queue and turn.has_more:
            chunk = queue[:step]
            fault = raises([*good, *chunk])
            if fault is None:
                good += chunk
                queue = queue[len(chunk) :]
                step *= 2
                continue
            index, fault = _first(raises, good, chunk, fault)
            good += chunk[:index]
            culprit = chunk[index]
            queue = queue[index:]
            step = index + 1
            witnesses = [id_ for key in (*good, culprit) for id_ in groups[key]]
            if self._is_by_running(turn, witnesses, outside.difference(good, (culprit,)), fault):
                queue = [key for key in queue if key not in self._running]
                continue  # the group does no harm now, or is one of those that run
            self._waiting[culprit] = fault
            queue = queue[1:]
        for key, ids in groups.items():
            blamed = self._fault_of(key)
            if blamed is not None:
                faults |= dict.fromkeys(ids, blamed)
        later = tuple(id_ for key in queue for id_ in groups[key])
        ids = [id_ for key in good for id_ in groups[key]]
        decided = turn.plan_for(ids, self.aside | outside.difference(good))
        LOG.warning("set aside", extra={"waiting": len(self._waiting), "running": len(self._running)})
        return Outcome(decided, faults, later)

    def _fault_of(self, key: GangKey) -> Exception | None:
        if key in self._running:
            return self._running[key].fault
        return self._waiting.get(key)

    def _is_by_running(
        self, turn: _Asks, witnesses: Sequence[str], outside: Collection[GangKey], fault: Exception
    ) -> bool:
        """Whether few running jobs explain a fault about pods that wait; those are set aside then."""
        running = self._running_gangs(outside)
        if not running or turn.raised(witnesses, self.aside.union(outside, running)) is not None:
            return False
        before = dict(self._running)
        self._blame_running(turn, witnesses, outside, fault, most=MOST_BLAMED)
        if turn.raised(witnesses, self.aside.union(outside)) is None:
            return True
        self._running = before  # they explain nothing
        return False

    def _blame_running(
        self,
        turn: _Asks,
        witnesses: Sequence[str],
        outside: Collection[GangKey],
        fault: Exception,
        most: int | None = None,
    ) -> None:
        """Sets running jobs aside until a decision about these pods is possible. Raises where no job explains it."""
        queue = self._running_gangs(outside)
        if (left := turn.raised(witnesses, self.aside.union(outside, queue))) is not None:
            raise left
        everybody = frozenset(queue)

        def raises(keys: Sequence[GangKey]) -> Exception | None:
            return turn.raised(witnesses, self.aside.union(outside, everybody.difference(keys)))

        good: list[GangKey] = []
        step = len(queue)
        blamed = 0
        while queue and turn.has_more and (most is None or blamed < most):
            chunk = queue[:step]
            error = fault if len(chunk) == len(everybody) else raises([*good, *chunk])
            if error is None:
                good += chunk
                queue = queue[len(chunk) :]
                step *= 2
                continue
            index, error = _first(raises, good, chunk, error)
            good += chunk[:index]
            culprit = chunk[index]
            queue = queue[index + 1 :]
            step = index + 1
            blamed += 1
            until = self._clock.monotonic() + PROBE_SECONDS
            self._running[culprit] = Culprit(error, tuple(witnesses), until)
            LOG.error("a running gang is left out of decisions", exc_info=error, extra={"gang": "/".join(culprit)})
        if most is None:  # not looked at for now: each is tried again in one of the next turns
            now = self._clock.monotonic()
            self._running |= dict.fromkeys(queue, Culprit(fault, (), now))

    def _running_gangs(self, outside: Collection[GangKey]) -> list[GangKey]:
        """Gangs of which any pod has a node, in the World's order."""
        world, without = self._world, self.aside.union(outside)
        keys: dict[GangKey, None] = {}
        for id_ in (*world.running(), *world.assumed):
            member = world.gangs.of(id_)
            if member is not None and member.gang not in without:
                keys[member.gang] = None
        return [*keys]


class _Asks:
    """The questions of one turn, counted, and the last plan that came of one."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._left = MOST_ASKS
        self._last: tuple[frozenset[str], frozenset[GangKey], plan.Plan] | None = None

    @property
    def has_more(self) -> bool:
        """Whether anything more may be looked at in this turn."""
        return self._left > 0

    def go_on(self) -> None:
        """What runs was looked at; what waits may cost as much again."""
        self._left = MOST_ASKS

    def raised(self, ids: Iterable[str], aside: Collection[GangKey]) -> Exception | None:
        """What a decision about these pods, without these gangs, trips over."""
        self._left -= 1
        among, without = tuple(ids), frozenset(aside)
        try:
            decided = self._ask(among, aside=without)
        except Exception as error:  # whatever it is: one job must not keep all others waiting
            return error
        self._last = (frozenset(among), without, decided)
        return None

    def plan_for(self, ids: Iterable[str], aside: Collection[GangKey]) -> plan.Plan:
        """The plan for these pods; that of the last question where it was the same."""
        among, without = tuple(ids), frozenset(aside)
        if self._last is not None and self._last[:2] == (frozenset(among), without):
            return self._last[2]
        return self._ask(among, aside=without)


def _first(
    raises: Raises, good: Sequence[GangKey], chunk: Sequence[GangKey], fault: Exception
) -> tuple[int, Exception]:
    """Where the first culprit of a chunk is: what comes before it does no harm beside what is known to do none."""
    harmless, harmful = 0, len(chunk)
    while harmful - harmless > 1:
        middle = (harmless + harmful) // 2
        found = raises([*good, *chunk[:middle]])
        if found is None:
            harmless = middle
        else:
            harmful, fault = middle, found
    return harmful - 1, fault


def set_aside(pod: pods.Pod, fault: Exception, *, teller: tell.Teller, queue: waiting.Waiting, now: float) -> None:
    """Says so, to its owner and in the log, and lets it wait: each time longer."""
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    LOG.error("cannot be decided about", exc_info=fault, extra={"pod": name})
    teller.failed(pod, SAID)
    queue.delay(events.pod_id(pod), order.rank(pod), now)

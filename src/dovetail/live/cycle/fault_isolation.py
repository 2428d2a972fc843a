"""Calls `decide`, and isolates the jobs it fails over: one job must not keep all others waiting.

Given the World and the policy. An exception in `decide` is our own fault; until it is mended, every job
that triggers it is set aside, whether it waits or runs, and however many there are. A waiting job gets a
message and is tried again with growing delays; a running job goes on, but decisions leave it out. What
was set aside is remembered, so that later cycles do not search again. A failure that no job explains is
raised. Never decides itself.

The search: groups of pods are added to a set that is known to be harmless, as many at once as the last
culprit was away (doubling after a success, halving inside a chunk that fails). A few culprits among many
groups cost a logarithm each, culprits in a row one question each. A group counts as a culprit only
together with harmless ones, so groups that fail only in combination lose one of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from dovetail.kubetypes.core import pods
from dovetail.live import handle as handles
from dovetail.model import plan
from dovetail.model import policy as policies
from dovetail.model.gangs import GangKey
from dovetail.ports import clock as clocks
from dovetail.ports import meter
from dovetail.schedule import decide as engine
from dovetail.schedule import pod_order
from dovetail.world import events
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.schedule")
MESSAGE: Final = (
    "an error inside the scheduler keeps it from deciding about this pod; its log says which"
)
MOST_ASKS: Final = 64  # per cycle; groups that are not examined by then wait for the next cycle
MOST_PROBES: Final = 8  # per cycle: jobs that were set aside and are tried again
MOST_BLAMED: Final = 4  # running jobs that may explain a failure before the waiting job is blamed
PROBE_SECONDS: Final = 30.0  # until a running job that was set aside is tried again


class Decide(Protocol):
    """`schedule.decide.decide`, or a test's replacement."""

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
        aside: Collection[GangKey],
    ) -> plan.Plan:
        """The plan."""
        ...


class Outcome(NamedTuple):
    """The plan for the pods that can be decided about, and what became of the others."""

    decided: plan.Plan
    faults: dict[str, Exception]  # by id of a pod that waits
    later: tuple[str, ...] = ()  # not examined in this cycle


class Culprit(NamedTuple):
    """A running job that decisions fail over: for which waiting pods, and when it is tried again."""

    fault: Exception
    witnesses: tuple[str, ...]
    until: float


Groups = Mapping[GangKey, Sequence[str]]
Raises = Callable[[Sequence[GangKey]], Exception | None]
Blame = Callable[[GangKey, Exception, Sequence[GangKey]], None]


class Decider:
    """Decides in spite of faults, and remembers which jobs they are about."""

    def __init__(
        self,
        world: World,
        clock: clocks.Clock,
        meter_: meter.Meter,
        *,
        policy: policies.Policy = policies.DEFAULT,
        budget: policies.Budget = policies.LIVE,
        decide: Decide = engine.decide,
    ) -> None:
        self._world = world
        self._clock = clock
        self._meter = meter_
        self._policy = policy
        self._budget = budget
        self._decide = decide
        self._waiting: dict[GangKey, Exception] = {}
        self._running: dict[GangKey, Culprit] = {}

    @property
    def aside(self) -> frozenset[GangKey]:
        """The gangs that decisions leave out for now."""
        return frozenset((*self._waiting, *self._running))

    @property
    def running_aside(self) -> Collection[GangKey]:
        """Those of them that run."""
        return self._running.keys()

    def plan_for(
        self,
        among: Collection[str] | None,
        *,
        spared: Collection[str] = (),
        toward: Mapping[str, str] | None = None,
        aside: Collection[GangKey] | None = None,
    ) -> plan.Plan:
        """One call of `decide`, about these pods or all, without the gangs that are set aside."""
        return self._decide(
            self._world,
            self._policy,
            self._clock.now(),
            self._budget,
            among=among,
            spared=spared,
            toward=toward or {},
            aside=self.aside if aside is None else aside,
        )

    def decided(
        self, among: Collection[str] | None, groups: Groups, *, spared: Collection[str] = ()
    ) -> Outcome:
        """The plan for all of these groups, or for those that can be decided about."""
        self._forget_gone()
        questions = _Questions(self, spared)
        remaining, faults = self._retried(questions, groups)
        try:
            outcome = Outcome(self.plan_for(among, spared=spared), faults)
        except Exception as error:  # whatever it is: one job must not keep all others waiting
            self._meter.count("dovetail_decision_errors_total")
            outcome = self._searched(questions, remaining, faults, error)
        self._meter.gauge("dovetail_gangs_set_aside", len(self._waiting), state="waiting")
        self._meter.gauge("dovetail_gangs_set_aside", len(self._running), state="running")
        return outcome

    def _forget_gone(self) -> None:
        world = self._world
        for key in [*self._waiting]:
            members = [world.pods.get(pod_id) for pod_id in world.gangs.members(key)]
            if all(pod.spec.node_name for pod in members if pod is not None):
                del self._waiting[key]
        for key in [*self._running]:
            if not world.gangs.members(key):
                del self._running[key]

    # Jobs that were set aside before

    def _retried(
        self, questions: _Questions, groups: Groups
    ) -> tuple[Groups, dict[str, Exception]]:
        """The groups to decide about now, and the faults of those that stay set aside."""
        if not self._waiting and not self._running:
            return groups, {}  # the usual case; the groups are not even worked out
        pod_ids = {pod_id for group in groups.values() for pod_id in group}
        self._retry_running(questions, pod_ids)
        remaining: dict[GangKey, Sequence[str]] = {}
        faults: dict[str, Exception] = {}
        probes = 0
        for key, group in groups.items():
            if key in self._waiting and key not in self._running and probes < MOST_PROBES:
                probes += 1
                self._retry_waiting(questions, key, group)
            fault = self._fault_of(key)
            if fault is None:
                remaining[key] = group
            else:
                faults |= dict.fromkeys(group, fault)
        return remaining, faults

    def _retry_waiting(self, questions: _Questions, key: GangKey, group: Sequence[str]) -> None:
        fault = questions.fault_about(group, self.aside - {key})
        if fault is None:
            del self._waiting[key]
        else:
            self._waiting[key] = fault

    def _retry_running(self, questions: _Questions, pod_ids: Collection[str]) -> None:
        now = self._clock.monotonic()
        due = [key for key, culprit in self._running.items() if culprit.until <= now]
        for key in due[:MOST_PROBES]:
            culprit = self._running[key]
            witnesses = [pod_id for pod_id in culprit.witnesses if pod_id in pod_ids]
            fault = questions.fault_about(witnesses, self.aside - {key})
            if fault is None:
                del self._running[key]
                LOG.info("gang.decided_again", extra={"gang": "/".join(key)})
            else:
                self._running[key] = culprit._replace(fault=fault, until=now + PROBE_SECONDS)

    def _fault_of(self, key: GangKey) -> Exception | None:
        if key in self._running:
            return self._running[key].fault
        return self._waiting.get(key)

    # Searching

    def _searched(
        self,
        questions: _Questions,
        groups: Groups,
        faults: dict[str, Exception],
        error: Exception,
    ) -> Outcome:
        """Sets one culprit after another aside until the others can be decided about."""
        LOG.warning("decide.failed", extra={"gangs": len(groups), "why": repr(error)})
        outside = frozenset(groups)
        if (fault := questions.fault_about((), self.aside | outside)) is not None:
            self._blame_running(questions, (), outside, fault)
            questions.reset()

        def raises(keys: Sequence[GangKey]) -> Exception | None:
            pod_ids = _pod_ids(groups, keys)
            return questions.fault_about(pod_ids, self.aside | outside.difference(keys))

        def blame(culprit: GangKey, fault: Exception, harmless: Sequence[GangKey]) -> None:
            witnesses = _pod_ids(groups, (*harmless, culprit))
            unexamined = outside.difference(harmless, (culprit,))
            if not self._is_by_running(questions, witnesses, unexamined, fault):
                self._waiting[culprit] = fault

        suspects = [key for key in groups if key not in self._running]
        harmless, unexamined = self._culprits(questions, suspects, raises, blame)
        for key, group in groups.items():
            if (blamed := self._fault_of(key)) is not None:
                faults |= dict.fromkeys(group, blamed)
        aside = self.aside | outside.difference(harmless)
        decided = questions.plan_for(_pod_ids(groups, harmless), aside)
        LOG.warning(
            "decide.set_aside",
            extra={"waiting": len(self._waiting), "running": len(self._running)},
        )
        return Outcome(decided, faults, tuple(_pod_ids(groups, unexamined)))

    def _is_by_running(
        self,
        questions: _Questions,
        witnesses: Sequence[str],
        outside: Collection[GangKey],
        fault: Exception,
    ) -> bool:
        """Whether a few running jobs explain a fault about waiting pods; if so they are set aside."""
        running = self._running_gangs(outside)
        without_running = self.aside.union(outside, running)
        if not running or questions.fault_about(witnesses, without_running) is not None:
            return False
        before = dict(self._running)
        self._blame_running(questions, witnesses, outside, fault, most=MOST_BLAMED)
        if questions.fault_about(witnesses, self.aside.union(outside)) is None:
            return True
        self._running = before  # they explain nothing
        return False

    def _blame_running(
        self,
        questions: _Questions,
        witnesses: Sequence[str],
        outside: Collection[GangKey],
        fault: Exception,
        most: int | None = None,
    ) -> None:
        """Sets running jobs aside until these pods can be decided about. Raises if none explains it."""
        suspects = self._running_gangs(outside)
        unexplained = questions.fault_about(witnesses, self.aside.union(outside, suspects))
        if unexplained is not None:
            raise unexplained
        all_suspects = frozenset(suspects)

        def raises(keys: Sequence[GangKey]) -> Exception | None:
            if len(keys) == len(all_suspects):
                return fault  # known already
            absent = all_suspects.difference(keys)
            return questions.fault_about(witnesses, self.aside.union(outside, absent))

        def blame(culprit: GangKey, error: Exception, harmless: Sequence[GangKey]) -> None:
            until = self._clock.monotonic() + PROBE_SECONDS
            self._running[culprit] = Culprit(error, tuple(witnesses), until)
            LOG.error(
                "gang.left_out: it runs on, but decisions leave it out",
                exc_info=error,
                extra={"gang": "/".join(culprit)},
            )

        _, unexamined = self._culprits(questions, suspects, raises, blame, most=most)
        if most is None:  # each of these is tried again in one of the next cycles
            now = self._clock.monotonic()
            self._running |= dict.fromkeys(unexamined, Culprit(fault, (), now))

    def _culprits(
        self,
        questions: _Questions,
        suspects: Sequence[GangKey],
        raises: Raises,
        blame: Blame,
        *,
        most: int | None = None,
    ) -> tuple[list[GangKey], list[GangKey]]:
        """Blames one culprit after another. Returns the harmless gangs, and those not examined.

        `blame` sets the culprit aside, or another gang that explains the fault; then the culprit is
        examined again. Both are gone from the queue by what is set aside afterwards.
        """
        harmless: list[GangKey] = []
        queue = [*suspects]
        step = len(queue)
        blamed = 0
        while queue and questions.may_ask and (most is None or blamed < most):
            chunk = queue[:step]
            fault = raises([*harmless, *chunk])
            if fault is None:
                harmless += chunk
                queue = queue[len(chunk) :]
                step *= 2
                continue
            index, fault = _first(raises, harmless, chunk, fault)
            harmless += chunk[:index]
            blame(chunk[index], fault, harmless)
            blamed += 1
            aside = self.aside
            queue = [key for key in queue[index:] if key not in aside]
            step = index + 1
        return harmless, queue

    def _running_gangs(self, outside: Collection[GangKey]) -> list[GangKey]:
        """Gangs with a pod on a node, in the World's order."""
        world, excluded = self._world, self.aside.union(outside)
        keys: dict[GangKey, None] = {}
        for pod_id in (*world.running(), *world.assumed):
            member = world.gangs.of(pod_id)
            if member is not None and member.gang not in excluded:
                keys[member.gang] = None
        return [*keys]


class _Questions:
    """The questions of one cycle's search, counted, and the plan of the last one that had an answer."""

    def __init__(self, decider: Decider, spared: Collection[str]) -> None:
        self._decider = decider
        self._spared = spared
        self._remaining = MOST_ASKS
        self._last: tuple[frozenset[str], frozenset[GangKey], plan.Plan] | None = None

    @property
    def may_ask(self) -> bool:
        """Whether the search may go on in this cycle."""
        return self._remaining > 0

    def reset(self) -> None:
        """The running jobs were examined; the waiting ones may cost as much again."""
        self._remaining = MOST_ASKS

    def fault_about(self, pod_ids: Iterable[str], aside: Collection[GangKey]) -> Exception | None:
        """What a decision about these pods, without these gangs, raises."""
        self._remaining -= 1
        among, excluded = tuple(pod_ids), frozenset(aside)
        try:
            decided = self._decider.plan_for(among, spared=self._spared, aside=excluded)
        except Exception as error:  # whatever it is: one job must not keep all others waiting
            return error
        self._last = (frozenset(among), excluded, decided)
        return None

    def plan_for(self, pod_ids: Iterable[str], aside: Collection[GangKey]) -> plan.Plan:
        """The plan for these pods; that of the last question if it was the same."""
        among, excluded = tuple(pod_ids), frozenset(aside)
        if self._last is not None and self._last[:2] == (frozenset(among), excluded):
            return self._last[2]
        return self._decider.plan_for(among, spared=self._spared, aside=excluded)


def _pod_ids(groups: Groups, keys: Iterable[GangKey]) -> list[str]:
    return [pod_id for key in keys for pod_id in groups[key]]


def _first(
    raises: Raises, harmless: Sequence[GangKey], chunk: Sequence[GangKey], fault: Exception
) -> tuple[int, Exception]:
    """The index of a chunk's first culprit: everything before it is harmless with the others."""
    low, high = 0, len(chunk)  # chunk[:low] is harmless, chunk[:high] is not
    while high - low > 1:
        middle = (low + high) // 2
        error = raises([*harmless, *chunk[:middle]])
        if error is None:
            low = middle
        else:
            high, fault = middle, error
    return high - 1, fault


def set_aside(pod: pods.Pod, fault: Exception, handle: handles.Handle, now: float) -> None:
    """Reports a pod that cannot be decided about, and retries it with growing delays."""
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    LOG.error("pod.not_decided", exc_info=fault, extra={"pod": name})
    handle.recorder.failed(pod, MESSAGE)
    handle.queue.delay(events.pod_id(pod), pod_order.rank(pod), now)

"""Keeps the jobs of a World from one decision to the next, so that what did not change costs next to nothing.

A job is built again when its gang, or any of its pods, is another object than before, which the gang log says; it
is reset when a decision changed its states. What all jobs depend on, such as queues, is compared as a whole. With
the memo off every job is built in every decision; the plan is the same. Never decides.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, ValuesView
from typing import Final, cast

import msgspec

from dovetail import cache
from dovetail.model import gangs, plan, policy
from dovetail.model.gangs import GangKey
from dovetail.model.queue import queue_access
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule import step_budget
from dovetail.schedule.evict import idle_work
from dovetail.schedule.gang.jobs import Job, SinglePodJob, State, job_of
from dovetail.schedule.gang.pod_window import SEEN, PendingDemand, PendingPods
from dovetail.schedule.gang.settled_jobs import SettledJobs
from dovetail.schedule.queue.accounts import NO_QUEUE
from dovetail.schedule.queue.amounts import Amounts
from dovetail.schedule.queue.pricing_cache import PricingCache
from dovetail.schedule.step_budget import STEP_BITS, TURN_STEPS
from dovetail.world.world import World

NOT_REMADE: Final = (
    "nothing makes its pod again (dovetail.dev/when-evicted: end would let it yield)"
)
MOST_BUILT: Final = 2_048  # jobs of single pending pods built in one bounded decision


class JobCache:
    """The jobs of one World under one policy."""

    def __init__(self, policy_: policy.Policy) -> None:
        self._names = policy_.scheduler_names
        self._preemptible_below = policy_.batch.preemptible_below
        self._order = tuple(STEP_BITS[step] for step in policy_.steps if step in TURN_STEPS)
        self._queue_rules: object = None  # what decided which queue a job uses
        self._log_position = -1  # in the gang log
        # By id, so that a decision copies it; None where no pod is this scheduler's.
        self._jobs: dict[str, Job | None] = {}
        self._absent: set[str] = set()  # where it is None
        self._places: dict[str, int] = {}  # by id, the order of the World
        self._others: dict[str, Job] = {}  # by id, all but pods that wait alone
        self._built: dict[str, int] = {}  # by id, the order in which they were built
        self._next = itertools.count()
        self.settled = SettledJobs()
        self._unsettled: dict[str, Job] = {}  # by id, the others of `_others`
        self._shown: list[Job] | None = None  # pods that wait alone, where not all are seen
        self._live: list[Job] = []  # in the last decision, the jobs that were not settled
        self._woken: list[Job] = []  # and the settled ones that it did something to
        self._pending = PendingPods()
        self._demand = PendingDemand()
        self._to_build: dict[GangKey, None] = {}  # pods that wait alone, for a later decision
        self._unbuilt: dict[GangKey, None] = {}  # set aside when they were due to be built
        self._seen: Mapping[str, Job] = {}  # in the last decision
        self._hidden: Collection[str] = ()  # ids that it does not see
        self._reasons: dict[str, Reason] = {}  # by job, why it may start nothing
        self._idle: list[Job] = []
        self._shielded: list[tuple[Job, bool]] = []  # with whether they are preemptible otherwise
        self._shielded_lately: list[Job] = []  # now, or in the last decision
        self.price_cache = PricingCache()
        self.rounds = step_budget.Rounds()

    def jobs(
        self,
        world: World,
        queues: Collection[str],
        aside: Collection[GangKey] = (),
        *,
        among: Collection[str] | None = None,
        is_bounded: bool = False,
    ) -> Mapping[str, Job]:
        """Every job by id, in the World's order, without those set aside; `queues` are the usable ones.

        A bounded decision does not see all of very many pods that wait alone.
        """
        for job in (*self._live, *self._woken):
            if job.is_changed:
                job.reset()
        self._live, self._woken = [], []

        first_pods: Collection[str] | None = None
        if is_bounded:
            first_pods = among if among is not None and len(among) <= SEEN else ()
        try:
            self._update(world, queues, aside, first_pods=first_pods)
        except BaseException:
            self._log_position = -1  # read all gangs again, so that no change is lost
            raise
        self._find_idle(world)
        self._find_starting(world)
        self._find_shielded(world)

        left_out = list(filter(None, (self._jobs.get(_job_id(key)) for key in aside)))
        for job in left_out:
            self._wake(self.settled.drop(job.id))
            for step in self._order:
                self.rounds.mark_turn(job, step)

        self._shown = None
        jobs: Mapping[str, Job | None] = self._jobs
        if is_bounded and len(self._pending) > SEEN:
            jobs = self._window(world, among)
        self._hidden = self._absent.union(job.id for job in left_out)
        self._seen = _SeenJobs(jobs, self._hidden)
        return self._seen

    # Jobs that a decision has to look at

    def live_jobs(self, world: World) -> list[Job]:
        """The jobs of this decision that are not settled, in its order. Prices must be up to date."""
        for job in self.settled.drop_changed(world, self.price_cache.basis):
            self._wake(job)
        for job in self._shielded_lately:
            if self.settled.is_outdated(job):
                self._wake(self.settled.drop(job.id))
        for job_id in [job_id for job_id in self._unsettled if job_id in self.settled]:
            del self._unsettled[job_id]

        self._live = self._live_in_order()
        if self._wake_sharing(world):
            self._live = self._live_in_order()
        return self._live

    def _wake_sharing(self, world: World) -> bool:
        """Looks again at settled jobs that share a claim with others; whether there are any."""
        if not self.settled:
            return False
        sharing = [owner for job in self._live for owner in self.settled.drop_sharing(world, job)]
        for job in sharing:
            self._wake(job)
        return bool(sharing)

    def _live_in_order(self) -> list[Job]:
        """The seen jobs that are not settled, in the order of all seen jobs."""
        hidden = self._hidden
        unsettled = [job for job in self._unsettled.values() if job.id not in hidden]
        if self._shown is not None:
            unsettled.sort(key=lambda job: self._built[job.id])
            return [*unsettled, *(job for job in self._shown if job.id not in hidden)]
        alone = [job for job in self._pending.jobs.values() if job.id not in hidden]
        return sorted([*unsettled, *alone], key=lambda job: self._places[job.id])

    def note_woken(self, job: Job) -> None:
        """A decision does something to a settled job; the next one finds it as it was."""
        self._woken.append(job)

    def _wake(self, job: Job | None) -> None:
        """A job that was settled is to be looked at again."""
        if job is not None:
            self._unsettled[job.id] = job

    # Pods that are not seen

    @property
    def _sees_all(self) -> bool:
        return len(self._seen) >= len(self._others) + len(self._pending)

    def lacks(self, step: policy.Step) -> bool:
        """Whether any job that is not seen in this decision had no turn in an action of this round."""
        if self._to_build:
            return True
        if self._sees_all:
            return False
        return self._pending.lacks(self.rounds, STEP_BITS[step], self._seen.keys())

    def unseen(self) -> Counter[str]:
        """By queue, how many pods that wait alone are not seen."""
        if self._sees_all:
            return Counter()
        counts = self._pending.counts()
        counts.subtract(Counter(job.queue for job in self._seen_alone()))
        return counts

    def _seen_alone(self) -> Iterable[Job]:
        """The pods that wait alone and are seen."""
        shown = self._shown if self._shown is not None else self._pending.jobs.values()
        return (job for job in shown if job.id not in self._hidden)

    def note_demand(self, job: Job, cost: Amounts | None) -> None:
        """Records the cost of a pod that waits alone while it is seen; None where it adds no demand."""
        if job.id not in self._pending.jobs:
            return
        if cost is None:
            self._demand.drop(job.id)
        else:
            self._demand.put(job.id, job.queue, cost)

    def unseen_demand(self) -> Iterator[tuple[str, Amounts, int]]:
        """By queue, the costs of jobs that were seen before and are not now, each with its number."""
        if not self._sees_all:
            yield from self._demand.unseen(job.id for job in self._seen_alone())

    def _window(self, world: World, among: Collection[str] | None) -> dict[str, Job]:
        """All gangs and running pods, the pods that have to be seen, and some of those that wait alone."""
        pod_ids = {*world.assumed, *world.pod_index.nominated()}
        if among is not None and len(among) <= SEEN:
            pod_ids.update(among)
        required_jobs = self._jobs_of(world, dict.fromkeys(sorted(pod_ids)))
        required = [job.id for job in required_jobs]
        required += [str(ref) for ref in world.promises]

        shown: dict[str, Job] = {}
        for job_id in required:
            if job_id in self._pending.jobs:
                shown[job_id] = self._pending.jobs[job_id]
        for job in self._pending.window(self.rounds, self._order):
            shown[job.id] = job
        self._shown = list(shown.values())
        return self._others | shown

    # Changes

    def _update(
        self,
        world: World,
        queues: Collection[str],
        aside: Collection[GangKey],
        *,
        first_pods: Collection[str] | None,
    ) -> None:
        """Builds the jobs of gangs that are new or changed.

        A bounded decision (`first_pods` is not None) builds the jobs of these pods first. Other pods that wait alone
        are left to the next decision if they are many.
        """
        is_bounded = first_pods is not None
        changed = self._changed_gangs(world, aside)
        access = self._queue_access(world)
        for key in changed:
            if key in aside:
                self._forget(_job_id(key), is_kept=True)
                self._unbuilt[key] = None
            elif is_bounded and self._waits_alone(world, key):
                self._forget(_job_id(key), is_kept=True)
                self._to_build[key] = None
            else:
                self._build(world, key, access, queues)

        for key in self._due_builds(world, first_pods):
            del self._to_build[key]
            if key in aside:
                self._unbuilt[key] = None
            else:
                self._build(world, key, access, queues)

    def _changed_gangs(self, world: World, aside: Collection[GangKey]) -> dict[GangKey, None]:
        """Gangs to build again since the last decision; forgets those that are gone."""
        rules = _queue_rules(world)
        entries = world.gangs.log.since(self._log_position)
        if self._queue_rules != rules or entries is None:
            entries = self._compare_all(world, aside, has_new_rules=self._queue_rules != rules)
            self._queue_rules = rules
        self._log_position = world.gangs.log.end

        changed, self._unbuilt = self._unbuilt, {}
        for key, is_gone in entries:
            self._to_build.pop(key, None)
            if is_gone:
                self._forget(_job_id(key))
                changed.pop(key, None)
            elif key in world.gangs.keys():  # noqa: SIM118 (not a mapping)
                self._take_place(_job_id(key))
                changed[key] = None
        return changed

    def _due_builds(self, world: World, first_pods: Collection[str] | None) -> list[GangKey]:
        """Of the pods that wait alone and have no job yet, those to build now: the ones asked about first."""
        due: dict[GangKey, None] = {}
        for pod_id in first_pods or ():
            member = world.gangs.of(pod_id)
            if member is not None and member.gang in self._to_build:
                due[member.gang] = None
        most = MOST_BUILT if first_pods is not None else None
        due.update(dict.fromkeys(itertools.islice(self._to_build, most)))
        return list(due)

    def _compare_all(
        self, world: World, aside: Collection[GangKey], *, has_new_rules: bool
    ) -> list[tuple[GangKey, bool]]:
        """Every gang that is another object than before, where the log does not reach back far enough."""
        keys = world.gangs.keys()
        ids = {_job_id(key) for key in keys}
        for job_id in list(self._jobs):
            if has_new_rules or job_id not in ids:
                self._forget(job_id)
        before, self._jobs, self._places = self._jobs, {}, {}
        self._absent.clear()
        changed: list[tuple[GangKey, bool]] = []
        for key in keys:
            job_id = _job_id(key)
            self._take_place(job_id)
            job = before.get(job_id)
            if job is not None:
                self._jobs[job_id] = job
                self._absent.discard(job_id)
            if key in aside or job is None or job.gang is not world.gangs.definition(key):
                changed.append((key, False))
        return changed

    def _waits_alone(self, world: World, key: GangKey) -> bool:
        members = world.gangs.members(key)
        if len(members) != 1:
            return False
        (pod_id,) = members
        pod = world.pods[pod_id]
        is_expected = pod.status.nominated_node_name or plan.GangRef(*key) in world.promises
        return pod_id not in world.assumed and not pod.spec.node_name and not is_expected

    def _build(
        self,
        world: World,
        key: GangKey,
        access: queue_access.QueueAccess | None,
        queues: Collection[str],
    ) -> None:
        job = self._job_of(world, key, access=access, queues=queues)
        job_id = _job_id(key)
        self._forget(job_id, is_kept=True)
        if job is None:
            return
        self._jobs[job_id] = job
        self._absent.discard(job_id)
        if isinstance(job, SinglePodJob) and job.has_waiting:
            self._pending.put(job)
        else:
            self._others[job_id] = self._unsettled[job_id] = job
            self._built[job_id] = next(self._next)

    def _take_place(self, job_id: str) -> None:
        """Gives a gang its place in the order of the World; it keeps the one it has."""
        if job_id not in self._jobs:
            self._jobs[job_id] = None
            self._absent.add(job_id)
            self._places[job_id] = next(self._next)

    def _forget(self, job_id: str, *, is_kept: bool = False) -> None:
        """Drops the job of a gang that is gone; with `is_kept` the gang keeps its place in the order."""
        job = self._jobs.get(job_id)
        if not is_kept:
            self._jobs.pop(job_id, None)
            self._places.pop(job_id, None)
            self._absent.discard(job_id)
        elif job is not None:
            self._jobs[job_id] = None
            self._absent.add(job_id)
        if job is not None:
            self.settled.drop(job_id)
            self._others.pop(job_id, None)
            self._unsettled.pop(job_id, None)
            self._built.pop(job_id, None)
            self._pending.drop(job_id)
            self._demand.drop(job_id)

    # Building jobs

    def left_out(
        self, world: World, queues: Collection[str], aside: Collection[GangKey]
    ) -> Iterator[Job]:
        """The jobs set aside, where they can be built: their queues still pay for what they hold."""
        access = self._queue_access(world) if aside else None
        for key in aside:
            if not world.gangs.members(key):
                continue
            job: Job | None = None
            # A fault of ours in building the job may be the very reason why it is set aside.
            with contextlib.suppress(Exception):
                job = self._job_of(world, key, access=access, queues=queues)
            if job is not None:
                yield job

    def reasons(self) -> dict[str, Reason]:
        """By job, why it may start nothing whatever is free."""
        if len(self._reasons) > len(self._jobs):
            current = self._jobs.keys() - self._absent
            self._reasons = {
                job_id: reason for job_id, reason in self._reasons.items() if job_id in current
            }
        return self._reasons

    def _job_of(
        self,
        world: World,
        key: GangKey,
        *,
        access: queue_access.QueueAccess | None,
        queues: Collection[str],
    ) -> Job | None:
        """The job of a gang; None if none of its pods is this scheduler's."""
        names = self._names
        members = {
            pod_id: (world.pods[pod_id], group)
            for pod_id, group in world.gangs.members(key).items()
            if not names or world.pods[pod_id].spec.scheduler_name in names
        }
        if not members:
            return None

        gang = world.gangs.definition(key)
        has_started = any(
            pod.spec.node_name or pod_id in world.assumed for pod_id, (pod, _) in members.items()
        )
        queue, reason = _queue(access, gang, queues, has_started=has_started)
        job = job_of(gang, members, queue=queue)
        if gang.is_preemptible is not None:
            job.is_preemptible = gang.is_preemptible
        else:
            job.is_preemptible = job.priority < self._preemptible_below
        if world.queues and job.is_preemptible and is_lost_by_eviction(gang):
            job.is_preemptible, job.non_preemptible_because = False, NOT_REMADE

        if reason is not None:
            self._reasons[job.id] = reason
        else:
            self._reasons.pop(job.id, None)
        return job

    @staticmethod
    def _queue_access(world: World) -> queue_access.QueueAccess | None:
        return queue_access.QueueAccess(world.queues, world.namespaces) if world.queues else None

    # States that depend on more than the gang

    def _find_idle(self, world: World) -> None:
        for job in self._idle:
            job.idle_since = None
        self._idle = []
        for job in self._jobs_of(world, world.idle):
            job.idle_since = idle_work.idle_since(world, job)
            self._idle.append(job)

    def _find_shielded(self, world: World) -> None:
        """Work that a disruption budget protects is not evicted. Where queues exist it counts as non-preemptible."""
        for job, is_preemptible in self._shielded:
            job.protected_by, job.is_preemptible = "", is_preemptible
            if job.non_preemptible_because != NOT_REMADE:
                job.non_preemptible_because = ""
        self._shielded_lately = [job for job, _ in self._shielded]
        self._shielded = []

        budget_by_pod = world.budget_protection.protected(world.running())
        for job in self._jobs_of(world, budget_by_pod):
            budgets = [budget_by_pod[pod_id] for pod_id in job.pods if pod_id in budget_by_pod]
            self._shielded.append((job, job.is_preemptible))
            self._shielded_lately.append(job)
            job.protected_by = min(budgets)
            if world.queues and job.is_preemptible:
                job.is_preemptible = False
                job.non_preemptible_because = (
                    f"disruption budget {job.protected_by} keeps it from being evicted"
                )

    def _find_starting(self, world: World) -> None:
        """Pods that were placed before and are not confirmed yet, or whose claims are not."""
        for job in self._jobs_of(world, world.assumed):
            for pod_id in job.pods.keys() & world.assumed.keys():
                if job.state[pod_id] in (State.WAITING, State.ACTIVE):
                    job.mark(pod_id, State.STARTING)

    def _jobs_of(self, world: World, pod_ids: Iterable[str]) -> list[Job]:
        """The jobs of these pods, each once."""
        job_ids: dict[str, None] = {}
        for pod_id in pod_ids:
            member = world.gangs.of(pod_id)
            if member is not None:
                job_ids[_job_id(member.gang)] = None
        jobs = map(self._jobs.get, job_ids)
        return [job for job in jobs if job is not None]


class _SeenJobs(Mapping[str, Job]):
    """The jobs that a decision sees: a table without some of its entries, which is not copied."""

    def __init__(self, jobs: Mapping[str, Job | None], hidden: Collection[str]) -> None:
        self._jobs = jobs
        self._hidden = hidden

    def __getitem__(self, job_id: str) -> Job:
        job = self._jobs[job_id]
        if job is None or job_id in self._hidden:
            raise KeyError(job_id)
        return job

    def __iter__(self) -> Iterator[str]:
        return (job_id for job_id in self._jobs if job_id not in self._hidden)

    def __len__(self) -> int:
        return len(self._jobs) - sum(job_id in self._jobs for job_id in self._hidden)

    def values(self) -> ValuesView[Job]:
        """The jobs, in order."""
        listed = {job_id: job for job_id, job in self._jobs.items() if job_id not in self._hidden}
        return cast("ValuesView[Job]", listed.values())


def _job_id(key: GangKey) -> str:
    return "/".join(key)


def is_lost_by_eviction(gang: gangs.Gang) -> bool:
    """Whether nothing recreates its pods, and its owner did not state that this is acceptable."""
    return not gang.is_recreated and not gang.may_be_lost


def of(world: World, policy_: policy.Policy) -> JobCache:
    """The job cache of a World, kept as long as the World lives."""
    if not policy_.memo:
        return JobCache(policy_)
    return _MEMORY.of(world, msgspec.json.encode(policy_), lambda: JobCache(policy_))


_MEMORY: Final = cache.WeakMemo[World, bytes, JobCache](cache.MOST_POLICIES)


def _queue_rules(world: World) -> object:
    """All that decides which queue a workload may use."""
    specs = {name: queue.spec for name, queue in world.queues.items()}
    if not world.queues:
        return specs, None
    labels: Mapping[str, Mapping[str, str]] = {
        name: namespace.metadata.labels for name, namespace in world.namespaces.items()
    }
    return specs, labels


def _queue(
    access: queue_access.QueueAccess | None,
    gang: gangs.Gang,
    queues: Collection[str],
    *,
    has_started: bool,
) -> tuple[str, Reason | None]:
    """The queue a gang uses, or is charged to; and why it may start nothing."""
    if access is None:
        return NO_QUEUE, None
    answer = access.resolve(gang.labels, gang.metadata.namespace, named=gang.queue)
    if answer.queue is not None:
        return answer.queue, None
    if answer.verdict is queue_access.Verdict.NONE:
        return NO_QUEUE, None
    reason = Reason(code=ReasonCode.QUEUE_UNUSABLE, detail=answer.reason)
    is_stranger = answer.verdict is queue_access.Verdict.REFUSED and not has_started
    if is_stranger:
        # A label alone opens nothing: work that may not use the queue is not in its numbers either.
        return NO_QUEUE, reason
    charged = answer.requested_queue if answer.requested_queue in queues else None
    return charged or NO_QUEUE, reason

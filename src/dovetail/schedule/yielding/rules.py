"""Decides who may make whom yield: consolidation, reclaim across queues, preemption in one. Rules, not the search.

Given a stage with accounts and jobs. Each rule says whether a job may ask at all, whom it may ask, and whether a
scenario that was tried is fair. Never tries one.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from dovetail.model import durations, plan
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule import order
from dovetail.schedule.gangs.jobs import Job, State
from dovetail.schedule.gangs.stage import Stage
from dovetail.schedule.queues import amounts, gate
from dovetail.schedule.queues.accounts import Account, called
from dovetail.schedule.queues.amounts import ENDLESS, Amounts


class Gone(NamedTuple):
    """Pods of a job that lose their place for good, and what they were charged."""

    job: Job
    ids: tuple[str, ...]
    cost: Amounts


class Rules(Protocol):
    """One way of making others yield."""

    rule: plan.Rule
    may_move: bool  # victims may find room elsewhere
    must_move: bool  # all of them have to
    most: int | None  # pods moved or ended

    def refusal(self, job: Job) -> Reason | None:
        """Why the job may ask nobody."""

    def victims(self, job: Job) -> Iterator[Job]:
        """Jobs it may ask, those in need of protection aside."""

    def min_runtime(self, job: Job, victim: Job) -> int:
        """Seconds a victim may run before it has to yield to this job."""

    def is_fair(self, job: Job, gone: Sequence[Gone], asked: Mapping[str, int]) -> bool:
        """Whether a scenario, as it stands, is allowed."""

    def told(self, job: Job) -> str:
        """The numbers, for those who have to yield."""


def may_evict(stage: Stage, job: Job) -> Reason | None:
    """Why a job may make nobody yield yet."""
    if any(job.pods[id_].spec.preemption_policy == "Never" for id_ in job.next_pods()):
        return Reason(code=ReasonCode.TOO_YOUNG, detail="its preemptionPolicy is Never: it waits for free room")
    wait = job.gang.may_evict_after
    if not wait or stage.now is None or job.created is order.NEVER:
        return None
    age = (stage.now - job.created).total_seconds()
    if age >= wait:
        return None
    return Reason(
        code=ReasonCode.TOO_YOUNG, detail=f"makes nobody yield until it has waited {wait} s; it is {age:.0f} s old"
    )


def may_evict_from(job: Job) -> datetime.datetime | None:
    """When a job that may make nobody yield yet has waited long enough; None where time changes nothing."""
    if not job.gang.may_evict_after or job.created is order.NEVER:
        return None
    if any(job.pods[id_].spec.preemption_policy == "Never" for id_ in job.next_pods()):
        return None
    return durations.later(job.created, job.gang.may_evict_after)


def running(stage: Stage, job: Job) -> Iterator[Job]:
    """Jobs that run and may be made to yield to somebody."""
    for other in stage.running_jobs():
        if other is job or not other.has_active:
            continue
        # Without queues priority alone decides, as with kube-scheduler, which asks for no controller either.
        if not stage.world.queues or not _would_be_lost(other):
            yield other


def _would_be_lost(job: Job) -> bool:
    """Whether nothing makes its pods anew, and nobody said that this is acceptable."""
    return not job.gang.is_recreated and not job.gang.may_be_lost


class Consolidation:
    """Others move so that a job fits. Nobody loses anything but time."""

    rule = plan.Rule.CONSOLIDATED
    may_move = True
    must_move = True

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.most = stage.policy.batch.consolidation_victims

    def refusal(self, job: Job) -> Reason | None:
        """Only for jobs that would yield themselves, and only where enough is free in total."""
        if not job.is_preemptible and not job.fixed_by:  # what cannot yield by circumstance did not ask for it
            return Reason(code=ReasonCode.GANG_WAITS, detail="nobody moves for work that would not yield itself")
        return None

    def victims(self, job: Job) -> Iterator[Job]:
        """Whoever may be made to yield and turns up again: nothing else can move."""
        return (one for one in running(self._stage, job) if one.gang.is_recreated)

    def min_runtime(self, job: Job, victim: Job) -> int:
        """Moving is not losing."""
        return 0

    def is_fair(self, job: Job, gone: Sequence[Gone], asked: Mapping[str, int]) -> bool:
        """Whether everybody found room."""
        return not gone

    def told(self, job: Job) -> str:
        """The numbers."""
        return "what is free is in pieces too small for it"


class Preemption:
    """Less important work of the same queue yields."""

    rule = plan.Rule.PREEMPTED
    may_move = True
    must_move = False
    most: int | None = None

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def refusal(self, job: Job) -> Reason | None:
        """Work that cannot be made to yield stays within quota."""
        if job.is_preemptible:
            return None
        return gate.quota_refusal(self._stage.accounts.by_name[job.queue], job.asked(), why=job.fixed_by)

    def victims(self, job: Job) -> Iterator[Job]:
        """Of the same queue and less important."""
        return (one for one in running(self._stage, job) if one.queue == job.queue and one.priority < job.priority)

    def min_runtime(self, job: Job, victim: Job) -> int:
        """The first that is set from the victim's queue upwards."""
        return _first(self._stage.accounts.by_name[victim.queue].lineage(), is_reclaim=False)

    def is_fair(self, job: Job, gone: Sequence[Gone], asked: Mapping[str, int]) -> bool:
        """Priority decided already."""
        return True

    def told(self, job: Job) -> str:
        """The numbers."""
        if not self._stage.world.queues:
            return f"priority {job.priority} comes before its own"
        return f"priority {job.priority} in queue {job.queue or 'of those without one'}"


class Reclaim:
    """Other queues give back what is due to this one."""

    rule = plan.Rule.RECLAIMED
    must_move = False
    most: int | None = None

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._accounts = stage.accounts
        self.may_move = stage.policy.batch.reclaim_may_move

    def refusal(self, job: Job) -> Reason | None:
        """A queue reclaims up to its fair share, work that cannot be made to yield up to its quota."""
        account = self._accounts.by_name[job.queue]
        asked = job.asked()
        for name in self._accounts.resources:
            held, due = account.charged.get(name, 0), account.fair[name]
            if held + asked.get(name, 0) > due:
                detail = f"{gate.text(name, held)} in use and {gate.text(name, asked.get(name, 0))} wanted exceed its "
                detail += f"fair share, {gate.text(name, due)} {name}"
                return Reason(code=ReasonCode.QUEUE_SHARE, subject=called(job.queue), detail=detail)
        return None if job.is_preemptible else gate.quota_refusal(account, asked, why=job.fixed_by)

    def victims(self, job: Job) -> Iterator[Job]:
        """Of other queues that have more than they are sure of."""
        asked = {name for name, amount in job.asked().items() if amount > 0}
        known: dict[str, bool] = {}
        for one in running(self._stage, job):
            if one.queue == job.queue:
                continue
            if one.queue not in known:
                known[one.queue] = self._offers(job, one.queue, asked)
            if known[one.queue]:
                yield one

    def _offers(self, job: Job, queue: str, asked: Iterable[str]) -> bool:
        mine, other = self._pair(job.queue, queue)
        if not self._is_within_quota(mine, job.asked()):
            return True
        finite = [name for name in asked if name in self._accounts.resources and other.quota_of(name) != ENDLESS]
        exceeds = any(other.charged.get(name, 0) > other.quota_of(name) for name in finite)
        is_below = any(other.charged.get(name, 0) < other.quota_of(name) for name in finite)
        return exceeds or not is_below

    def _is_within_quota(self, account: Account, more: Mapping[str, int]) -> bool:
        return all(
            account.charged.get(name, 0) + more.get(name, 0) <= account.quota_of(name)
            for name in self._accounts.resources
        )

    def _pair(self, mine: str, other: str) -> tuple[Account, Account]:
        """The two queues just below the lowest one both belong to."""
        ours = [*self._accounts.by_name[mine].lineage()]
        theirs = [*self._accounts.by_name[other].lineage()]
        while len(ours) > 1 and len(theirs) > 1 and ours[-1] is theirs[-1]:
            ours.pop()
            theirs.pop()
        return ours[-1], theirs[-1]

    def min_runtime(self, job: Job, victim: Job) -> int:
        """The first that is set from the victim's side of the branch upwards; of unrelated trees the root's only."""
        mine, other = self._pair(job.queue, victim.queue)
        upwards = [other] if other.parent is None and mine is not other else list(other.lineage())
        return _first(upwards, is_reclaim=True)

    def is_fair(self, job: Job, gone: Sequence[Gone], asked: Mapping[str, int]) -> bool:
        """Whether every victim's queue had too much before, and nobody is worse off than the reclaimer afterwards."""
        return self._are_due(job, gone) and self._stays_behind(job, gone, asked)

    def _are_due(self, job: Job, gone: Sequence[Gone]) -> bool:
        left: dict[str, Amounts] = {}
        for one in gone:
            for account in self._accounts.by_name[one.job.queue].lineage():
                amounts.add(left.setdefault(account.name, dict(account.charged)), one.cost)
        for one in gone:
            mine, other = self._pair(job.queue, one.job.queue)
            held = left[other.name]
            names = self._accounts.resources
            exceeds_share = any(held.get(name, 0) > other.allocatable[name] for name in names)
            if not exceeds_share and not (
                self._is_within_quota(mine, {}) and any(held.get(name, 0) > other.quota_of(name) for name in names)
            ):
                return False
            for account in self._accounts.by_name[one.job.queue].lineage():
                amounts.add(left[account.name], one.cost, sign=-1)
        return True

    def _stays_behind(self, job: Job, gone: Sequence[Gone], asked: Mapping[str, int]) -> bool:
        losing = {account.name for one in gone for account in self._accounts.by_name[one.job.queue].lineage()}
        involved = {name for one in (asked, *(g.cost for g in gone)) for name, amount in one.items() if amount > 0}
        involved &= set(self._accounts.resources)
        multiplier = self._stage.policy.batch.reclaim_multiplier
        for account in self._accounts.by_name[job.queue].lineage():
            siblings = account.parent.children if account.parent is not None else self._accounts.roots
            for other in siblings:
                if other is account or other.name not in losing:
                    continue
                for name in involved:
                    ratio = _ratio(account, name)
                    if other.fair[name] > 0 and ratio > 1 and ratio * multiplier >= _ratio(other, name):
                        return False
        return True

    def told(self, job: Job) -> str:
        """The numbers."""
        account = self._accounts.by_name[job.queue]
        asked = job.asked()
        typed = (one for one in account.quota if one != amounts.GPU and amounts.is_silicon(one) and asked.get(one))
        name = next(typed, amounts.GPU if asked.get(amounts.GPU) else amounts.CPU)
        held, due = account.charged.get(name, 0), account.fair[name]
        return f"{called(job.queue)} has {gate.text(name, held)} of the {gate.text(name, due)} {name} it is due"


def _ratio(account: Account, name: str) -> float:
    held, due = account.charged.get(name, 0), account.fair[name]
    return held / due if due else (ENDLESS if held else 0.0)


def _first(upwards: Iterable[Account], *, is_reclaim: bool) -> int:
    """The first minimum that is set."""
    for account in upwards:
        if account.queue is None:
            continue
        spec = account.queue.spec
        own = spec.reclaim_min_runtime_seconds if is_reclaim else spec.preempt_min_runtime_seconds
        if found := own if own is not None else spec.min_runtime_seconds:
            return found
    return 0


def seconds_running(stage: Stage, job: Job) -> float:
    """How long the job runs; without end where nobody knows."""
    started = [
        order.instant(job.pods[id_].status.start_time)
        for id_, state in job.state.items()
        if state is State.ACTIVE and job.pods[id_].status.start_time is not None
    ]
    if stage.now is None or not started:
        return ENDLESS
    return (stage.now - min(started)).total_seconds()

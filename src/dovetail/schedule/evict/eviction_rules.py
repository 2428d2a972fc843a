"""Decides which job may evict which: consolidation, reclaim between queues, preemption within one.

Given a transaction with accounts and jobs. Each rule says whether a job may evict at all, which jobs it may evict,
and whether a scenario that was tried is fair. The order of victims is `queue_order`'s, the search
`victim_search`'s. Never evicts.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from dovetail.model import gangs, plan
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.quantity import durations
from dovetail.schedule import pod_order
from dovetail.schedule.gang.job_cache import is_lost_by_eviction
from dovetail.schedule.gang.jobs import Job, State
from dovetail.schedule.gang.transaction import Transaction
from dovetail.schedule.queue import amounts, quota_check
from dovetail.schedule.queue.accounts import Account, display_name
from dovetail.schedule.queue.amounts import ENDLESS, Amounts

NEVER_PREEMPTS: Final = Reason(
    code=ReasonCode.TOO_YOUNG, detail="its preemptionPolicy is Never: it waits for free room"
)
OF_NO_QUEUE: Final = Reason(
    code=ReasonCode.TOO_YOUNG,
    detail="belongs to no queue, so it evicts only work of lower priority that belongs to none; "
    f"label {gangs.QUEUE_LABEL} names one",
)
# Why a job may evict nothing, or nothing more, as its owner should know; other failures of a search say less than the
# nodes do.
ABOUT_JOB: Final = frozenset({ReasonCode.TOO_YOUNG, ReasonCode.QUEUE_SHARE})


class Loss(NamedTuple):
    """What pods of a job were charged that lose their place for good."""

    job: Job
    cost: Amounts


class Rules(Protocol):
    """One way to make room by eviction."""

    rule: plan.Rule
    may_move: bool  # victims may be placed elsewhere
    must_move: bool  # all of them have to be
    most: int | None  # pods that may be moved or evicted for one job

    def refusal(self, job: Job) -> Reason | None:
        """Why the job may evict nothing."""

    def victims(self, job: Job) -> Iterator[Job]:
        """Jobs it may evict; minimum runtimes are checked later."""

    def min_runtime(self, job: Job, victim: Job) -> int:
        """Seconds a victim may run before this job may evict it."""

    def is_fair(self, job: Job, losses: Sequence[Loss], request: Mapping[str, int]) -> bool:
        """Whether a scenario is allowed, with the accounts as it leaves them."""

    def explanation(self, job: Job) -> str:
        """The numbers behind the eviction, for the owners of the victims."""


def may_evict(transaction: Transaction, job: Job) -> Reason | None:
    """Why a job may evict nothing yet."""
    if _never_preempts(job):
        return NEVER_PREEMPTS
    wait_seconds = job.gang.may_evict_after
    if not wait_seconds or transaction.now is None or job.created is pod_order.NEVER:
        return None
    age_seconds = (transaction.now - job.created).total_seconds()
    if age_seconds >= wait_seconds:
        return None
    return Reason(
        code=ReasonCode.TOO_YOUNG,
        detail=f"evicts no pod until it has waited {wait_seconds} s; it is {age_seconds:.0f} s old",
    )


def may_evict_from(job: Job) -> datetime.datetime | None:
    """When a job that may not evict yet has waited long enough; None where waiting changes nothing."""
    if not job.gang.may_evict_after or job.created is pod_order.NEVER or _never_preempts(job):
        return None
    return durations.later(job.created, job.gang.may_evict_after)


def _never_preempts(job: Job) -> bool:
    return any(job.pods[pod_id].spec.preemption_policy == "Never" for pod_id in job.next_pods())


def running(transaction: Transaction, job: Job) -> Iterator[Job]:
    """Other jobs that run and may be evicted."""
    for victim in transaction.running_jobs():
        if victim is job or not victim.has_active:
            continue
        # Without queues priority alone decides, as in kube-scheduler, which evicts pods without a controller, too.
        if not transaction.world.queues or not is_lost_by_eviction(victim.gang):
            yield victim


class Consolidation:
    """Running pods move so that a job fits. They lose time, and nothing else."""

    rule = plan.Rule.CONSOLIDATED
    may_move = True
    must_move = True

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self.most = transaction.policy.batch.consolidation_victims

    def refusal(self, job: Job) -> Reason | None:
        """Pods move only for jobs that would be moved themselves."""
        # A job that circumstances alone make non-preemptible (`fixed_by`) did not ask for it.
        if job.is_preemptible or job.non_preemptible_because:
            return None
        return Reason(code=ReasonCode.GANG_WAITS, detail="no pod is moved for non-preemptible work")

    def victims(self, job: Job) -> Iterator[Job]:
        """Preemptible jobs whose pods are recreated: no other pod can move."""
        return (victim for victim in running(self._transaction, job) if victim.gang.is_recreated)

    def min_runtime(self, job: Job, victim: Job) -> int:
        """A pod may be moved at any age."""
        return 0

    def is_fair(self, job: Job, losses: Sequence[Loss], request: Mapping[str, int]) -> bool:
        """Whether every victim found a place."""
        return not losses

    def explanation(self, job: Job) -> str:
        """The numbers."""
        return "the free capacity is in pieces too small for it"


class Preemption:
    """A job evicts jobs of lower priority in its own queue."""

    rule = plan.Rule.PREEMPTED
    may_move = True
    must_move = False
    most: int | None = None

    def __init__(self, transaction: Transaction) -> None:
        self._stage = transaction

    def refusal(self, job: Job) -> Reason | None:
        """Non-preemptible work stays within its quota."""
        if job.is_preemptible:
            return None
        account = self._stage.accounts.by_name[job.queue]
        return quota_check.quota_refusal(account, job.next_cost(), why=job.non_preemptible_because)

    def victims(self, job: Job) -> Iterator[Job]:
        """Jobs of the same queue with a lower priority."""
        for victim in running(self._stage, job):
            if victim.queue == job.queue and victim.priority < job.priority:
                yield victim

    def min_runtime(self, job: Job, victim: Job) -> int:
        """The first that is set, from the victim's queue upwards."""
        account = self._stage.accounts.by_name[victim.queue]
        return _min_runtime(account.lineage(), is_reclaim=False)

    def is_fair(self, job: Job, losses: Sequence[Loss], request: Mapping[str, int]) -> bool:
        """Always: priority decided already."""
        return True

    def explanation(self, job: Job) -> str:
        """The numbers."""
        if not self._stage.world.queues:
            return f"priority {job.priority} comes before its own"
        return f"priority {job.priority} in {display_name(job.queue)}"


class Reclaim:
    """A queue below its fair share takes it back from queues above theirs."""

    rule = plan.Rule.RECLAIMED
    must_move = False
    most: int | None = None

    def __init__(self, transaction: Transaction) -> None:
        self._stage = transaction
        self._accounts = transaction.accounts
        self.may_move = transaction.policy.batch.reclaim_may_move

    def refusal(self, job: Job) -> Reason | None:
        """A queue reclaims up to its fair share, for non-preemptible work up to its quota."""
        account = self._accounts.by_name[job.queue]
        request = job.next_cost()
        for name in self._accounts.resources:
            charged, fair = account.charged.get(name, 0), account.fair[name]
            amount = request.get(name, 0)
            if charged + amount > fair:
                detail = (
                    f"{quota_check.text(name, charged)} in use and "
                    f"{quota_check.text(name, amount)} wanted exceed its fair share, "
                    f"{quota_check.text(name, fair)} {name}"
                )
                return Reason(
                    code=ReasonCode.QUEUE_SHARE, subject=display_name(job.queue), detail=detail
                )

        if job.is_preemptible:
            return None
        return quota_check.quota_refusal(account, request, why=job.non_preemptible_because)

    def victims(self, job: Job) -> Iterator[Job]:
        """Jobs of other queues that hold more than their quota."""
        asked_names = {name for name, amount in job.next_cost().items() if amount > 0}
        is_open: dict[str, bool] = {}  # by queue, whether its jobs may be evicted
        for victim in running(self._stage, job):
            if victim.queue == job.queue:
                continue
            if victim.queue not in is_open:
                is_open[victim.queue] = self._may_reclaim_from(victim.queue, job, asked_names)
            if is_open[victim.queue]:
                yield victim

    def _may_reclaim_from(self, queue: str, job: Job, asked_names: Iterable[str]) -> bool:
        """Whether a queue may have to give back anything to the job.

        A job beyond its own quota may ask any queue, and `is_fair` then compares shares. A job within its quota asks
        queues above theirs; a queue that is below its quota in one resource, and above it in none, keeps what it has.
        """
        own, rival = self._branches(job.queue, queue)
        if not self._is_within_quota(own, job.next_cost()):
            return True

        finite = [
            name
            for name in asked_names
            if name in self._accounts.resources and rival.quota_of(name) != ENDLESS
        ]
        exceeds = any(rival.charged.get(name, 0) > rival.quota_of(name) for name in finite)
        is_below = any(rival.charged.get(name, 0) < rival.quota_of(name) for name in finite)
        return exceeds or not is_below

    def _is_within_quota(self, account: Account, more: Mapping[str, int]) -> bool:
        return all(
            account.charged.get(name, 0) + more.get(name, 0) <= account.quota_of(name)
            for name in self._accounts.resources
        )

    def _branches(self, queue: str, rival_queue: str) -> tuple[Account, Account]:
        """The ancestors of two queues just below their lowest common ancestor.

        Queues compete where their paths part: within one branch it is the branch's own affair how a share is used.
        """
        own = [*self._accounts.by_name[queue].lineage()]
        rival = [*self._accounts.by_name[rival_queue].lineage()]
        while len(own) > 1 and len(rival) > 1 and own[-1] is rival[-1]:
            own.pop()
            rival.pop()
        return own[-1], rival[-1]

    def min_runtime(self, job: Job, victim: Job) -> int:
        """The first that is set, from the victim's branch upwards; between unrelated trees only its root's."""
        own, rival = self._branches(job.queue, victim.queue)
        are_unrelated = rival.parent is None and own is not rival
        upwards = [rival] if are_unrelated else list(rival.lineage())
        return _min_runtime(upwards, is_reclaim=True)

    def is_fair(self, job: Job, losses: Sequence[Loss], request: Mapping[str, int]) -> bool:
        """Whether every victim's queue had too much before, and none is worse off than the reclaimer afterwards."""
        return self._losers_had_too_much(job, losses) and self._stays_behind(job, losses, request)

    def _losers_had_too_much(self, job: Job, losses: Sequence[Loss]) -> bool:
        """Whether each loss, one after the other, hits a queue that is still above its share or quota.

        The accounts are already charged as after the scenario, so all losses are added back first and then taken off
        one by one: only the last pod that a queue loses may bring it below its share.
        """
        charged: dict[str, Amounts] = {}
        for loss in losses:
            for account in self._accounts.by_name[loss.job.queue].lineage():
                before = charged.setdefault(account.name, dict(account.charged))
                amounts.add(before, loss.cost)

        for loss in losses:
            own, rival = self._branches(job.queue, loss.job.queue)
            if not self._has_too_much(rival, charged[rival.name], reclaimer=own):
                return False
            for account in self._accounts.by_name[loss.job.queue].lineage():
                amounts.add(charged[account.name], loss.cost, sign=-1)
        return True

    def _has_too_much(self, account: Account, charged: Amounts, *, reclaimer: Account) -> bool:
        """Above its share; or above its quota, where the reclaimer is within its own."""
        names = self._accounts.resources
        if any(charged.get(name, 0) > account.allocatable[name] for name in names):
            return True
        if not self._is_within_quota(reclaimer, {}):
            return False
        return any(charged.get(name, 0) > account.quota_of(name) for name in names)

    def _stays_behind(self, job: Job, losses: Sequence[Loss], request: Mapping[str, int]) -> bool:
        """Whether the reclaimer, beyond its fair share, still uses a smaller part of it than each sibling that loses.

        Else the sibling could reclaim the same capacity in the next cycle, and the two would evict each other forever.
        """
        losing: set[str] = set()
        involved = _names_of(request)
        for loss in losses:
            victim_account = self._accounts.by_name[loss.job.queue]
            losing |= {account.name for account in victim_account.lineage()}
            involved |= _names_of(loss.cost)
        involved &= set(self._accounts.resources)

        for account in self._accounts.by_name[job.queue].lineage():
            for sibling in self._siblings(account):
                if sibling.name not in losing:
                    continue
                if any(self._overtakes(account, sibling, name) for name in involved):
                    return False
        return True

    def _siblings(self, account: Account) -> list[Account]:
        """The other queues of the same parent, or the other top-level queues."""
        parent = account.parent
        siblings = parent.children if parent is not None else self._accounts.roots
        return [sibling for sibling in siblings if sibling is not account]

    def _overtakes(self, account: Account, sibling: Account, name: str) -> bool:
        if sibling.fair[name] <= 0:
            return False
        ratio = _used_part(account, name)
        multiplier = self._stage.policy.batch.reclaim_multiplier
        return ratio > 1 and ratio * multiplier >= _used_part(sibling, name)

    def explanation(self, job: Job) -> str:
        """The numbers, for the type of GPU the queue bounds if it does, else for GPUs or cpu."""
        account = self._accounts.by_name[job.queue]
        request = job.next_cost()
        typed = (
            name
            for name in account.quota
            if name != amounts.GPU and amounts.is_gpu_amount(name) and request.get(name)
        )
        name = next(typed, amounts.GPU if request.get(amounts.GPU) else amounts.CPU)
        charged = quota_check.text(name, account.charged.get(name, 0))
        fair = quota_check.text(name, account.fair[name])
        return f"{display_name(job.queue)} has {charged} of the {fair} {name} it is due"


def _names_of(cost: Mapping[str, int]) -> set[str]:
    return {name for name, amount in cost.items() if amount > 0}


def _used_part(account: Account, name: str) -> float:
    """What an account uses of its fair share: 1 for all of it."""
    charged, fair = account.charged.get(name, 0), account.fair[name]
    if fair:
        return charged / fair
    return ENDLESS if charged else 0.0


def _min_runtime(upwards: Iterable[Account], *, is_reclaim: bool) -> int:
    """The first minimum that is set, in seconds."""
    for account in upwards:
        if account.queue is None:
            continue
        spec = account.queue.spec
        by_rule = (
            spec.reclaim_min_runtime_seconds if is_reclaim else spec.preempt_min_runtime_seconds
        )
        seconds = by_rule if by_rule is not None else spec.min_runtime_seconds
        if seconds:
            return seconds
    return 0


def seconds_running(transaction: Transaction, job: Job) -> float:
    """How long the job has been running; without end where that is not known."""
    started = [
        pod_order.instant(job.pods[pod_id].status.start_time)
        for pod_id, state in job.state.items()
        if state is State.ACTIVE and job.pods[pod_id].status.start_time is not None
    ]
    if transaction.now is None or not started:
        return ENDLESS
    return (transaction.now - min(started)).total_seconds()

"""Makes room for jobs that found none, by one rule: consolidate, reclaim or preempt, as KAI's actions of these names.

Given a session and the rule, which says who may be evicted for whom. Every job that still waits has its turn, in queue
order; in a bounded decision, those that had none in this round. Never decides who is a victim: `victim_search` does.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

from dovetail.model import policy
from dovetail.model.reasons import Reason
from dovetail.schedule import gang_refusals
from dovetail.schedule.evict import eviction_rules
from dovetail.schedule.evict.victim_search import VictimSearch
from dovetail.schedule.gang.jobs import Job
from dovetail.schedule.queue.queue_order import JobQueue
from dovetail.schedule.session import Session
from dovetail.schedule.step_budget import EVICTION_STEPS, LOOK, SpentError, Steps

TOP_SHARE: Final = 0.25  # of all steps, for one job's search
MOST_PER_POD: Final = 128  # steps that the search may need for each pod of the first job in line


def run(session: Session, rules: eviction_rules.Rules, step: policy.Step) -> None:
    """Evicts by one rule for every job that still waits."""
    jobs: list[Job] | None = None
    end = 1.0  # the part of all steps after which this action is over
    if session.transaction.steps.most is not None:
        jobs = _jobs_due(session, step)
        if not jobs:
            return
        if session.transaction.steps.is_beyond(1):
            session.is_cut_short = True
            return
        end = _fair_end(session, step)

    with (
        session.transaction.after_evictions()
    ):  # entered once: it is as large as all that was decided so far
        _search(session, rules, jobs, step=step, end=end)
    if session.is_cut_short and not session.is_in_rounds:
        session.without_turn |= {job.id for job in session.jobs_without_turn(step)}


def _jobs_due(session: Session, step: policy.Step) -> list[Job]:
    """Jobs without a turn in this action that had one in every eviction action before it."""
    evicting = _eviction_steps(session)
    before = evicting[: evicting.index(step)]
    candidates = session.jobs_without_turn(step)
    return [
        job
        for job in candidates
        if all(session.had_turn(job, earlier_step) for earlier_step in before)
    ]


def _fair_end(session: Session, step: policy.Step) -> float:
    """Divides the steps that are left evenly among this action and those after it."""
    steps = session.transaction.steps
    assert steps.most is not None
    evicting = _eviction_steps(session)
    remaining = len(evicting) - evicting.index(step)
    spent = steps.spent / steps.most
    return spent + (1 - spent) / remaining


def _eviction_steps(session: Session) -> list[policy.Step]:
    return [step for step in session.transaction.policy.steps if step in EVICTION_STEPS]


def _search(
    session: Session,
    rules: eviction_rules.Rules,
    jobs: list[Job] | None,
    *,
    step: policy.Step,
    end: float,
) -> None:
    """Searches victims for jobs in order, until this part of all steps is spent. The first is always tried."""
    transaction, steps = session.transaction, session.transaction.steps
    waiting = _startable_by_queue(session)
    solver = VictimSearch(
        transaction, session.placer, rules, spared=session.spared, waiting=waiting
    )
    line = session.line() if jobs is None else JobQueue(transaction.accounts, jobs)
    failures: dict[Hashable, Reason] = {}  # by equivalence: jobs alike fail alike
    is_first = True

    for job in line:
        pod_ids = job.next_pods()
        if not pod_ids or not session.covers(pod_ids):
            continue
        if not is_first and steps.is_beyond(end):
            session.is_cut_short = True
            return
        steps.spend(LOOK)

        key = session.equivalence_key(job, pod_ids)
        limit = _step_limit(steps, end, len(pod_ids), is_first=is_first)
        try:
            with steps.at_most(limit):
                failure = failures.get(key) or solver.solve(job)
        except SpentError:
            if not is_first:
                session.is_cut_short = True
                return
            failure = gang_refusals.CUT_SHORT
        session.wake_by(solver.wake)
        is_first = False

        if failure is None:
            failures.clear()  # victims left, and another job may fit next to this one
            _record_start(session, job, pod_ids, line)
        else:
            failures[key] = failure
            session.mark_turn(job, step)
            _record_failure(session, job, failure)


def _startable_by_queue(session: Session) -> dict[str, list[Job]]:
    by_queue: dict[str, list[Job]] = {}
    for job in session.waiting_jobs():
        if session.may_start(job):
            by_queue.setdefault(job.queue, []).append(job)
    return by_queue


def _step_limit(steps: Steps, end: float, pod_count: int, *, is_first: bool) -> int | None:
    """Steps one job's search may take; the first in line as many as its pods may need."""
    steps_left = steps.left(end)
    if steps_left is None or steps.most is None:
        return None
    top = round(steps.most * TOP_SHARE)
    return max(top, pod_count * MOST_PER_POD) if is_first else min(steps_left, top)


def _record_start(session: Session, job: Job, pod_ids: Sequence[str], line: JobQueue) -> None:
    for pod_id in pod_ids:
        session.transaction.refusals.pop(pod_id, None)
    line.key_all()  # queues of victims hold less now
    if job.next_pods():
        line.put_back(job)


def _record_failure(session: Session, job: Job, failure: Reason) -> None:
    if failure.code in eviction_rules.ABOUT_JOB:
        session.may_not_evict[job.id] = failure
    if failure is gang_refusals.CUT_SHORT:
        gang_refusals.undecided(session.transaction, job, failure)
    else:
        gang_refusals.of_job(session.transaction, job, failure, keeps_known=True)

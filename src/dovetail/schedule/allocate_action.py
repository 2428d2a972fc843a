"""Hands out free capacity: jobs in queue order, each on the nodes where it costs others least. KAI's `allocate`.

Given a session. A job that its queue's quota refuses, or that finds no room, is recorded with the reason, and may be
promised a start. Never evicts, except where no queue exists and priority alone decides (`place_or_preempt`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from dovetail.model import plan, policy
from dovetail.model.reasons import Reason
from dovetail.schedule import gang_refusals, refusal_summary
from dovetail.schedule.gang.jobs import Job
from dovetail.schedule.queue import amounts, quota_check
from dovetail.schedule.queue.queue_order import JobQueue
from dovetail.schedule.session import Session
from dovetail.schedule.step_budget import LOOK, PLACE, TURN_STEPS, SpentError, Steps

SHARE: Final = 0.75  # of all steps; a quarter is left for eviction
TOP_SHARE: Final = 0.25  # of all steps, for the first in line while a round is under way
MOST_PER_POD: Final = 32  # steps that a pod of a gang may need to be placed; twelve are the rule


def run(session: Session) -> None:
    """Hands out what is free. A bounded decision begins with the first in line if anything changed.

    Then it continues with the jobs that earlier decisions of the round did not reach: however often the World changes,
    every job has a turn in every round.
    """
    if session.place_or_preempt is None:
        _run(session)
        return
    with session.place_or_preempt:
        _run(session)


def _run(session: Session) -> None:
    steps, rounds = session.transaction.steps, session.rounds
    if steps.most is None:
        _offer(session, session.line(), end=SHARE)
        return

    if session.is_changed:
        top = min(steps.spent / steps.most + TOP_SHARE, SHARE)
        _offer(session, session.line(), end=top if rounds.is_under_way else SHARE)
    if rounds.is_under_way and (unreached_jobs := session.jobs_without_turn(policy.Step.ALLOCATE)):
        _offer(session, JobQueue(session.transaction.accounts, unreached_jobs), end=SHARE)

    session.without_turn = {job.id for job in session.jobs_without_turn(policy.Step.ALLOCATE)}
    if session.without_turn or session.lacks_unseen(policy.Step.ALLOCATE):
        session.is_cut_short = True
    session.has_offered_all = not session.is_cut_short
    _skip_jobs_that_start_nothing(session)


def _skip_jobs_that_start_nothing(session: Session) -> None:
    """A job that may start nothing needs no turn in any action."""
    for job in session.waiting.values():
        if job.id in session.without_turn or session.had_turn(job, policy.Step.ALLOCATE):
            continue
        for step in TURN_STEPS:
            session.mark_turn(job, step)


def _offer(session: Session, line: JobQueue, *, end: float) -> None:
    """Tries jobs in order until this part of all steps is spent. The first job is always tried."""
    transaction, steps = session.transaction, session.transaction.steps
    is_first = True
    for job in line:
        pod_ids = job.next_pods()
        if not pod_ids or not session.covers(
            pod_ids
        ):  # a pod beyond the minimum may be out of scope
            continue
        if not is_first and steps.is_beyond(end):
            gang_refusals.put_off(transaction, job)
            return
        steps.spend(LOOK)

        over_quota = _quota_refusal(session, job, pod_ids)
        if over_quota is not None:
            session.mark_turn(job, policy.Step.ALLOCATE)
            gang_refusals.of_job(transaction, job, over_quota)
            if session.promises is not None:
                session.promises.closed(job)
            continue

        steps_left = steps.left(end)
        is_too_large = steps_left is not None and not is_first and steps_left < len(pod_ids) * PLACE
        if is_too_large or not _is_within_pod_budget(session, len(pod_ids)):
            session.is_cut_short = True
            gang_refusals.put_off(transaction, job)
            continue

        try:
            with steps.at_most(_step_limit(steps, steps_left, len(pod_ids), is_first=is_first)):
                refusal = (session.place_or_preempt or session.placer).step(job, pod_ids)
        except SpentError:
            if not is_first:
                gang_refusals.put_off(transaction, job)
                return
            first_pod = job.pods[pod_ids[0]]
            cut_short = (gang_refusals.CUT_SHORT,)
            refusal = refusal_summary.of_pod(first_pod, cut_short, is_undecided=True)
        is_first = False

        if refusal is None:
            _record_start(session, job, pod_ids, line)
        else:
            _record_refusal(session, job, pod_ids, refusal)


def _quota_refusal(session: Session, job: Job, pod_ids: Collection[str]) -> Reason | None:
    """Why the queue's quota does not admit these pods, even at their lowest price."""
    lowest_prices = [session.transaction.price_of_pending(pod_id)[0] for pod_id in pod_ids]
    lowest = lowest_prices[0] if len(lowest_prices) == 1 else amounts.total(lowest_prices)
    account = session.transaction.accounts.by_name[job.queue]
    return quota_check.refusal(
        account, lowest, is_fixed=not job.is_preemptible, why=job.non_preemptible_because
    )


def _is_within_pod_budget(session: Session, count: int) -> bool:
    """Whether so many more pods may start. A gang larger than half the budget may exceed it, once."""
    if session.most_pods is None or session.pods_left is None or count <= session.pods_left:
        return True
    half = session.most_pods // 2
    return count > half and session.most_pods - session.pods_left <= half


def _step_limit(
    steps: Steps, steps_left: int | None, pod_count: int, *, is_first: bool
) -> int | None:
    """Steps one job may take; the first in line as many as its pods may need."""
    if steps_left is None or steps.most is None:
        return None
    if not is_first:
        return steps_left
    return max(steps_left, round(steps.most * TOP_SHARE), pod_count * MOST_PER_POD)


def _record_start(session: Session, job: Job, pod_ids: Sequence[str], line: JobQueue) -> None:
    for pod_id in pod_ids:
        session.transaction.refusals.pop(pod_id, None)
    if session.pods_left is not None:
        session.pods_left -= len(pod_ids)
    if job.next_pods():
        line.put_back(job)


def _record_refusal(
    session: Session, job: Job, pod_ids: Sequence[str], refusal: plan.Refusal
) -> None:
    session.mark_turn(job, policy.Step.ALLOCATE)
    gang_refusals.behind_member(session.transaction, job, refusal)
    if session.promises is not None and not refusal_summary.is_to_be_continued(refusal):
        session.promises.blocked(job, pod_ids)

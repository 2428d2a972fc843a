"""Records why the pods of a job do not start: one reason for all of them, or one for each.

Given the transaction of a decision and a job. The reason recorded last stands, unless the caller keeps earlier ones.
Never decides whether a job starts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec

from dovetail.model import plan
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule import refusal_summary
from dovetail.schedule.evict import blocked_quota, eviction_rules
from dovetail.schedule.gang.jobs import Job, State, Team
from dovetail.schedule.gang.transaction import Transaction
from dovetail.schedule.queue.accounts import NO_QUEUE

CUT_SHORT: Final = Reason(
    code=ReasonCode.BUDGET, detail="the search for room was cut short after the steps of a turn"
)
NO_TURN: Final = Reason(
    code=ReasonCode.TO_BE_CONTINUED, detail="the cycle's budget of pods ended before its turn"
)
UNPLACEABLE: Final = Reason(
    code=ReasonCode.NEVER,
    detail="it fits no node even if all were empty, so it adds nothing to what its queue is due",
)
_OWN_OBSTACLES: Final = frozenset(  # of the pod, its gang or its queue: room would not help
    {
        ReasonCode.GATED,
        ReasonCode.GANG_INCOMPLETE,
        ReasonCode.QUEUE_LIMIT,
        ReasonCode.QUEUE_QUOTA,
        ReasonCode.POWER_CAP,
        ReasonCode.NEVER,
        ReasonCode.INPUT,
        ReasonCode.CLAIM_MISSING,
        ReasonCode.CLAIM_NOT_MADE,
        ReasonCode.CLAIM_QUEUE,
    }
)
_CLAIMS_TO_COME: Final = {
    ReasonCode.CLAIM_NOT_MADE,
    ReasonCode.CLAIM_MISSING,
    ReasonCode.CLAIM_RETURNING,
}


def of_job(
    transaction: Transaction, job: Job, reason: Reason, *, keeps_known: bool = False
) -> None:
    """All pods of the job wait for this reason; pods that have one already may keep theirs.

    Gated pods wait for their gates, whatever the job waits for: `session_plan` says so.
    """
    for pod_id, state in job.state.items():
        if state is State.WAITING and not (keeps_known and pod_id in transaction.refusals):
            transaction.refusals[pod_id] = refusal_summary.of_pod(job.pods[pod_id], (reason,))


def too_few(transaction: Transaction, job: Job) -> None:
    """The job waits for pods that do not exist, or that may not start."""
    states = list(job.state.values())
    startable = sum(state in (State.WAITING, State.ACTIVE) for state in states)
    gated = states.count(State.GATED)
    needed = _least_pods(job.root)

    have = f"{startable} of its pods {_be(startable)} there and free to start"
    held_back = f", {gated} {_be(gated)} gated" if gated else ""
    if needed > startable:
        missing = needed - startable
        need = f"its minimum is {needed}: {missing} more {_be(missing)} needed"
    else:  # enough pods in all, but not in each of its groups
        need = "one of its groups cannot reach its minimum"
    detail = f"{have}{held_back}; {need}"
    of_job(transaction, job, Reason(code=ReasonCode.GANG_INCOMPLETE, detail=detail))


def _least_pods(team: Team) -> int:
    """The fewest pods with which a group has its minimum."""
    if not team.holds_groups:
        return team.min
    fewest_first = sorted(map(_least_pods, team.teams))
    return sum(fewest_first[: team.min])


def _be(count: int) -> str:
    return "is" if count == 1 else "are"


def put_off(transaction: Transaction, job: Job) -> None:
    """The job had no turn in this decision; the next one continues."""
    for pod_id, state in job.state.items():
        if state is State.WAITING:
            transaction.refusals[pod_id] = refusal_summary.of_pod(
                job.pods[pod_id], (NO_TURN,), is_undecided=True
            )


def unpriced(transaction: Transaction, job: Job) -> None:
    """The price of one of its pods is unknown, so that no queue can admit it."""
    first = next(pod_id for pod_id in job.next_pods() if pod_id in transaction.unpriced)
    for pod_id, state in job.state.items():
        if state is State.WAITING:
            reason = transaction.unpriced.get(pod_id, transaction.unpriced[first])
            is_undecided = reason.code is ReasonCode.TO_BE_CONTINUED
            transaction.refusals[pod_id] = refusal_summary.of_pod(
                job.pods[pod_id], (reason,), is_undecided=is_undecided
            )


def undecided(transaction: Transaction, job: Job, reason: Reason) -> None:
    """Adds this reason to the one recorded before: the search was cut short."""
    for pod_id, state in job.state.items():
        if state is not State.WAITING:
            continue
        refusal = refusal_summary.of_pod(job.pods[pod_id], (reason,), is_undecided=True)
        before = transaction.refusals.get(pod_id)
        if before is not None:
            refusal = msgspec.structs.replace(
                refusal,
                summary=f"{before.summary}; {refusal.summary}",
                obstacles=(*before.obstacles, *refusal.obstacles),
                holding=before.holding,
            )
        transaction.refusals[pod_id] = refusal


def behind_member(transaction: Transaction, job: Job, refusal: plan.Refusal) -> None:
    """One pod found no node; the others of its gang wait for it."""
    detail = f"pod {refusal.pod.name} of its gang finds no place: {refusal.summary}"
    codes = {obstacle.reason.code for obstacle in refusal.obstacles}
    # A claim that is about to be created keeps all of them waiting for the same event, and not for long.
    code = min(codes) if codes and codes <= _CLAIMS_TO_COME else ReasonCode.GANG_WAITS
    reason = Reason(code=code, detail=detail)
    for pod_id, state in job.state.items():
        if state is State.WAITING:
            is_member = pod_id == refusal.pod.uid or len(job.pods) == 1
            transaction.refusals[pod_id] = (
                refusal if is_member else refusal_summary.of_pod(job.pods[pod_id], (reason,))
            )


def explained(
    transaction: Transaction,
    refusal: plan.Refusal,
    waits_behind: blocked_quota.BlockedQuota,
    *,
    unplaceable: Collection[str],
    may_not_evict: Mapping[str, Reason],
) -> plan.Refusal:
    """The refusal, with why no other pod makes room for the pod: what it waits behind, or why it evicts nothing."""
    if not transaction.includes(refusal.pod.uid):
        return refusal
    if refusal.pod.uid in unplaceable:
        return refusal_summary.with_reason(refusal, UNPLACEABLE)
    job = transaction.job_of(refusal.pod.uid)
    codes = {obstacle.reason.code for obstacle in refusal.obstacles}
    if codes & _OWN_OBSTACLES or refusal.is_undecided or not job.next_pods():
        return refusal

    for reason in _why_none_makes_room(transaction, job, waits_behind, may_not_evict.get(job.id)):
        if reason.code not in codes:
            refusal = refusal_summary.with_reason(refusal, reason)
            codes.add(reason.code)
    return refusal


def _why_none_makes_room(
    transaction: Transaction,
    job: Job,
    waits_behind: blocked_quota.BlockedQuota,
    not_evicting: Reason | None,
) -> Iterator[Reason]:
    has_queues = bool(transaction.world.queues)
    if has_queues and (blocked := waits_behind.of(job)) is not None:
        yield blocked
    # Where no queue exists, all work shares one account, and its share is the whole cluster.
    if not_evicting is not None and (has_queues or not_evicting.code is not ReasonCode.QUEUE_SHARE):
        yield not_evicting
    if has_queues and _has_priority_without_queue(transaction, job):
        yield eviction_rules.OF_NO_QUEUE


def _has_priority_without_queue(transaction: Transaction, job: Job) -> bool:
    """Whether a job would preempt running pods if no queue existed, and belongs to none."""
    if job.queue != NO_QUEUE:
        return False
    lowest = transaction.world.lowest_priority(transaction.policy.scheduler_names)
    return lowest is not None and lowest < job.priority

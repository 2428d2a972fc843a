"""Reads the plan off a session: what starts, what is nominated, who is evicted, and a reason for every pod that waits.

Given a session whose actions have run. A waiting job may be promised a start instead. Never changes the decision.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

import msgspec

from dovetail.kubetypes.core import pods
from dovetail.model import plan, policy
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule import gang_refusals, plan_draft, pod_order, refusal_summary
from dovetail.schedule.backfill import promises
from dovetail.schedule.evict import blocked_quota
from dovetail.schedule.gang.jobs import Job, State
from dovetail.schedule.gang.transaction import EvictedPod, PodPlacement
from dovetail.schedule.node import preconditions
from dovetail.schedule.node.pod_claims import PodClaims
from dovetail.schedule.queue import queue_numbers, queue_order
from dovetail.schedule.session import Session
from dovetail.schedule.step_budget import TURN_STEPS

_AWAITS_TURN: Final = Reason(code=ReasonCode.GANG_WAITS, detail="waits for its turn")


def finish(session: Session) -> plan.Plan:
    """The plan, and when the next decision is due."""
    session.wake_by(session.placer.wake)
    if session.place_or_preempt is not None:
        session.wake_by(session.place_or_preempt.wake)

    draft = plan_draft.PlanDraft()
    _add_starts(session, draft)
    _add_evictions(session, draft)
    promised = _promises(session)
    _add_refusals(session, draft, promised)
    session.end_round()

    transaction, job_cache = session.transaction, session.job_cache
    # Settled jobs run, unless this decision did something to them.
    running = transaction.settled.running - Counter(job.queue for job in transaction.woken.values())
    numbers = queue_numbers.numbers(
        transaction.accounts,
        (*transaction.live_jobs, *transaction.woken.values()),
        unseen=job_cache.unseen(),
        settled=running,
    )
    finished = draft.finish(wake_at=session.wake_at)
    return msgspec.structs.replace(finished, promises=promised, queues=numbers)


def _add_starts(session: Session, draft: plan_draft.PlanDraft) -> None:
    """Pods that start now, and pods nominated for a node that others leave first."""
    transaction = session.transaction
    gang_of_job: dict[str, plan.GangRef | None] = {}  # the gang, where its pods start only together
    for pod_id, start in transaction.placements.items():
        job = start.job
        if start.is_now:
            if job.id not in gang_of_job:
                gang_of_job[job.id] = gang_ref(job) if _starts_together(session, job) else None
            draft.start(
                start.pod,
                start.choice,
                start.needs,
                claim_lookup=transaction.claim_lookup,
                gang=gang_of_job[job.id],
            )
        elif pod_id not in transaction.evictions:
            draft.nominate(start.pod, start.choice.node, gang_ref(job))


def _starts_together(session: Session, job: Job) -> bool:
    """Whether the pods of a job that start are useless without each other; pods beyond a minimum start alone."""
    return len(job.pods) > 1 and not job.is_satisfied(
        job.root, without=session.transaction.placements
    )


def _add_evictions(session: Session, draft: plan_draft.PlanDraft) -> None:
    transaction = session.transaction
    for pod_id, cause in transaction.evictions.items():
        draft.evict(_eviction(cause, pod_id, transaction.placements.get(pod_id)))


def _eviction(cause: EvictedPod, pod_id: str, moved: PodPlacement | None) -> plan.Eviction:
    """The eviction of a pod; one that is given a place elsewhere moves, whatever the rule it was evicted by."""
    victim = plan.pod_ref(cause.job.pods[pod_id])
    beneficiary = gang_ref(cause.beneficiary) if cause.beneficiary is not None else None
    if moved is None:
        return plan.Eviction(
            pod=victim,
            gang=gang_ref(cause.job),
            rule=cause.rule,
            beneficiary=beneficiary,
            detail=cause.detail,
        )
    is_stale = cause.rule is plan.Rule.STALE
    return plan.Eviction(
        pod=victim,
        gang=gang_ref(cause.job),
        rule=cause.rule if is_stale else plan.Rule.CONSOLIDATED,
        beneficiary=beneficiary,
        detail=cause.detail,
        moves_to=moved.choice.node,
        keeps=tuple(moved.choice.allocations_to_assume(moved.pod).values()),
        made=moved.choice.made,
    )


def _promises(session: Session) -> tuple[plan.Promise, ...]:
    if session.promises is None:
        return ()
    promised = session.promises.final_promises()
    session.wake_by(session.promises.wake_at())
    return promised


def _add_refusals(
    session: Session, draft: plan_draft.PlanDraft, promised: tuple[plan.Promise, ...]
) -> None:
    transaction = session.transaction
    promise_of_pod = {
        pod_id: promise
        for promise in promised
        for pod_id in transaction.jobs[str(promise.gang)].pods
    }
    waits_behind = blocked_quota.BlockedQuota(transaction)
    for refusal in _refusals(session):
        explained = _explained(session, refusal, waits_behind)
        draft.wait(promises.with_promise(explained, promise_of_pod.get(refusal.pod.uid)))


class _Ranked(NamedTuple):
    job_key: queue_order.Key
    pod_rank: pod_order.Rank
    refusal: plan.Refusal


def _refusals(session: Session) -> list[plan.Refusal]:
    """Every pod that the decision is about and that waits, the most important first."""
    ranked: list[_Ranked] = []
    for job in session.waiting_jobs():
        job_key: queue_order.Key | None = None
        for pod_id, state in job.state.items():
            if state not in (State.WAITING, State.GATED) or not session.covers((pod_id,)):
                continue
            refusal = _refusal(session, job, pod_id)
            if refusal is None:
                continue
            job_key = job_key or queue_order.job_key(job)
            ranked.append(_Ranked(job_key, pod_order.rank(job.pods[pod_id]), refusal))
    ranked.sort(key=lambda entry: entry[:2])
    return [entry.refusal for entry in ranked]


def _refusal(session: Session, job: Job, pod_id: str) -> plan.Refusal | None:
    """Why a pod waits; None where an earlier decision of this round gave the reason."""
    pod = job.pods[pod_id]
    if job.state[pod_id] is State.GATED:
        return _never_tried(session, pod)  # its gates come before anything its job waits for

    reason = session.refused.get(job.id)
    if reason is not None:
        refusal: plan.Refusal | None = refusal_summary.of_pod(pod, (reason,))
    else:
        refusal = session.transaction.refusals.get(pod_id)

    # A nomination is not given up because the steps were spent before the pod's turn.
    keeps_nomination = bool(pod.status.nominated_node_name) and _is_unfinished(session, job)
    has_no_turn = job.id in session.without_turn and (refusal is None or not session.is_in_rounds)
    if keeps_nomination or has_no_turn:
        return refusal_summary.of_pod(pod, (gang_refusals.NO_TURN,), is_undecided=True)
    if refusal is not None:
        return refusal
    if session.rounds.is_under_way and session.had_turn(job, policy.Step.ALLOCATE):
        return None
    return _never_tried(session, pod)


def _is_unfinished(session: Session, job: Job) -> bool:
    """Whether a bounded decision ended before a job had its turn in some action."""
    if session.transaction.steps.most is None or not session.is_cut_short:
        return False
    steps = [step for step in session.transaction.policy.steps if step in TURN_STEPS]
    return not all(session.had_turn(job, step) for step in steps)


def _never_tried(session: Session, pod: pods.Pod) -> plan.Refusal:
    """Its gates and claims are the reason, or it is another job's turn."""
    needs = preconditions.needs(pod, session.transaction.claim_lookup)
    return refusal_summary.of_pod(pod, (_AWAITS_TURN,) if isinstance(needs, PodClaims) else needs)


def _explained(
    session: Session, refusal: plan.Refusal, waits_behind: blocked_quota.BlockedQuota
) -> plan.Refusal:
    transaction, pod_id = session.transaction, refusal.pod.uid
    is_refused = transaction.includes(pod_id) and transaction.job_of(pod_id).id in session.refused
    if is_refused and pod_id not in session.unplaceable:
        return refusal
    return gang_refusals.explained(
        transaction,
        refusal,
        waits_behind,
        unplaceable=session.unplaceable,
        may_not_evict=session.may_not_evict,
    )


def gang_ref(job: Job) -> plan.GangRef:
    """The gang of a job."""
    return plan.GangRef(job.gang.metadata.namespace, job.gang.metadata.name)

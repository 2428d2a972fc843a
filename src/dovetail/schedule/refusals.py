"""Notes on the stage of a decision why the pods of a job do not start: one reason for all, or one for each.

Given a stage and a job. What is noted last stands, unless the caller keeps what is known. Never decides whether a job
starts.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from dovetail.model import plan
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule import refuse
from dovetail.schedule.gangs.jobs import Job, State
from dovetail.schedule.gangs.stage import Stage
from dovetail.schedule.yielding import behind

CUT_SHORT: Final = Reason(code=ReasonCode.BUDGET, detail="the search for room was cut short after the steps of a turn")
NO_TURN: Final = Reason(code=ReasonCode.TO_BE_CONTINUED, detail="the cycle's budget of pods ended before its turn")
HOPELESS: Final = Reason(
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
_CLAIMS_TO_COME: Final = {ReasonCode.CLAIM_NOT_MADE, ReasonCode.CLAIM_MISSING, ReasonCode.CLAIM_RETURNING}


def of_job(stage: Stage, job: Job, reason: Reason, *, keeps_known: bool = False) -> None:
    """All pods of the job wait for this reason; those that have one already may keep it."""
    for id_, state in job.state.items():
        if state in (State.WAITING, State.GATED) and not (keeps_known and id_ in stage.refusals):
            stage.refusals[id_] = refuse.of_pod(job.pods[id_], (reason,))


def too_few(stage: Stage, job: Job) -> None:
    """The job waits for pods that are not there, or are not free to start."""
    there = sum(state in (State.WAITING, State.ACTIVE) for state in job.state.values())
    detail = f"only {there} of its pods are there and free to start; its minimum cannot be reached"
    of_job(stage, job, Reason(code=ReasonCode.GANG_INCOMPLETE, detail=detail))


def put_off(stage: Stage, job: Job) -> None:
    """The job had no turn in this decision; the next one goes on."""
    for id_, state in job.state.items():
        if state is State.WAITING:
            stage.refusals[id_] = refuse.of_pod(job.pods[id_], (NO_TURN,), is_undecided=True)


def unpriced(stage: Stage, job: Job) -> None:
    """What a pod of it wants is not known: no account can be asked whether it may have it."""
    first = next(id_ for id_ in job.next_pods() if id_ in stage.unpriced)
    for id_, state in job.state.items():
        if state is State.WAITING:
            reason = stage.unpriced.get(id_, stage.unpriced[first])
            is_undecided = reason.code is ReasonCode.TO_BE_CONTINUED
            stage.refusals[id_] = refuse.of_pod(job.pods[id_], (reason,), is_undecided=is_undecided)


def undecided(stage: Stage, job: Job, reason: Reason) -> None:
    """Nothing is known beyond what was noted before; this reason is added to it."""
    for id_, state in job.state.items():
        if state is not State.WAITING:
            continue
        refusal = refuse.of_pod(job.pods[id_], (reason,), is_undecided=True)
        before = stage.refusals.get(id_)
        if before is not None:
            refusal = msgspec.structs.replace(
                refusal,
                summary=f"{before.summary}; {refusal.summary}",
                obstacles=(*before.obstacles, *refusal.obstacles),
                holding=before.holding,
            )
        stage.refusals[id_] = refusal


def behind_member(stage: Stage, job: Job, refusal: plan.Refusal) -> None:
    """One pod found no place; the others of its gang wait for it."""
    detail = f"pod {refusal.pod.name} of its gang finds no place: {refusal.summary}"
    codes = {obstacle.reason.code for obstacle in refusal.obstacles}
    # A claim that is about to be made keeps all of them waiting for the same thing, and not for long.
    code = min(codes) if codes and codes <= _CLAIMS_TO_COME else ReasonCode.GANG_WAITS
    reason = Reason(code=code, detail=detail)
    for id_, state in job.state.items():
        if state is State.WAITING:
            is_member = id_ == refusal.pod.uid or len(job.pods) == 1
            stage.refusals[id_] = refusal if is_member else refuse.of_pod(job.pods[id_], (reason,))


def explained(
    stage: Stage, refusal: plan.Refusal, waits_behind: behind.Behind, *, hopeless: Collection[str]
) -> plan.Refusal:
    """The refusal; a pod that waits below its queue's quota reads behind whom, one that fits nowhere that it does."""
    if not stage.world.queues or not stage.knows(refusal.pod.uid):
        return refusal
    if refusal.pod.uid in hopeless:
        return refuse.also(refusal, HOPELESS)
    job = stage.job_of(refusal.pod.uid)
    is_own = any(obstacle.reason.code in _OWN_OBSTACLES for obstacle in refusal.obstacles)
    if is_own or refusal.is_undecided or not job.next_pods():
        return refusal
    reason = waits_behind.of(job)
    return refusal if reason is None else refuse.also(refusal, reason)

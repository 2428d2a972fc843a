"""Answers why a pod does not start: the engine's verdict, the cause, the funnels, who holds what is missing, and fixes.

Given a replica and the object that the question names. The verdict is the engine's plan about the whole cluster; the
cause comes from what would have to be different. Leaves the replica as it was. Never changes a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from dovetail.answer.replica import started_pods
from dovetail.answer.replica import verdict as verdicts
from dovetail.answer.replica.patches import ObjectRef, Patch, ref_of
from dovetail.answer.replica.replica import Edit, Replica
from dovetail.answer.why import (
    claims_to_come,
    funnel,
    holders,
    subjects,
    template_pods,
)
from dovetail.answer.why.cause_codes import CauseClass, CauseCode
from dovetail.answer.why.causes import eviction_causes, pod_causes
from dovetail.answer.why.causes.reason_causes import cause
from dovetail.answer.why.evidence import observed
from dovetail.answer.why.evidence.observation import Observed
from dovetail.answer.why.fixes import scheduler_names, search
from dovetail.answer.why.why_answer import Cause, Fix, Who, Why
from dovetail.kubetypes import codec, object_set
from dovetail.kubetypes.core import pods
from dovetail.model import plan, policy
from dovetail.schedule import pod_order
from dovetail.schedule.node import extended_resources
from dovetail.world import events

MOST_FIXED: Final = 10  # kinds of pods in a list that fixes are searched for
PREPARE_SECONDS: Final = 60  # where the engine has devices for it, and it still waits
# What is in the way before there are pods: their controllers create them once it is gone.
_LETS_CREATE: Final = frozenset(
    {CauseCode.OWNER_SUSPENDED, CauseCode.RESOURCE_QUOTA, CauseCode.RUNTIME_CLASS_MISSING}
)
# What objects show and the engine sees as well: a fix that it confirmed helps.
_OF_ENGINE: Final = frozenset(
    {
        CauseCode.GATED,
        CauseCode.TEMPLATE_MISSING,
        CauseCode.NOT_ADVERTISED,
        CauseCode.NO_DEVICES,
        CauseCode.RESOURCE_UNKNOWN,
        CauseCode.MIG_STATE,
        CauseCode.MIG_PROFILE,
        CauseCode.NODE_LABELS,
        CauseCode.SCALE_UP,
    }
)
MOST_TOGETHER: Final = 3  # fixes that are combined with one that lets pods be created


def why(replica: Replica, subject: ObjectRef) -> Why:
    """Why the pod, or the first waiting pod of the workload, does not start; or that it does."""
    pod = subjects.pod_of(replica, subject)
    if pod is None:
        return _without_pods(replica, subject)
    return about_pod(replica, pod)


def waiting(replica: Replica, namespace: str | None = None) -> Iterator[Why]:
    """The answer about every pod that waits, from one plan. Pods that differ in name only share one.

    Fixes take as many decisions as there are changes to try, so only the first kinds of pods get them.
    """
    decided = replica.decide()
    summaries = {refusal.pod: refusal.summary for refusal in decided.refusals}
    known: dict[object, Why] = {}
    for pod in subjects.waiting_pods(replica, namespace):
        summary = summaries.get(plan.pod_ref(pod), "")
        labels = tuple(sorted(pod.metadata.labels.items()))
        key = (pod.metadata.namespace, codec.encode_struct(pod.spec), labels, summary)
        answer = known.get(key) if summary else None
        if answer is None:
            answer = known[key] = about_pod(
                replica, pod, decided=decided, seeks_fixes=len(known) < MOST_FIXED
            )
        yield msgspec.structs.replace(answer, subject=ref_of(pod))


def about_pod(
    replica: Replica,
    pod: pods.Pod,
    *,
    decided: plan.Plan | None = None,
    seeks_fixes: bool = True,
) -> Why:
    """The answer about one pod. `decided` is the plan of the whole cluster, where it is known."""
    seen = observed.observed(replica, ref_of(pod))
    is_over = pod.status.phase in pods.TERMINAL_PHASES
    if is_over or (pod.metadata.deletion_timestamp is not None and not pod.spec.node_name):
        answer = _ended(pod)
    elif seen is not None and seen.overrides and not replica.world.nodes:
        answer = _answer(ref_of(pod), schedulable=False)  # without nodes the engine knows no more
    elif claims_to_come.is_awaited(replica.world, pod):
        answer = _with_claims_made(replica, pod, seeks_fixes=seeks_fixes)
    else:
        answer = _of_engine(replica, pod, decided, seeks_fixes=seeks_fixes)
    if seen is None:
        return answer
    if not answer.schedulable:
        seen = seen._replace(fixes=())  # something else keeps the pod from starting then
    elif seen.cause.code is CauseCode.RESOURCE_QUOTA:
        seen = seen._replace(fixes=_confirmed(seen.fixes, "with the claim it can start"))
    elif seen.cause.code is CauseCode.SCHEDULER_ABSENT:
        seen = seen._replace(fixes=scheduler_names.fixes(replica, events.pod_id(pod)))
    return _with_observed(answer, seen)


def _of_engine(
    replica: Replica,
    pod: pods.Pod,
    decided: plan.Plan | None = None,
    *,
    seeks_fixes: bool = True,
) -> Why:
    """What the engine says about a pod, and the fixes it confirmed."""
    pod_id = events.pod_id(pod)
    policy_ = _covering(replica.policy, pod)
    if decided is None or policy_ != replica.policy:
        decided = replica.decide(policy_=policy_)
    verdict = verdicts.verdict(replica, pod_id, decided)
    if verdict.is_bound and pod.spec.node_name not in replica.world.nodes:
        answer = _on_missing_node(replica, pod)
    elif verdict.starts:
        return _preparing(pod, verdict, replica.now) or _starts(pod, verdict)
    elif (later := _later(replica, pod, decided, policy_)) is not None:
        return later
    else:
        answer = _blocked(replica, pod, decided, verdict, policy_)
        answer = _with_eviction_rule(replica, pod, answer, policy_)
    tried = search.search(replica, pod_id, verdict) if seeks_fixes else ()
    return msgspec.structs.replace(answer, fixes=tried)


def _later(
    replica: Replica, pod: pods.Pod, decided: plan.Plan, policy_: policy.Policy
) -> Why | None:
    """The answer about a pod that starts once others have: pods that run may be moved for it, or evicted."""
    pod_id = events.pod_id(pod)
    started = started_pods.edits(replica, decided, without=(pod_id,))
    if not started or pod.spec.node_name:
        return None
    with replica.edited(started):
        verdict = verdicts.verdict(replica, pod_id, replica.decide(policy_=policy_))
    return _starts(pod, verdict) if verdict.starts and not verdict.is_bound else None


def _with_claims_made(replica: Replica, pod: pods.Pod, *, seeks_fixes: bool) -> Why:
    """The answer as if controllers had made the claims; where the pod starts then, it waits for them."""
    with replica.edited(list(claims_to_come.edits(replica))):
        ready = replica.pod(pod.metadata.namespace, pod.metadata.name)
        assert ready is not None
        answer = _of_engine(replica, ready, seeks_fixes=seeks_fixes)
    if answer.cause is not None:
        return answer
    templates = sorted(
        entry.resource_claim_template_name or "" for entry in pod.spec.resource_claims
    )
    text = f"{answer.verdict} once its claims are made from template {', '.join(filter(None, templates))}"
    return msgspec.structs.replace(answer, verdict=text)


def _covering(policy_: policy.Policy, pod: pods.Pod) -> policy.Policy:
    """A pod of a scheduler that the policy does not cover is judged as if it were one of ours."""
    names = policy_.scheduler_names
    if not names or pod.spec.scheduler_name in names:
        return policy_
    return msgspec.structs.replace(policy_, scheduler_names=())


def _ended(pod: pods.Pod) -> Why:
    """The answer about a pod that no scheduler looks at any more."""
    if pod.status.phase in pods.TERMINAL_PHASES:
        outcome = pod.status.phase.lower()
        where = f" on node {pod.spec.node_name}" if pod.spec.node_name else ""
        return _answer(ref_of(pod), schedulable=True, verdict=f"has ended: it {outcome}{where}")
    sentence = f"it was deleted at {pod.metadata.deletion_timestamp}, and will not start"
    if pod.metadata.finalizers:
        sentence += f"; finalizer {', '.join(pod.metadata.finalizers)} keeps the object"
    return _answer(
        ref_of(pod), schedulable=False, causes=(cause(CauseCode.BEING_DELETED, sentence),)
    )


def _starts(pod: pods.Pod, verdict: verdicts.Verdict) -> Why:
    if verdict.is_bound:
        text = f"has its node: {verdict.node}"
    elif verdict.evictions:
        victims = [str(eviction.pod) for eviction in verdict.evictions]
        shown = ", ".join(victims[:3]) + (
            f" and {len(victims) - 3} more" if len(victims) > 3 else ""
        )
        text = f"starts on node {verdict.node} when {shown} left it"
    else:
        text = f"starts on node {verdict.node}"
    return _answer(ref_of(pod), schedulable=True, verdict=text)


def _preparing(pod: pods.Pod, verdict: verdicts.Verdict, now: plan.Instant) -> Why | None:
    """The answer about a pod whose devices have to be prepared first, and have not been for a long time."""
    allocations = verdict.placement.allocations if verdict.placement is not None else ()
    conditions = sorted(
        {
            condition
            for allocation in allocations
            for result in allocation.result.devices.results
            for condition in result.binding_conditions
        }
    )
    age_seconds = _age_seconds(pod, now)
    if not conditions or age_seconds < PREPARE_SECONDS:
        return None
    sentence = (
        f"devices on node {verdict.node} have to be prepared first, and binding condition "
        f"{', '.join(conditions)} is not set after {age_seconds:.0f} s: their controller is silent"
    )
    waiting = (cause(CauseCode.BINDING_CONDITIONS, sentence),)
    return _answer(ref_of(pod), schedulable=False, causes=waiting)


def _age_seconds(pod: pods.Pod, now: plan.Instant) -> float:
    created = pod_order.instant(pod.metadata.creation_timestamp)
    return 0.0 if created is pod_order.NEVER else (now - created).total_seconds()


def _on_missing_node(replica: Replica, pod: pods.Pod) -> Why:
    name = pod.spec.node_name
    sentence = f"spec.nodeName is {name}, and node {name} does not exist"
    return _answer(ref_of(pod), schedulable=False, causes=(cause(CauseCode.NODE_NAME, sentence),))


def _blocked(
    replica: Replica,
    pod: pods.Pod,
    decided: plan.Plan,
    verdict: verdicts.Verdict,
    policy_: policy.Policy,
) -> Why:
    world = replica.world
    with world.trial():  # undone on exit, whatever happens
        _carry_out(replica, pod, decided)
        asked = pod_causes.causes_of(world, pod, verdict.refusal, policy_)
        answer = _answer(ref_of(pod), schedulable=False, causes=asked.causes)
        if asked.obstacles is None:
            return answer
        steps = (*funnel.of_nodes(asked.obstacles), *funnel.of_devices(asked.obstacles))
        answer = msgspec.structs.replace(
            answer, funnel=steps, expected_start=verdict.promised_start
        )
        if asked.way is None:
            return answer
        held = holders.holders_of(asked.way, asked.obstacles)
        return msgspec.structs.replace(answer, holders=held.shown, more_holders=held.more)


def _with_eviction_rule(
    replica: Replica, pod: pods.Pod, answer: Why, policy_: policy.Policy
) -> Why:
    """Where a rule about evictions alone keeps the pod waiting, that rule comes first."""
    if answer.cause is None or answer.cause.class_ is not CauseClass.CAPACITY:
        return answer
    rule = eviction_causes.cause_of(replica, pod, answer.holders, policy_)
    if rule is None:
        queueless = [item for item in answer.also if item.code is CauseCode.TOO_YOUNG]
        if not queueless:
            return answer
        rule = queueless[0]
    codes = {CauseCode.TOO_YOUNG, CauseCode.PREEMPTION_NEVER}
    rest = tuple(item for item in answer.also if item.code not in codes)
    return msgspec.structs.replace(answer, cause=rule, also=(answer.cause, *rest))


def _carry_out(replica: Replica, pod: pods.Pod, decided: plan.Plan) -> None:
    """Counts everything else that starts now as started: it comes first."""
    world, ref = replica.world, plan.pod_ref(pod)
    for placement in decided.placements:
        if placement.pod == ref:
            continue
        starting = replica.pod(placement.pod.namespace, placement.pod.name)
        if starting is None or events.pod_id(starting) in world.assumed:
            continue
        allocations = {
            (item.claim.namespace, item.claim.name): item.result for item in placement.allocations
        }
        if placement.made is not None:
            allocations[extended_resources.assumed_key(starting)] = placement.made.result
        world.assume(starting, placement.node, allocations, volumes=placement.volumes)


def _without_pods(replica: Replica, subject: ObjectRef) -> Why:
    """A workload none of whose pods waits: what objects and events say, else the engine about its template."""
    seen = observed.observed(replica, subject)
    owned = subjects.owned_pods(replica, subject)
    if seen is None or not seen.fixes:
        answer = _of_owned(subject, len(owned)) if owned else _of_template(replica, subject)
        return answer if seen is None else _with_observed(answer, seen)
    of_template = _of_template(replica, subject)
    answer = _of_owned(subject, len(owned)) if owned else of_template
    _, _, starts = of_template.verdict.partition("; ")
    fixes: tuple[Fix, ...] = ()
    if seen.cause.code in _LETS_CREATE and of_template.schedulable:
        fixes = _confirmed(seen.fixes, starts)
    elif seen.cause.code in _LETS_CREATE:
        fixes = tuple(_together(fix, seen.fixes) for fix in of_template.fixes[:MOST_TOGETHER])
    return _with_observed(answer, seen._replace(fixes=fixes))


def _together(fix: Fix, before: tuple[Fix, ...]) -> Fix:
    """What makes a pod of the template start, and what lets its controller create one."""
    parts = (fix, *before)
    return Fix(
        who=max((part.who for part in parts), key=list(Who).index),
        title="; ".join(part.title for part in parts),
        patch=tuple(patch for part in parts for patch in part.patch),
        effect=fix.effect,
    )


def _confirmed(fixes: tuple[Fix, ...], effect: str) -> tuple[Fix, ...]:
    """Fixes that let a controller create what is missing, after which the engine starts the pod."""
    return tuple(
        msgspec.structs.replace(fix, verified=True, effect=f"{fix.effect}; {effect}")
        for fix in fixes
    )


def _of_owned(subject: ObjectRef, count: int) -> Why:
    return _answer(subject, schedulable=True, verdict=f"none of its {count} pods waits")


def _of_template(replica: Replica, subject: ObjectRef) -> Why:
    """What the engine says about a pod of the workload's template."""
    stored = replica.get(subject.key)
    made = template_pods.pod_of(stored) if stored is not None else None
    if made is None:
        sentence = "it has no pods: its controller created none; its events say why"
        return _answer(subject, schedulable=False, causes=(cause(CauseCode.NO_PODS, sentence),))
    with replica.edited([Edit(object_set.key_of(made.struct), made)]):
        pod = replica.pod(made.struct.metadata.namespace, made.struct.metadata.name)
        assert pod is not None
        answer = about_pod(replica, pod)
    text = f"has no pods yet; a pod of its template {answer.verdict}" if answer.verdict else ""
    # The pod of the template does not exist: only fixes that change objects which do are kept.
    fixes = tuple(fix for fix in answer.fixes if _are_there(replica, fix.patch))
    return msgspec.structs.replace(answer, subject=subject, verdict=text, fixes=fixes)


def _are_there(replica: Replica, changes: tuple[Patch, ...]) -> bool:
    """Whether every object exists that these patches change."""
    return all(
        patch.create is not None or replica.get(patch.object.key) is not None for patch in changes
    )


def _with_observed(answer: Why, seen: Observed) -> Why:
    """The answer with what objects and events say; their cause first where it comes before the engine's."""
    answer = msgspec.structs.replace(answer, evidence=seen.evidence)
    if not seen.overrides and not (seen.is_foreign and answer.schedulable):
        return answer
    own = (answer.cause,) if answer.cause is not None else ()
    if own and _comes_first(own[0], seen.cause.code):
        return answer
    same = {seen.cause.code}
    if seen.cause.code is CauseCode.RESOURCE_QUOTA:
        same.add(CauseCode.CLAIM_NOT_MADE)  # for that very reason
    rest = tuple(item for item in (*own, *answer.also) if item.code not in same)
    # Only what the engine confirmed: Kueue decides by rules that it does not know. And what the engine found alone
    # does not suffice where something outside of it is in the way.
    own_fixes = answer.fixes if seen.cause.code in _OF_ENGINE else ()
    return msgspec.structs.replace(
        answer,
        schedulable=False,
        cause=seen.cause,
        also=rest,
        verdict="",
        fixes=(*(fix for fix in seen.fixes if fix.verified), *own_fixes),
    )


def _comes_first(own: Cause, seen: CauseCode) -> bool:
    """Whether what keeps the pod from starting later comes before what keeps it from being tried now."""
    if seen is CauseCode.CLAIM_NOT_MADE:
        return own.code is not seen
    return seen is CauseCode.GATED and own.class_ is CauseClass.CONFIG


def _answer(
    subject: ObjectRef, *, schedulable: bool, verdict: str = "", causes: tuple[Cause, ...] = ()
) -> Why:
    return Why(
        subject=subject,
        schedulable=schedulable,
        cause=causes[0] if causes else None,
        funnel=(),
        holders=(),
        fixes=(),
        verdict=verdict,
        also=causes[1:],
    )

"""Decides everything: which pods start, on which node and devices, which are evicted, which wait and why.

A plain function of the World, the policy, the time and a budget of steps: the same input gives the same plan. Pods
alone go one by one, as in kube-scheduler; queues and gangs go through the policy's actions, as in KAI. Leaves the World
as it was: the caller assumes the plan there when it carries it out. Never writes to a cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from dovetail.kubetypes.core import pods
from dovetail.model import gangs
from dovetail.model import plan as plans
from dovetail.model import policy as policies
from dovetail.model.policy import Step
from dovetail.schedule import (
    allocate_action,
    eviction_actions,
    gang_refusals,
    plan_draft,
    pod_order,
    quarantine_notes,
    refusal_summary,
    session_plan,
)
from dovetail.schedule.evict import eviction_rules, overtime, preemption_bound, stale_gangs
from dovetail.schedule.node import find_node, preconditions
from dovetail.schedule.node.pod_claims import ClaimLookup, PodClaims
from dovetail.schedule.queue import fair_share, power_caps
from dovetail.schedule.session import Scope, Session
from dovetail.world import events
from dovetail.world.world import World


def decide(
    world: World,
    policy: policies.Policy = policies.DEFAULT,
    now: plans.Instant | None = None,
    budget: policies.Budget = policies.UNLIMITED,
    *,
    among: Collection[str] | None = None,
    spared: Collection[str] = (),
    toward: Mapping[str, str] | None = None,
    aside: Collection[gangs.GangKey] = (),
) -> plans.Plan:
    """Which pending pods start, where and on which devices, which wait and which are evicted.

    About every pending pod, or those with the ids in `among`. Pods in `spared` are not evicted. Pods in `toward` try
    the node reserved for them first. Gangs in `aside` keep what they hold, charged to their queues, and are not
    decided about. Without queues, gangs and evictions, not linear in pods outside `among`.
    """
    scope = Scope(among, spared, toward or {}, aside)
    are_alone = not world.queues and world.gangs.is_trivial and not power_caps.has_caps(world)
    plan = _pods_alone(world, policy, budget, scope) if are_alone else None
    if plan is None:  # there are queues or gangs, or a pod might preempt others
        plan = _queues_and_gangs(world, policy, now, budget, scope)
    return quarantine_notes.with_quarantine_reasons(plan, world)


def _pods_alone(
    world: World, policy: policies.Policy, budget: policies.Budget, scope: Scope
) -> plans.Plan | None:
    """One pod after the other, as well as it can be placed. None as soon as one of them might preempt."""
    draft = plan_draft.PlanDraft()
    preemption = preemption_bound.PreemptionBound(world, policy)
    with world.trial():  # undone on exit, whatever happens
        claim_lookup = ClaimLookup(world)
        search = find_node.NodeSearch(world, policy, budget, among=scope.among)
        for turn, pod in enumerate(_pending(world, policy, scope)):  # 1. which pod is next
            if budget.pods is not None and turn >= budget.pods:
                draft.wait(refusal_summary.of_pod(pod, (gang_refusals.NO_TURN,), is_undecided=True))
                continue

            needs = preconditions.needs(
                pod, claim_lookup
            )  # 2. is it ready, which claims does it need
            if not isinstance(needs, PodClaims):
                draft.wait(refusal_summary.of_pod(pod, needs))
                continue

            placement = search.find(pod, needs)  # 3. filter nodes, score them, select one
            if isinstance(placement, plans.Refusal):
                if not placement.is_undecided and preemption.might_help(pod):
                    return None  # 4. else eviction, which the other path decides
                if preemption.never_preempts(pod):
                    placement = refusal_summary.with_reason(
                        placement, eviction_rules.NEVER_PREEMPTS
                    )
                draft.wait(placement)  # 5. else a reason
                continue

            draft.start(pod, placement, needs, claim_lookup=claim_lookup)
            devices = placement.allocations_to_assume(pod)
            world.assume(pod, placement.node, devices, volumes=placement.volumes)  # 6. assume it
            search.placed(placement)
    return draft.finish(wake_at=None)  # nothing here changes with time alone


def _queues_and_gangs(
    world: World,
    policy: policies.Policy,
    now: plans.Instant | None,
    budget: policies.Budget,
    scope: Scope,
) -> plans.Plan:
    """The policy's actions, in its order, over all jobs and queues at once."""
    with world.trial():  # undone on exit, whatever happens
        # 1. what each queue holds and waits for
        session = Session(world, policy, now, budget, scope)
        # 2. what each queue is due
        usage, usage_weight = session.past_usage(), policy.batch.usage_weight
        fair_share.divide(session.transaction.accounts, usage=usage, usage_weight=usage_weight)
        with session.running():
            # 3. who is next and where: in what is free, else where others are evicted
            for step in policy.steps:
                if session.is_over:
                    break
                _run_action(session, step)
            # 4. what starts and who leaves; for every other pod a promise and a reason
            return session_plan.finish(session)


def _run_action(session: Session, step: Step) -> None:
    transaction = session.transaction
    has_preempted = session.place_or_preempt is not None  # without queues, allocate preempts too
    match step:
        case Step.ALLOCATE:  # queues below their share first, each job where it costs others least
            allocate_action.run(session)
            session.drop_started()
        case Step.CONSOLIDATE if not session.has_pods_only:  # pods move, and none is lost
            eviction_actions.run(session, eviction_rules.Consolidation(transaction), step)
        case Step.RECLAIM:  # queues over their share give back
            eviction_actions.run(session, eviction_rules.Reclaim(transaction), step)
        case Step.PREEMPT if not has_preempted:  # lower priority in the same queue
            eviction_actions.run(session, eviction_rules.Preemption(transaction), step)
        case Step.STALE:  # gangs that stay below their minimum
            session.wake_by(stale_gangs.evict_stale_gangs(transaction))
        case Step.OVERTIME:  # jobs that run longer than they stated
            session.wake_by(overtime.evict_overtime(transaction, session.spared))


def _pending(world: World, policy: policies.Policy, scope: Scope) -> list[pods.Pod]:
    pending: Iterable[pods.Pod] = world.pending(scope.among)
    if scope.aside:
        pending = (pod for pod in pending if _gang_of(world, pod) not in scope.aside)
    return pod_order.waiting(pending, scheduler_names=policy.scheduler_names)


def _gang_of(world: World, pod: pods.Pod) -> gangs.GangKey:
    member = world.gangs.of(events.pod_id(pod))
    return (member or gangs.lone_membership(pod)).gang

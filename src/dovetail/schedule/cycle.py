"""Decides everything: who starts, where, on which devices, who waits and why. The only place a pod is placed.

A plain function of the world, the policy, the time and a budget of steps. The same input gives the same plan.
Leaves the world as it found it: whoever carries the plan out assumes it there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dovetail.model import gangs, pods
from dovetail.model import plan as plans
from dovetail.model import policy as policies
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule import batch, draft, order, placement, quarantined, ready, refuse
from dovetail.schedule.claims import Books, Needs
from dovetail.schedule.queues import power
from dovetail.schedule.yielding import prospects
from dovetail.world import events
from dovetail.world.world import World


def decide(
    world: World,
    policy: policies.Policy = policies.DEFAULT,
    now: plans.Instant | None = None,  # read by the steps that follow: reservations, grace periods
    budget: policies.Budget = policies.UNLIMITED,
    *,
    among: Collection[str] | None = None,
    spared: Collection[str] = (),
    toward: Mapping[str, str] | None = None,
    aside: Collection[gangs.GangKey] = (),
) -> plans.Plan:
    """Who starts, where, on which devices, who waits and who yields; of all pods that wait, or of those with these ids.

    Leaves the world as it found it. Nobody spared has to yield. Pods, by id, try a node given in `toward` before
    others: it is kept for them. Gangs set aside, whether they wait or run, are no part of the decision: what they hold
    stays theirs, and is charged as far as that can be told. The plan speaks only of pods that were asked about. With
    queues nor gangs, and nobody to yield, not linear in pods that are not asked about.
    """
    if world.queues or not world.gangs.is_trivial or power.has_caps(world):
        plan = _together(world, policy, now, budget, among=among, spared=spared, toward=toward, aside=aside)
        return quarantined.named(plan, world)
    alone = _one_by_one(world, policy, budget, among, aside)
    if alone is None:  # a pod finds no room, and others of lower priority might make some
        alone = _together(world, policy, now, budget, among=among, spared=spared, toward=toward, aside=aside)
    return quarantined.named(alone, world)


def _together(
    world: World,
    policy: policies.Policy,
    now: plans.Instant | None,
    budget: policies.Budget,
    *,
    among: Collection[str] | None,
    spared: Collection[str],
    toward: Mapping[str, str] | None,
    aside: Collection[gangs.GangKey],
) -> plans.Plan:
    """With queues, gangs, or somebody who may have to yield."""
    with world.trial():  # undone on exit, whatever happens
        made = batch.Batch(
            world, policy, now, budget, among=among, spared=spared, toward=toward or {}, aside=frozenset(aside)
        )
        return made.decide()


def _one_by_one(
    world: World,
    policy: policies.Policy,
    budget: policies.Budget,
    among: Collection[str] | None,
    aside: Collection[gangs.GangKey],
) -> plans.Plan | None:
    """Pods alone: each as well as it can be, in their order. None as soon as one of them might preempt others."""
    plan = draft.Draft()
    preempting = prospects.Prospects(world, policy)
    with world.trial():  # undone on exit, whatever happens
        books = Books(world)
        search = placement.Search(world, policy, budget, among=among)
        pending = (pod for pod in world.pending(among) if not aside or _gang_of(world, pod) not in aside)
        queue = order.waiting(pending, scheduler_names=policy.scheduler_names)  # 1. who is next
        for turn, pod in enumerate(queue):
            if budget.pods is not None and turn >= budget.pods:
                plan.wait(refuse.of_pod(pod, (_NO_TURN,), is_undecided=True))
                continue
            needs = ready.needs(pod, books)  # 2. is it ready, which claims does it need
            if not isinstance(needs, Needs):
                plan.wait(refuse.of_pod(pod, needs))
                continue
            found = search.find(pod, needs)  # 3. where, on which devices
            if isinstance(found, plans.Refusal):  # 4. a reason instead of a shrug
                if not found.is_undecided and preempting.might_help(pod):
                    return None
                plan.wait(found)
                continue
            plan.start(pod, found, needs, books=books)
            world.assume(pod, found.node, found.taken(pod), volumes=found.volumes)  # 5. what the next ones see
            search.placed(found)
    return plan.finish(wake_at=None)  # nothing here changes with time alone


def _gang_of(world: World, pod: pods.Pod) -> gangs.GangKey:
    member = world.gangs.of(events.pod_id(pod))
    return (member or gangs.alone(pod)).gang


_NO_TURN = Reason(code=ReasonCode.TO_BE_CONTINUED, detail="the cycle's budget of pods ended before its turn")

"""Answers when every pending gang starts: a time and how late it may get, or why it is not known, or why never.

Given the objects of a cluster. Simulates it twice: once with all work taking its expected runtime, once with all
work taking its longest. Says `unbounded` where the work in the way states no runtime. Never changes anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from dovetail.answer import simulate
from dovetail.model import gangs, plan, policy
from dovetail.schedule import decide
from dovetail.schedule.backfill import time_profile
from dovetail.schedule.gang import jobs
from dovetail.world.events import Object
from dovetail.world.world import World


class Expectation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """When a gang starts."""

    gang: plan.GangRef
    members: tuple[str, ...]  # the pending pods
    start: plan.Instant | None = None
    latest: plan.Instant | None = None  # None: not known
    why: str = ""
    waits_for: tuple[plan.GangRef, ...] = ()  # the gangs whose end lets it start
    is_promised: bool = False  # the start was promised, and room is kept for it


def when(
    facts: Sequence[Object],
    policy_: policy.Policy,
    now: plan.Instant,
    *,
    promises: Iterable[plan.Promise] = (),
) -> tuple[Expectation, ...]:
    """Every pending gang, by start."""
    promised = tuple(promises)
    likely = simulate.Simulation(facts, policy_, now, promises=promised)
    waiting = _waiting(likely.world, policy_)
    if not waiting:
        return ()
    likely.run()
    latest_starts: dict[gangs.GangKey, simulate.Started] = {}
    if any(key in likely.started for key in waiting):  # else there is no latest start to find
        late = simulate.Simulation(facts, policy_, now, seconds=simulate.longest, promises=promised)
        late.run()
        latest_starts = late.started
    unmet = _unmet(likely, [key for key in waiting if key not in likely.started], policy_)
    promised_gangs = {promise.gang for promise in promised if promise.start is not None}
    expectations = [
        _expectation(
            key,
            members,
            likely.started.get(key),
            latest_starts.get(key),
            unmet.get(key, ""),
            is_promised=plan.GangRef(*key) in promised_gangs,
        )
        for key, members in waiting.items()
    ]

    def rank(expectation: Expectation) -> tuple[bool, plan.Instant, str]:
        return expectation.start is None, expectation.start or now, str(expectation.gang)

    return tuple(sorted(expectations, key=rank))


def _waiting(world: World, policy_: policy.Policy) -> dict[gangs.GangKey, tuple[str, ...]]:
    """Gangs below their minimum that have pods to start, with the names of these."""
    pending: dict[gangs.GangKey, tuple[str, ...]] = {}
    names = policy_.scheduler_names
    for key in world.gangs.keys():  # noqa: SIM118 (not a mapping)
        members = {
            pod_id: (world.pods[pod_id], group)
            for pod_id, group in world.gangs.members(key).items()
        }
        if names and not any(pod.spec.scheduler_name in names for pod, _ in members.values()):
            continue
        job = jobs.job_of(world.gangs.definition(key), members, queue="")
        pending_names = [
            job.pods[pod_id].metadata.name
            for pod_id, state in job.state.items()
            if state in (jobs.State.WAITING, jobs.State.GATED)
        ]
        if pending_names and not job.is_satisfied(job.root):
            pending[key] = tuple(sorted(pending_names))
    return pending


def _expectation(
    key: gangs.GangKey,
    members: tuple[str, ...],
    likely: simulate.Started | None,
    late: simulate.Started | None,
    unmet: str,
    *,
    is_promised: bool,
) -> Expectation:
    ref = plan.GangRef(*key)
    if likely is None:
        return Expectation(gang=ref, members=members, why=unmet)
    latest = max(late.at, likely.at) if late is not None else None
    return Expectation(
        gang=ref,
        members=members,
        start=likely.at,
        latest=latest,
        why=_after(likely.after),
        waits_for=tuple(plan.GangRef(*ended) for ended in likely.after),
        is_promised=is_promised,
    )


def _after(ended: Sequence[gangs.GangKey]) -> str:
    if not ended:
        return ""
    first = str(plan.GangRef(*ended[0]))
    if len(ended) == 1:
        return f"when {first} ends"
    return f"when {first} and {len(ended) - 1} more end"


def _unmet(
    likely: simulate.Simulation, keys: Sequence[gangs.GangKey], policy_: policy.Policy
) -> dict[gangs.GangKey, str]:
    """Why these never started: work in the way that never ends, or the gangs themselves.

    Ends all work without a stated runtime in the simulation: a gang that fits then waits for it.
    """
    summaries = {refusal.pod.uid: refusal.summary for refusal in likely.plan.refusals}
    world = likely.world
    nodes_of_staying: dict[gangs.GangKey, set[str]] = {}
    staying = likely.staying()
    for pod_id in staying:
        member = world.gangs.of(pod_id)
        if member is not None:
            node = world.pods[pod_id].spec.node_name
            nodes_of_staying.setdefault(member.gang, set()).add(node)
    for pod_id in staying:
        likely.end(pod_id)
    return {key: _reason(key, likely, nodes_of_staying, summaries, policy_) for key in keys}


def _reason(
    key: gangs.GangKey,
    emptied: simulate.Simulation,
    nodes_of_staying: dict[gangs.GangKey, set[str]],
    summaries: dict[str, str],
    policy_: policy.Policy,
) -> str:
    members = [*emptied.world.gangs.members(key)]
    decided = decide.decide(emptied.world, policy_, emptied.now, among=members)
    nodes = {placement.node for placement in decided.placements if placement.pod.uid in members}
    if not nodes:
        of_members = (summaries[pod_id] for pod_id in members if pod_id in summaries)
        return f"{time_profile.NEVER}: {next(of_members, 'no reason is known')}"
    in_the_way = sum(not nodes.isdisjoint(occupied) for occupied in nodes_of_staying.values())
    return time_profile.unbounded(in_the_way or len(nodes_of_staying))

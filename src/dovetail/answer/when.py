"""Answers when every waiting gang starts: an hour and how late it may get, or why nobody can know, or why never.

Given the facts of a cluster. Lets it go on twice on paper: once with everybody taking the time they expect, once with
everybody taking all they may. Says `unbounded` where those in the way state no runtime. Never changes anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from dovetail.answer import course
from dovetail.model import gangs, plan, policy
from dovetail.schedule import cycle
from dovetail.schedule.backfill import profile
from dovetail.schedule.gangs import jobs
from dovetail.world.events import Object
from dovetail.world.world import World


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """When a gang starts."""

    gang: plan.GangRef
    members: tuple[str, ...]  # the pods that wait
    start: plan.Instant | None = None
    latest: plan.Instant | None = None  # None: nobody knows how late it may get
    why: str = ""


def when(
    facts: Sequence[Object],
    policy_: policy.Policy,
    now: plan.Instant,
    *,
    promises: Iterable[plan.Promise] = (),
) -> tuple[Expectation, ...]:
    """Every gang that waits, those that start first before the others."""
    promised = tuple(promises)
    likely = course.Course(facts, policy_, now, promises=promised)
    waiting = _waiting(likely.world, policy_)
    if not waiting:
        return ()
    likely.go_on()
    late = course.Course(facts, policy_, now, seconds=course.longest, promises=promised)
    late.go_on()
    unmet = _unmet(likely, [key for key in waiting if key not in likely.started], policy_)
    found = [
        _expectation(key, members, likely.started.get(key), late.started.get(key), unmet.get(key, ""))
        for key, members in waiting.items()
    ]
    return tuple(sorted(found, key=lambda one: (one.start is None, one.start or now, str(one.gang))))


def _waiting(world: World, policy_: policy.Policy) -> dict[gangs.GangKey, tuple[str, ...]]:
    """Gangs below their minimum that have pods to start, with the names of these."""
    found: dict[gangs.GangKey, tuple[str, ...]] = {}
    names = policy_.scheduler_names
    for key in world.gangs.keys():  # noqa: SIM118 (not a mapping)
        members = {id_: (world.pods[id_], group) for id_, group in world.gangs.members(key).items()}
        if names and not any(pod.spec.scheduler_name in names for pod, _ in members.values()):
            continue
        job = jobs.job_of(world.gangs.known(key), members, queue="")
        waiting = [id_ for id_, state in job.state.items() if state in (jobs.State.WAITING, jobs.State.GATED)]
        if waiting and not job.is_satisfied(job.root):
            found[key] = tuple(sorted(job.pods[id_].metadata.name for id_ in waiting))
    return found


def _expectation(
    key: gangs.GangKey,
    members: tuple[str, ...],
    likely: course.Started | None,
    late: course.Started | None,
    unmet: str,
) -> Expectation:
    ref = plan.GangRef(*key)
    if likely is None:
        return Expectation(gang=ref, members=members, why=unmet)
    latest = max(late.at, likely.at) if late is not None else None
    return Expectation(gang=ref, members=members, start=likely.at, latest=latest, why=_after(likely.after))


def _after(ended: Sequence[gangs.GangKey]) -> str:
    if not ended:
        return ""
    first = str(plan.GangRef(*ended[0]))
    return f"when {first} ends" if len(ended) == 1 else f"when {first} and {len(ended) - 1} more end"


def _unmet(likely: course.Course, keys: Sequence[gangs.GangKey], policy_: policy.Policy) -> dict[gangs.GangKey, str]:
    """Why these never started: others who never end, or the gangs themselves."""
    told = {one.pod.uid: one.summary for one in likely.plan.refusals}
    world = likely.world
    homes: dict[gangs.GangKey, set[str]] = {}
    for id_ in likely.staying():
        member = world.gangs.of(id_)
        if member is not None:
            homes.setdefault(member.gang, set()).add(world.pods[id_].spec.node_name)
    for id_ in likely.staying():
        likely.end(id_)
    return {key: _reason(key, likely, homes, told, policy_) for key in keys}


def _reason(
    key: gangs.GangKey,
    emptied: course.Course,
    homes: dict[gangs.GangKey, set[str]],
    told: dict[str, str],
    policy_: policy.Policy,
) -> str:
    members = [*emptied.world.gangs.members(key)]
    decided = cycle.decide(emptied.world, policy_, emptied.now, among=members)
    nodes = {one.node for one in decided.placements if one.pod.uid in members}
    if not nodes:
        return f"{profile.NEVER}: {next((told[id_] for id_ in members if id_ in told), 'nobody says why')}"
    near = sum(not nodes.isdisjoint(where) for where in homes.values())
    return profile.unbounded(near or len(homes))

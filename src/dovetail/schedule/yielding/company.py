"""Decides who has to yield together: a claim's devices are free only when everybody who uses it is gone.

Given pods that would yield; answers them with all who share a claim with them, of whichever job, and with the rest of
a gang that would fall below its minimum by it. None where one of these may not be asked: nobody yields for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from dovetail.model import reservations
from dovetail.schedule import claims as pod_claims
from dovetail.schedule.gangs.jobs import Job, State
from dovetail.schedule.gangs.stage import Stage
from dovetail.world.events import ObjectKey

_THERE = (State.ACTIVE, State.STARTING, State.NOMINATED, State.STUCK)

May = Callable[[Job, tuple[str, ...]], bool]


class Company:
    """Who shares devices with whom, in one decision."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def of(self, job: Job, ids: tuple[str, ...], *, may: May) -> Mapping[str, tuple[Job, tuple[str, ...]]] | None:
        """By job, the pods that go; the one asked about first. None if that cannot be."""
        if not any(self._others(job, (id_,)) for id_ in ids):
            return {job.id: (job, ids)} if may(job, ids) else None
        found = {job.id: (job, ids)}
        waiting = [job.id]
        while waiting:
            one, going = found[waiting.pop()]
            for id_ in self._others(one, going):
                other = self._job_of(id_)
                if other is None or other.state[id_] is not State.ACTIVE:
                    return None  # not ours, about to start with these devices, or stuck on its node
                before = found.get(other.id, (other, ()))[1]
                if id_ in before:
                    continue
                found[other.id] = (other, self._whole(other, (*before, id_)))
                waiting.append(other.id)
        return found if all(may(one, going) for one, going in found.values()) else None

    def _others(self, job: Job, ids: Iterable[str]) -> list[str]:
        """Pods beside these that use a claim of theirs and are still there."""
        world = self._stage.world
        known = set(ids)
        found: dict[str, None] = {}
        for id_ in known:
            for key in world.claims_used(job.pods[id_]):
                for other in self._users(key):
                    if other not in known:
                        found[other] = None
        return list(found)

    def _users(self, key: ObjectKey) -> list[str]:
        world = self._stage.world
        claim = world.claims.get(key)
        if claim is None:
            return []
        users, starting = claim.status.reserved_for, world.assumed_users(key)
        if len(users) < 2 and not starting and not any(map(reservations.is_group, users)):
            return []
        return [id_ for id_ in (*pod_claims.users_of(claim, world), *starting) if self._is_there(id_)]

    def _is_there(self, id_: str) -> bool:
        job = self._job_of(id_)
        if job is not None:
            return job.state[id_] in _THERE
        return id_ in self._stage.world.running() or id_ in self._stage.world.assumed

    def _job_of(self, id_: str) -> Job | None:
        return self._stage.jobs_by_pod.get(id_)

    def _whole(self, job: Job, ids: tuple[str, ...]) -> tuple[str, ...]:
        """These pods, or all that run where the gang could not do without them."""
        if job.gang.evicts_whole or not job.is_satisfied(job.root, ids):
            return tuple(dict.fromkeys((*ids, *job.active())))
        return ids

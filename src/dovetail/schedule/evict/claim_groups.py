"""Decides which pods have to be evicted together: a claim's devices are free only once all its users are gone.

Given pods of one job; returns them with every pod that shares a claim with them, of whichever job, and with the
rest of any gang that would fall below its minimum by it. None where one of those pods may not be evicted: an
eviction that frees no device would be for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from dovetail.model import reservations
from dovetail.schedule.gang.jobs import Job, State
from dovetail.schedule.gang.transaction import Transaction
from dovetail.schedule.node import pod_claims
from dovetail.world.events import ObjectKey

_ON_NODE = (State.ACTIVE, State.STARTING, State.NOMINATED, State.STUCK)

MayEvict = Callable[[Job, tuple[str, ...]], bool]


class VictimGroup(NamedTuple):
    """Pods of one job that are evicted together."""

    job: Job
    pod_ids: tuple[str, ...]


class ClaimGroups:
    """Which pods share devices, in one decision."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def of(
        self, job: Job, pod_ids: tuple[str, ...], *, may_evict: MayEvict
    ) -> list[VictimGroup] | None:
        """The pods that go together, one group per job, the given job first; None if one of them may not go."""
        if not any(self._sharing(job, (pod_id,)) for pod_id in pod_ids):
            return [VictimGroup(job, pod_ids)] if may_evict(job, pod_ids) else None

        groups = {job.id: VictimGroup(job, pod_ids)}
        unchecked = [job.id]
        while unchecked:
            group = groups[unchecked.pop()]
            for pod_id in self._sharing(group.job, group.pod_ids):
                other_job = self._job_of(pod_id)
                if other_job is None or other_job.state[pod_id] is not State.ACTIVE:
                    return None  # not ours, about to start with these devices, or stuck on its node

                group_before = groups.get(other_job.id, VictimGroup(other_job, ()))
                if pod_id in group_before.pod_ids:
                    continue
                pods_to_go = self._with_gang(other_job, (*group_before.pod_ids, pod_id))
                groups[other_job.id] = VictimGroup(other_job, pods_to_go)
                unchecked.append(other_job.id)

        if all(may_evict(group.job, group.pod_ids) for group in groups.values()):
            return list(groups.values())
        return None

    def _sharing(self, job: Job, pod_ids: Iterable[str]) -> list[str]:
        """Other pods on nodes that use a claim of these pods."""
        world = self._transaction.world
        own = set(pod_ids)
        sharing: dict[str, None] = {}
        for pod_id in own:
            for key in world.claims_used(job.pods[pod_id]):
                for user_id in self._users(key):
                    if user_id not in own:
                        sharing[user_id] = None
        return list(sharing)

    def _users(self, key: ObjectKey) -> list[str]:
        """The pods on nodes that use a claim; none where it obviously has a single user."""
        world = self._transaction.world
        claim = world.claims.get(key)
        if claim is None:
            return []

        consumers, starting = claim.status.reserved_for, world.assumed_users(key)
        if len(consumers) < 2 and not starting and not any(map(reservations.is_group, consumers)):
            return []
        users = (*pod_claims.users_of(claim, world), *starting)
        return [pod_id for pod_id in users if self._is_on_node(pod_id)]

    def _is_on_node(self, pod_id: str) -> bool:
        job = self._job_of(pod_id)
        if job is not None:
            return job.state[pod_id] in _ON_NODE
        return (
            pod_id in self._transaction.world.running() or pod_id in self._transaction.world.assumed
        )

    def _job_of(self, pod_id: str) -> Job | None:
        return self._transaction.jobs_by_pod.get(pod_id)

    def _with_gang(self, job: Job, pod_ids: tuple[str, ...]) -> tuple[str, ...]:
        """These pods, or all that run where the gang would fall below its minimum without them."""
        if job.gang.evicts_whole or not job.is_satisfied(job.root, pod_ids):
            return tuple(dict.fromkeys((*pod_ids, *job.active())))
        return pod_ids

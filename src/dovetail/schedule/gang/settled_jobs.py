"""Keeps running pods that nothing happens to, so that a decision need not look at each of them.

A job of a single pod is settled while its pod runs, its bill holds, and no other pod uses its claims: its queue is
charged for it in one sum with all others like it. Given what the World logs; a job settles again once what was logged
about it is looked at. Exact: what a decision reads here is what it would compute. Never decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dovetail.kubetypes.resource import claims
from dovetail.schedule.gang.jobs import PLACED, Job, SinglePodJob, State
from dovetail.schedule.queue.amounts import Amounts
from dovetail.schedule.queue.pricing_cache import PodPrice
from dovetail.world.events import ObjectKey
from dovetail.world.world import World


class ClaimCharge(NamedTuple):
    """A claim that is paid for: by which queue, and how many pods use it."""

    users: int
    queue: str
    is_fixed: bool
    cost: Amounts


class Charge(NamedTuple):
    """What a queue pays for work of one kind."""

    queue: str
    is_fixed: bool
    cost: Amounts


class Snapshot(NamedTuple):
    """The settled jobs when a decision begins. Its tables are those that outlive it, and must not be modified."""

    job_by_pod: Mapping[str, Job]
    charges: tuple[Charge, ...]
    pod_costs: Mapping[str, Amounts]  # by pod, without its claims
    claim_charges: Mapping[ObjectKey, ClaimCharge]
    running: Counter[str]  # jobs by queue
    states_runtime: bool  # whether any of them states how long it runs


class _Entry(NamedTuple):
    job: SinglePodJob
    pod_id: str
    queue: str
    is_fixed: bool
    price: PodPrice


class SettledJobs:
    """The settled jobs of one World under one policy."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}  # by job
        self._job_by_pod: dict[str, Job] = {}
        self._pod_costs: dict[str, Amounts] = {}
        self._claim_charges: dict[ObjectKey, ClaimCharge] = {}
        self._owners: dict[ObjectKey, str] = {}  # by claim, the job
        # By queue, whether it is fixed, and identity of the cost: equal costs of bills are one object.
        self._counts: Counter[tuple[str, bool, int]] = Counter()
        self._costs: dict[int, Amounts] = {}
        self._running: Counter[str] = Counter()  # by queue
        self._timed: set[str] = set()  # jobs that state a runtime
        self._basis: object = None  # what all prices depend on
        self._position = -1  # in the log of claims

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._entries

    def snapshot(self) -> Snapshot:
        """What a decision needs to know of them. Linear in queues and kinds of costs, not in jobs."""
        charges = [
            Charge(queue, is_fixed, _times(self._costs[cost_id], count))
            for (queue, is_fixed, cost_id), count in self._counts.items()
        ]
        return Snapshot(
            self._job_by_pod,
            tuple(charges),
            self._pod_costs,
            self._claim_charges,
            Counter(self._running),
            bool(self._timed),
        )

    # Changes

    def drop_changed(self, world: World, basis: object) -> list[Job]:
        """Drops the jobs about which the World logged something since the last call, or all where prices changed."""
        changed = world.claim_changes.since(self._position)
        self._position = world.claim_changes.end
        if self._basis != basis or changed is None:
            self._basis = basis
            jobs: list[Job] = [entry.job for entry in self._entries.values()]
            self._clear()
            return jobs

        return self._drop_owners(changed) + self._drop_pods(world.assumed)

    def drop_sharing(self, world: World, job: Job) -> list[Job]:
        """Drops the jobs that share a claim with pods of this one, which is not settled itself."""
        return self._drop_owners(
            key
            for pod_id, state in job.state.items()
            if state in PLACED
            for key in world.claims_used(job.pods[pod_id])
        )

    def _drop_owners(self, keys: Iterable[ObjectKey]) -> list[Job]:
        owners = {self._owners[key]: None for key in keys if key in self._owners}
        return [job for job_id in owners if (job := self.drop(job_id)) is not None]

    def _drop_pods(self, pod_ids: Iterable[str]) -> list[Job]:
        jobs = {
            self._job_by_pod[pod_id].id: None for pod_id in pod_ids if pod_id in self._job_by_pod
        }
        return [job for job_id in jobs if (job := self.drop(job_id)) is not None]

    def drop(self, job_id: str) -> Job | None:
        """Forgets a job and what it is charged; returns it if it was settled."""
        entry = self._entries.pop(job_id, None)
        if entry is None:
            return None
        del self._job_by_pod[entry.pod_id]
        del self._pod_costs[entry.pod_id]
        for key, _, _ in entry.price.claims:
            del self._claim_charges[key]
            del self._owners[key]
        self._timed.discard(job_id)
        self._count(entry, sign=-1)
        return entry.job

    def is_outdated(self, job: Job) -> bool:
        """Whether a settled job is charged otherwise than it should be by now."""
        entry = self._entries.get(job.id)
        return entry is not None and entry.is_fixed == job.is_preemptible

    def settle(self, job: Job, pod_id: str, price: PodPrice) -> bool:
        """Takes a job in that was just charged by this bill, if nothing about it is in motion."""
        if not isinstance(job, SinglePodJob) or job.state[pod_id] is not State.ACTIVE:
            return False
        for key, claim, _ in price.claims:
            if key in self._owners or not _is_only_user(claim, pod_id):
                return False

        entry = _Entry(job, pod_id, job.queue, not job.is_preemptible, price)
        self._entries[job.id] = entry
        self._job_by_pod[pod_id] = job
        self._pod_costs[pod_id] = price.room
        for key, _, cost in price.claims:
            self._claim_charges[key] = ClaimCharge(1, entry.queue, entry.is_fixed, cost)
            self._owners[key] = job.id
        if job.gang.expected_runtime is not None or job.gang.max_runtime is not None:
            self._timed.add(job.id)
        self._count(entry, sign=1)
        return True

    def _count(self, entry: _Entry, *, sign: int) -> None:
        _, _, queue, is_fixed, price = entry
        self._running[queue] += sign
        for cost in (price.room, *(cost for _, _, cost in price.claims)):
            key = (queue, is_fixed, id(cost))
            self._costs[id(cost)] = cost
            self._counts[key] += sign
            if not self._counts[key]:
                del self._counts[key]  # the queue may be gone by the next decision

    def _clear(self) -> None:
        for table in (
            self._entries,
            self._job_by_pod,
            self._pod_costs,
            self._claim_charges,
            self._owners,
            self._counts,
            self._costs,
            self._running,
        ):
            table.clear()
        self._timed.clear()


def _times(cost: Amounts, count: int) -> Amounts:
    return {name: amount * count for name, amount in cost.items()}


def _is_only_user(claim: claims.ResourceClaim, pod_id: str) -> bool:
    users = claim.status.reserved_for
    return len(users) == 1 and users[0].uid == pod_id

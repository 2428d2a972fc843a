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
from dovetail.schedule.queue import amounts
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
    """The settled jobs when a decision begins; its tables are copies, which the decision changes."""

    job_by_pod: dict[str, Job]
    charges: tuple[Charge, ...]
    pod_costs: dict[str, Amounts]  # by pod, without its claims
    claim_charges: dict[ObjectKey, ClaimCharge]
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
        self._totals: dict[tuple[str, bool], Amounts] = {}  # by queue, and whether it is fixed
        self._running: Counter[str] = Counter()  # by queue
        self._timed: set[str] = set()  # jobs that state a runtime
        self._basis: object = None  # what all prices depend on
        self._position = -1  # in the log of claims

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._entries

    @property
    def claims(self) -> Mapping[ObjectKey, object]:
        """The claims of these jobs: each holds devices for a pod that runs."""
        return self._claim_charges

    def snapshot(self) -> Snapshot:
        """What a decision needs to know of them. A few copies, not a loop over jobs."""
        charges = [
            Charge(queue, is_fixed, dict(total))
            for (queue, is_fixed), total in self._totals.items()
        ]
        return Snapshot(
            dict(self._job_by_pod),
            tuple(charges),
            dict(self._pod_costs),
            dict(self._claim_charges),
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
        self._running[entry.queue] += sign
        if not self._running[entry.queue]:
            del self._running[entry.queue]
        total = self._totals.setdefault((entry.queue, entry.is_fixed), {})
        amounts.add(total, entry.price.room, sign=sign)
        for _, _, cost in entry.price.claims:
            amounts.add(total, cost, sign=sign)
        if not any(total.values()):
            del self._totals[entry.queue, entry.is_fixed]

    def _clear(self) -> None:
        for table in (
            self._entries,
            self._job_by_pod,
            self._pod_costs,
            self._claim_charges,
            self._owners,
            self._totals,
            self._running,
        ):
            table.clear()
        self._timed.clear()


def _is_only_user(claim: claims.ResourceClaim, pod_id: str) -> bool:
    users = claim.status.reserved_for
    return len(users) == 1 and users[0].uid == pod_id

"""Says why a promised start moved later, or is gone.

Given the promises of the decision before and the reservations of this one, as both stand when it is asked. Reads the
transaction; never makes or moves a promise.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Set

from dovetail.model import plan
from dovetail.quantity import durations
from dovetail.schedule.backfill.runtimes import LATE_SECONDS, Runtimes
from dovetail.schedule.backfill.time_profile import Profile, Reservation
from dovetail.schedule.gang.jobs import Job
from dovetail.schedule.gang.transaction import Transaction


class MoveCauses:
    """The causes of moved promises in one decision."""

    def __init__(
        self,
        transaction: Transaction,
        profile: Profile,
        times: Runtimes,
        *,
        reservations: Mapping[str, Reservation],
        before: Mapping[str, plan.Promise],
        closed: Set[str],
    ) -> None:
        self._transaction = transaction
        self._profile = profile
        self._times = times
        self._ranks = profile.ranks  # by job, the order in which promises were made
        self._reservations = reservations  # by job, of this decision
        self._before = before  # by job, promises of the decision before
        self._closed = closed  # jobs whose queue takes no more

    def cause(self, job: Job, before: plan.Promise) -> str:
        """Why a promise is later than before, or gone. The most certain cause first."""
        if job.id in self._closed:
            return f"queue {job.queue} takes no more"

        nodes = set(before.nodes)
        node_cause = self._node_cause(nodes)
        if node_cause is not None:
            return node_cause
        if any(seat.pod.uid not in job.pods for seat in before.seats):
            return "its pods were recreated"

        for newcomer in self._newcomers(job, nodes):
            if newcomer.queue != job.queue:
                return f"queue {newcomer.queue} is due what {newcomer.id} takes"
            if newcomer.priority > job.priority:
                return f"{newcomer.id} of priority {newcomer.priority} comes first"

        older = self._older_promise_moved(job, nodes)
        if older is not None:
            cause = self.cause(older.job, self._before[older.job.id])
            return f"{older.job.id}, promised before it, moved: {cause}"

        late = self._overdue_on(nodes)
        if late is not None:
            return f"{late.id} runs longer than it stated"
        return "less is free on its nodes than was stated"

    def _node_cause(self, nodes: set[str]) -> str | None:
        """Why promised nodes take no pods now; None if all of them do."""
        known_nodes = self._transaction.world.nodes
        gone = sorted(nodes - known_nodes.keys())
        if gone:
            return f"node {gone[0]} is gone"

        cordoned = sorted(node for node in nodes if known_nodes[node].spec.unschedulable)
        if cordoned:
            return f"node {cordoned[0]} takes no more pods"
        return None

    def _overdue_on(self, nodes: set[str]) -> Job | None:
        """The first job on these nodes that ran past the end it stated."""
        for node in sorted(nodes):
            for pod_id in self._profile.on_node(node):
                job = self._transaction.job_of(pod_id)
                end = self._times.end_of(job, pod_id)
                if end is not None and end.is_unsure:
                    return job
        return None

    def _older_promise_moved(self, job: Job, nodes: set[str]) -> Reservation | None:
        """An older promise that now has some of these nodes, and that is later or on other nodes than before."""
        rank = self._ranks[job.id]
        for reservation in self._reservations.values():
            is_older = self._ranks.get(reservation.job.id, rank) < rank
            if not is_older or nodes.isdisjoint(reservation.nodes()):
                continue
            before = self._before[reservation.job.id]
            assert before.start is not None
            node_before = {seat.pod.uid: seat.node for seat in before.seats}
            has_other_nodes = any(
                node_before.get(pod_id) != choice.node
                for pod_id, choice in reservation.seats.items()
            )
            if has_other_nodes or is_later(reservation.start, before.start):
                return reservation
        return None

    def _newcomers(self, job: Job, nodes: set[str]) -> Iterable[Job]:
        """Other jobs that were placed on, or promised, these nodes in this decision; then those that run there."""
        for placement in self._transaction.placements.values():
            if placement.job is not job and placement.choice.node in nodes:
                yield placement.job
        for reservation in self._reservations.values():
            if reservation.job is not job and not nodes.isdisjoint(reservation.nodes()):
                yield reservation.job
        for node in sorted(nodes):
            for pod_id in self._profile.on_node(node):
                yield self._transaction.job_of(pod_id)


def is_later(start: datetime.datetime, promised: datetime.datetime) -> bool:
    """Whether a start is later than promised, by more than it takes to observe the end of a pod."""
    return start > durations.later(promised, LATE_SECONDS)

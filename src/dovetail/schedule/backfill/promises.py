"""Decides which gangs are promised a start, and keeps other pods from taking what is promised: backfill.

The first gangs in order that find no room are promised the time at which they will, with nodes and devices. Other
pods may start ahead of a promise if they end before it, or if what is promised still fits next to them. A promise is
kept once it is made: it moves later only for work of higher priority, for a queue within its quota, or because
nodes or stated runtimes did not hold; then it says why. Given a transaction and the promises of the decision
before. Never starts a pod.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from dovetail import timestamps
from dovetail.kubetypes.core import pods
from dovetail.model import plan
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.quantity import durations
from dovetail.schedule.backfill import move_causes
from dovetail.schedule.backfill.runtimes import LATE_SECONDS, Runtimes
from dovetail.schedule.backfill.time_profile import NEVER, Profile, Reservation, Unknown
from dovetail.schedule.gang.gang_placement import Placer
from dovetail.schedule.gang.jobs import Job, State
from dovetail.schedule.gang.transaction import Transaction
from dovetail.schedule.node.find_node import NodePlacement
from dovetail.world import events


def start_promises(transaction: Transaction, placer: Placer) -> Promises | None:
    """The promises of a decision; None where no start can be predicted, as no work states a runtime."""
    if (
        transaction.now is None
        or transaction.policy.batch.promises <= 0
        or not _states_any_runtime(transaction)
    ):
        return None
    return Promises(transaction, placer, transaction.now)


def with_promise(refusal: plan.Refusal, promise: plan.Promise | None) -> plan.Refusal:
    """The refusal, with the start that is promised to the pod all the same."""
    if promise is None:
        return refusal
    has_no_time = promise.start is None and promise.moved_from is None
    if has_no_time and promise.cause.startswith(NEVER):
        return refusal
    summary = f"{refusal.summary}; {_sentence(promise)}"
    return msgspec.structs.replace(refusal, summary=summary)


def _sentence(promise: plan.Promise) -> str:
    start, moved_from = promise.start, promise.moved_from
    if start is None and moved_from is None:
        return f"its start is {promise.cause}"
    if start is None:
        assert moved_from is not None
        why = NEVER if promise.cause.startswith(NEVER) else promise.cause
        return f"its start is {why}, instead of {timestamps.to_text(moved_from)}: {promise.lost_to}"
    if moved_from is None:
        return f"starts by {timestamps.to_text(start)}"
    return f"starts by {timestamps.to_text(start)} instead of {timestamps.to_text(moved_from)}: {promise.cause}"


class Promises:
    """The promises of one decision. A guard of its transaction."""

    def __init__(self, transaction: Transaction, placer: Placer, now: plan.Instant) -> None:
        self._transaction = transaction
        self._now = now
        self._times = Runtimes(transaction.accounts, now)
        self._profile = Profile(transaction, placer, self._times)
        self._reserved: dict[str, Reservation] = {}  # by job
        self._unknown: dict[str, Unknown] = {}  # by job
        self._before: dict[str, plan.Promise] = {}  # by job, promises of the decision before
        self._lost: dict[str, plan.Promise] = {}  # by job, those of it that had no start any more
        self._closed: set[str] = set()  # jobs whose queue takes no more
        self._ranks = self._profile.ranks  # by job, the order in which promises were made
        self._count = 0  # promises made or renewed in this decision
        # By node, the pods placed there when its reservations were last checked.
        self._checked_with: dict[str, list[str]] = {}
        # While a promise is looked for or tested, no placement is a real start.
        self._is_trying = False
        self._causes = move_causes.MoveCauses(
            transaction,
            self._profile,
            self._times,
            reservations=self._reserved,
            before=self._before,
            closed=self._closed,
        )
        self._take_over()

    def _take_over(self) -> None:
        """Restores the promises of the decision before."""
        transaction = self._transaction
        for ref, promise in transaction.world.promises.items():
            job = transaction.jobs.get(str(ref))
            if job is None or not _waits(job):
                continue
            if promise.start is None:
                self._lost[job.id] = promise
                continue
            self._before[job.id] = promise
            self._profile.ahead[job.id] = set(promise.ahead)
            self._ranks[job.id] = len(self._ranks)

        # The earliest start first: it has the least to choose from.
        for job_id, promise in sorted(self._before.items(), key=_promised_start):
            self._restore(transaction.jobs[job_id], promise)

        # A gang that is due starts on its promised nodes: on others it might be in the way of another promise.
        due = {
            pod_id: choice.node
            for reservation in self._reserved.values()
            if reservation.start <= self._now
            for pod_id, choice in reservation.seats.items()
        }
        transaction.kept_nodes = {**due, **transaction.kept_nodes}

    def _restore(self, job: Job, promise: plan.Promise) -> None:
        """Reserves what was promised before, if it is still available at that time, or now if that has passed."""
        assert promise.start is not None
        node_by_pod = {
            seat.pod.uid: seat.node for seat in promise.seats if seat.pod.uid in job.pods
        }
        if len(node_by_pod) < len(promise.seats) or set(node_by_pod) != set(job.next_pods()):
            return

        start = max(promise.start, self._now)
        with self._trying():
            reservation = self._profile.seats_at(
                job, start, node_by_pod, [*self._reserved.values()]
            )
        if reservation is not None:
            self._reserved[job.id] = reservation

    # While other pods are placed

    def allows(self, job: Job, pod: pods.Pod, choice: NodePlacement) -> bool:
        """Whether the pod may start there now: every other promise can still be kept, at its time."""
        if self._is_trying:
            return True

        seconds = self._times.enforced(job)
        end = None if seconds is None else durations.later(self._now, seconds)
        on_node = [
            reservation for reservation in self._reserved.values() if reservation.on(choice.node)
        ]
        if on_node:
            self._refresh((choice.node,))
            on_node = [self._reserved[reservation.job.id] for reservation in on_node]

        for reservation in on_node:
            ends_before = end is not None and end <= reservation.start
            if ends_before or not self._is_protected(reservation, job):
                continue
            with self._trying():
                survives = self._survives(reservation, pod, choice)
            if not survives:
                return False

        self._note_ahead(job, pod)
        return True

    def _is_protected(self, reservation: Reservation, job: Job) -> bool:
        """Whether the job must leave this promise in place: it is another's, open, and comes first."""
        if reservation.job is job:
            return False
        return _is_open(reservation) and not self._comes_before(job, reservation.job)

    def kept_for(self, job: Job, node: str) -> Reason:
        """The gangs that were promised a start on the node."""
        reservations = [
            reservation
            for reservation in self._open()
            if reservation.job is not job and reservation.on(node)
        ]
        reservations.sort(key=_start)
        names = ", ".join(
            f"{reservation.job.id}, promised {timestamps.to_text(reservation.start)}"
            for reservation in reservations[:3]
        )
        return Reason(code=ReasonCode.PROMISED, subject=names)

    def _note_ahead(self, job: Job, pod: pods.Pod) -> None:
        """From now on the pod counts, for every open promise, with its enforced runtime.

        On whichever node it starts: otherwise a promise could move to that node, and give up its own, on the word of a
        pod that may run longer than it states.
        """
        expected = self._times.expected(job)
        if expected is None or expected == self._times.enforced(job):
            return
        for reservation in self._reserved.values():
            if reservation.job is not job and not self._comes_before(job, reservation.job):
                ahead = self._profile.ahead.setdefault(reservation.job.id, set())
                ahead.add(events.pod_id(pod))

    def still_holds(self, job: Job) -> bool:
        """Whether all promises still hold that the job may not break, with the pods as they are now."""
        transaction = self._transaction
        touched = {placement.choice.node for placement in transaction.placements.values()}
        for pod_id, why in transaction.evictions.items():
            touched.add(why.job.pods[pod_id].spec.node_name)
        self._refresh(touched)

        protected = [
            reservation
            for reservation in self._reserved.values()
            if self._is_protected(reservation, job)
        ]
        affected = [
            reservation for reservation in protected if not touched.isdisjoint(reservation.nodes())
        ]
        with self._trying():
            for reservation in affected:
                rivals = [rival for rival in protected if rival is not reservation]
                if self._reserve_again(reservation, rivals) is None:
                    return False
        return True

    @contextmanager
    def _trying(self) -> Iterator[None]:
        was_trying, self._is_trying = self._is_trying, True
        try:
            # Lenient: to run out of steps in between would leave the reservations half changed.
            with self._transaction.steps.lenient():
                yield
        finally:
            self._is_trying = was_trying

    def _refresh(self, nodes: Iterable[str]) -> None:
        """Finds other devices, at the same start, for reservations on nodes where the placed pods changed.

        Also where a placement was undone since: devices chosen next to a pod that never came are not kept.
        """
        placed: dict[str, list[str]] = {node: [] for node in nodes}
        for pod_id, placement in self._transaction.placements.items():
            if placement.choice.node in placed:
                placed[placement.choice.node].append(pod_id)
        changed = {
            node for node, pod_ids in placed.items() if self._checked_with.get(node, []) != pod_ids
        }
        if not changed:
            return

        self._checked_with |= placed
        fixed = [
            reservation for reservation in self._open() if changed.isdisjoint(reservation.nodes())
        ]
        affected = [reservation for reservation in self._open() if reservation not in fixed]
        with self._trying():
            for reservation in sorted(affected, key=_start):
                # A reservation that can stay does: of two that look for other devices one might find none.
                if not self._profile.is_free(reservation, fixed):
                    reservation = self._reserve_again(reservation, fixed) or reservation
                self._reserved[reservation.job.id] = reservation
                fixed.append(reservation)

    def _reserve_again(
        self, reservation: Reservation, rivals: Sequence[Reservation]
    ) -> Reservation | None:
        """The same pods, nodes and start, on any devices that the others leave free."""
        node_by_pod = {pod_id: choice.node for pod_id, choice in reservation.seats.items()}
        return self._profile.seats_at(reservation.job, reservation.start, node_by_pod, rivals)

    def _survives(self, reservation: Reservation, pod: pods.Pod, choice: NodePlacement) -> bool:
        """Whether the promised pods of a node still fit there next to this pod, on their devices or on others."""
        transaction, world, node = self._transaction, self._transaction.world, choice.node
        promised_ids = reservation.on(node)
        with self._profile.at(reservation.start, on=(node,), promised=reservation.job):
            allocations = dict(choice.allocations_to_assume(pod))
            world.assume(pod, node, allocations)
            with world.trial():
                self._profile.seat(reservation, promised_ids)
                allocations |= reservation.allocations_on(node)
                if world.binding_problem(node, allocations) is None:
                    return True

            # On its own devices the promise is in no other's way. On new ones it must not get into one's.
            for rival in self._open():
                if rival is not reservation and rival.overlaps(reservation.start, reservation.end):
                    self._profile.seat(rival, rival.on(node))
            return all(
                transaction.place(reservation.job, pod_id, within=(node,)) is None
                for pod_id in promised_ids
            )

    # Making promises

    def blocked(self, job: Job, ids: Sequence[str]) -> None:
        """A job found no room at its turn: promises it a start, if it is among the first."""
        if job.is_satisfied(job.root):
            return
        is_full = self._count >= self._transaction.policy.batch.promises
        if is_full and job.id not in self._reserved and job.id not in self._before:
            return
        self._count += 1
        self._promise(job, ids)

    def closed(self, job: Job) -> None:
        """A job may start nothing: its promise is no longer kept."""
        self._reserved.pop(job.id, None)
        self._closed.add(job.id)

    def _promise(self, job: Job, pod_ids: Sequence[str], *, is_last: bool = False) -> None:
        """Promises the first start that moves no other promise, except those the job comes before.

        With `is_last` it moves none at all, so that a chain of moved promises comes to an end.
        """
        # First of all, and with the job's own among them: what it falls back on must not go to another job meanwhile.
        self._refresh({node for reservation in self._open() for node in reservation.nodes()})
        former = self._reserved.pop(job.id, None)
        respected = [
            reservation
            for reservation in self._open()
            if is_last or self._is_kept(reservation.job, job, has_lost_own=former is None)
        ]
        before = None if former is None else former.start
        outcome = self._first_start(job, pod_ids, respected, before)
        if isinstance(outcome, Unknown):
            self._unknown[job.id] = outcome
            return

        self._ranks.setdefault(job.id, len(self._ranks))
        if outcome is None:  # no earlier start than the promised one
            assert former is not None
            outcome = former
        self._reserved[job.id] = outcome

        self._move_overruled([outcome, *respected])

    def _first_start(
        self,
        job: Job,
        pod_ids: Sequence[str],
        respected: Sequence[Reservation],
        before: datetime.datetime | None,
    ) -> Reservation | Unknown | None:
        """The first start next to the respected promises; None where none is earlier than `before`."""
        with self._trying():
            outcome = self._profile.first_start(job, pod_ids, respected, before=before)
            if isinstance(outcome, Unknown) and self._profile.ahead.pop(job.id, set()):
                # The promise is lost for another cause, and the pods that started since have no enforced end. Their
                # expected runtime is all there is.
                outcome = self._profile.first_start(job, pod_ids, respected)
        return outcome

    def _move_overruled(self, kept: Sequence[Reservation]) -> None:
        """Promises another start to the gangs whose promise no longer fits next to the kept ones."""
        overruled = [reservation for reservation in self._open() if reservation not in kept]
        for reservation in overruled:
            is_current = self._reserved.get(reservation.job.id) is reservation
            if is_current and not self._still_holds(reservation):
                del self._reserved[reservation.job.id]
                self._promise(reservation.job, [*reservation.seats], is_last=True)

    def _open(self) -> list[Reservation]:
        """Reservations of gangs that still wait; others were placed in this decision."""
        return [reservation for reservation in self._reserved.values() if _is_open(reservation)]

    def _is_kept(self, rival: Job, job: Job, *, has_lost_own: bool) -> bool:
        """Whether a job must leave another its promise: unless it comes before it, or lost its own, older one."""
        if self._comes_before(job, rival):
            return False
        if has_lost_own and job.id in self._before and rival.id in self._before:
            return self._ranks[rival.id] < self._ranks[job.id]
        return True

    def _still_holds(self, reservation: Reservation) -> bool:
        """Whether a promise can be kept together with all others; reserves other devices where its own are taken."""
        rivals = [rival for rival in self._open() if rival is not reservation]
        with self._trying():
            renewed = self._reserve_again(reservation, rivals)
            if renewed is not None and not self._profile.is_free(reservation, rivals):
                self._reserved[reservation.job.id] = renewed
        return renewed is not None

    def _comes_before(self, job: Job, rival: Job) -> bool:
        """Whether a job may break another's promise: by priority in one queue, else by being within its quota."""
        if job.queue == rival.queue:
            return job.priority > rival.priority
        return self._is_within_quota(job) and not self._is_within_quota(rival)

    def _is_within_quota(self, job: Job) -> bool:
        account = self._transaction.accounts.by_name[job.queue]
        requested = {name: amount for name, amount in job.next_cost().items() if amount > 0}
        return all(
            ancestor.charged.get(name, 0) + amount <= ancestor.quota_of(name)
            for ancestor in account.lineage()
            for name, amount in requested.items()
        )

    # The promises of the plan

    def final_promises(self) -> tuple[plan.Promise, ...]:
        """Every promise, after everything else was decided; those that other placements broke are made again."""
        promised_jobs = [
            self._transaction.jobs[job_id] for job_id in {**self._reserved, **self._before}
        ]
        for job_id, reservation in [*self._reserved.items()]:
            job = reservation.job
            if not _waits(job) or set(reservation.seats) != set(job.next_pods()):
                del self._reserved[job_id]

        nodes = {node for reservation in self._reserved.values() for node in reservation.nodes()}
        self._refresh(nodes)
        for job_id in [*self._reserved]:
            current = self._reserved.get(job_id)
            if current is not None and not self._still_holds(current):
                del self._reserved[job_id]
                self._promise(current.job, [*current.seats])
        self._return_former_promises()

        by_rank = sorted(
            self._reserved.values(), key=lambda reservation: self._ranks[reservation.job.id]
        )
        return (
            *self._nominated(promised_jobs),
            *map(self._as_promise, by_rank),
            *self._without_start(),
        )

    def _return_former_promises(self) -> None:
        """Gives back former promises that moved for a job which then found room elsewhere."""
        for job_id, promise in self._before.items():
            reservation = self._reserved.get(job_id)
            assert promise.start is not None
            if reservation is not None and reservation.start > max(promise.start, self._now):
                del self._reserved[job_id]
                self._restore(reservation.job, promise)
                self._reserved.setdefault(job_id, reservation)

    def _nominated(self, jobs: Iterable[Job]) -> Iterator[plan.Promise]:
        """Gangs with a promise that start once victims have left. The promise stays until then, and protects them."""
        for job in jobs:
            seats = {
                pod_id: self._transaction.placements[pod_id].choice
                for pod_id, state in job.state.items()
                if state is State.NOMINATED
            }
            if not seats or job.next_pods():
                continue
            before = self._before.get(job.id)
            start = self._now
            if before is not None and before.start is not None:
                start = min(before.start, self._now)
            yield plan.Promise(
                gang=_ref(job), start=start, latest=self._now, seats=_seats(job, seats)
            )

    def _as_promise(self, reservation: Reservation) -> plan.Promise:
        job = reservation.job
        before, lost = self._before.get(job.id), self._lost.get(job.id)
        promise = plan.Promise(
            gang=_ref(job),
            start=reservation.start,
            latest=self._latest(reservation),
            seats=_seats(job, reservation.seats),
            ahead=self._ahead_of(job),
        )

        lost_start = lost.moved_from if lost is not None else None
        if (
            lost is not None
            and lost_start is not None
            and move_causes.is_later(reservation.start, lost_start)
        ):
            return _moved(promise, lost_start, lost.lost_to)
        if before is None or before.start is None:
            return promise
        if move_causes.is_later(reservation.start, before.start):
            return _moved(promise, before.start, self._causes.cause(job, before))
        if before.start < reservation.start <= self._now:
            # Due: its start stays what it was while the room is being cleared.
            promise = msgspec.structs.replace(promise, start=before.start)
        return _moved(promise, before.moved_from, before.cause)

    def _without_start(self) -> Iterator[plan.Promise]:
        """Gangs whose start cannot be predicted, and gangs that had a promise and have none now."""
        for job_id in {**self._unknown, **self._before, **self._lost}:
            job = self._transaction.jobs[job_id]
            if job_id in self._reserved or not _waits(job):
                continue
            unknown = self._unknown.get(job_id)
            promise = plan.Promise(
                gang=_ref(job), cause="not known" if unknown is None else unknown.why
            )
            before, lost = self._before.get(job_id), self._lost.get(job_id)
            if before is not None:
                promise = msgspec.structs.replace(
                    promise, moved_from=before.start, lost_to=self._causes.cause(job, before)
                )
            elif lost is not None:
                promise = msgspec.structs.replace(
                    promise, moved_from=lost.moved_from, lost_to=lost.lost_to
                )
            yield promise

    def wake_at(self) -> datetime.datetime | None:
        """The next promised start; now, where a promise is found due too late for this decision."""
        times: list[datetime.datetime] = []
        for job_id, reservation in self._reserved.items():
            is_due = reservation.start <= self._now
            if is_due and not self._was_due(job_id):
                return self._now  # only once: in the next decision it was due before
            times.append(reservation.start)
            times.append(durations.later(reservation.start, LATE_SECONDS))

        later_times = [time for time in times if time > self._now]
        return min(later_times, default=None)

    def _was_due(self, job_id: str) -> bool:
        """Whether the promise of the decision before was due already."""
        before = self._before.get(job_id)
        if before is None or before.start is None:
            return False
        return before.start <= self._now

    def _ahead_of(self, job: Job) -> tuple[str, ...]:
        """The pods that run ahead of a promise, without those that ended or were not placed after all."""
        world, placed = self._transaction.world, self._transaction.placements
        return tuple(
            sorted(
                pod_id
                for pod_id in self._profile.ahead.get(job.id, ())
                if pod_id in placed or pod_id in world.running() or pod_id in world.assumed
            )
        )

    def _latest(self, reservation: Reservation) -> datetime.datetime | None:
        """The start if every pod on its nodes takes its longest runtime."""
        latest = reservation.start
        for node in reservation.nodes():
            for pod_id in self._profile.on_node(node):
                job = self._transaction.job_of(pod_id)
                expected = self._times.end_of(job, pod_id)
                longest = self._times.end_of(job, pod_id, is_late=True)
                if expected is None or longest is None:
                    continue
                if expected.at <= reservation.start:
                    latest = max(latest, longest.at)
        return latest


def _states_any_runtime(transaction: Transaction) -> bool:
    """Whether any work states a runtime, or any queue limits it."""
    for account in transaction.accounts.by_name.values():
        if account.queue is not None and account.queue.spec.max_runtime_seconds:
            return True
    return transaction.settled.states_runtime or any(
        job.gang.expected_runtime is not None or job.gang.max_runtime is not None
        for job in transaction.live_jobs
    )


def _promised_start(entry: tuple[str, plan.Promise]) -> datetime.datetime:
    start = entry[1].start
    assert start is not None
    return start


def _start(reservation: Reservation) -> datetime.datetime:
    return reservation.start


def _is_open(reservation: Reservation) -> bool:
    """Whether none of its pods was placed yet."""
    job = reservation.job
    return all(job.state[pod_id] is State.WAITING for pod_id in reservation.seats)


def _waits(job: Job) -> bool:
    return bool(job.next_pods()) and not job.is_satisfied(job.root)


def _ref(job: Job) -> plan.GangRef:
    return plan.GangRef(job.gang.metadata.namespace, job.gang.metadata.name)


def _seats(job: Job, choices: Mapping[str, NodePlacement]) -> tuple[plan.PromisedSlot, ...]:
    return tuple(
        plan.PromisedSlot(
            pod=plan.pod_ref(job.pods[pod_id]),
            node=choice.node,
            devices=_devices(job.pods[pod_id], choice),
        )
        for pod_id, choice in choices.items()
    )


def _devices(pod: pods.Pod, choice: NodePlacement) -> tuple[str, ...]:
    return tuple(
        f"{result.driver}/{result.pool}/{result.device}"
        for allocation in choice.allocations_to_assume(pod).values()
        for result in allocation.devices.results
    )


def _moved(promise: plan.Promise, moved_from: datetime.datetime | None, cause: str) -> plan.Promise:
    return msgspec.structs.replace(promise, moved_from=moved_from, cause=cause)

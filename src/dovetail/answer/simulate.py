"""Simulates a cluster from now on if all work takes its stated runtime: carries out one plan after the other.

Given the objects of a cluster, of which it keeps a World. Between two decisions time jumps to the next end of a
pod, or to the time at which the engine wants to be woken. Never decides: it calls `decide`. Never writes to a
cluster.
"""

from __future__ import annotations

import datetime
import heapq
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from dovetail.answer.replica import recreated_pods, started_pods
from dovetail.kubetypes import registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.model import gangs, plan, policy, reservations
from dovetail.model.queue import queue_access
from dovetail.quantity import durations
from dovetail.schedule import decide, pod_order
from dovetail.schedule.backfill import runtimes
from dovetail.schedule.gang import staleness
from dovetail.schedule.node import pod_claims
from dovetail.world.events import Changed, Deleted, Object
from dovetail.world.world import World

MOST_TURNS: Final = 5_000  # decisions of one simulation, where the cluster does not come to rest
Seconds = Callable[[gangs.Gang, int | None], int | None]  # of a gang, given its queue's limit


class Started(NamedTuple):
    """When a gang started, and which gangs ended right before it."""

    at: datetime.datetime
    after: tuple[gangs.GangKey, ...]


def expected(gang: gangs.Gang, by_queue: int | None) -> int | None:
    """Seconds a gang is expected to run."""
    choices = (gang.expected_runtime, gang.max_runtime, by_queue)
    return next((seconds for seconds in choices if seconds is not None), None)


def longest(gang: gangs.Gang, by_queue: int | None) -> int | None:
    """Seconds a gang runs at most."""
    most = runtimes.limit(gang, by_queue)
    return gang.expected_runtime if most is None else most


class Simulation:
    """One simulation."""

    def __init__(
        self,
        facts: Iterable[Object],
        policy_: policy.Policy,
        now: plan.Instant,
        *,
        seconds: Seconds = expected,
        promises: Iterable[plan.Promise] = (),
        decided: Callable[[plan.Plan, plan.Instant], None] | None = None,
    ) -> None:
        self._decided = decided
        self.world = World()
        self.now = now
        self.plan = plan.Plan()
        self.started: dict[gangs.GangKey, Started] = {}
        self.evicted: list[plan.Eviction] = []
        self.turns = 0
        self._policy = policy_
        self._seconds = seconds
        self._ended: tuple[gangs.GangKey, ...] = ()
        self._ends: list[tuple[datetime.datetime, str]] = []
        self._end_of: dict[str, datetime.datetime] = {}  # by pod
        self._doors: queue_access.QueueAccess | None = None
        for fact in facts:
            self.world.apply(Changed(fact))
        self._collect_leftovers()
        self.world.set_promises(promises)
        for pod_id in self.world.running():
            self._expect_end(pod_id)

    def _collect_leftovers(self) -> None:
        """Takes away what controllers are about to: claims made for pods that are gone, and their devices."""
        present = {(pod.metadata.namespace, pod.metadata.name) for pod in self.world.pods.values()}
        for claim in list(self.world.claims.values()):
            owners = [
                (claim.metadata.namespace, owner.name)
                for owner in claim.metadata.owner_references
                if owner.controller and owner.kind == registry.POD.name
            ]
            if owners and present.isdisjoint(owners):
                self.world.apply(Deleted(claim))

    # Time

    def run(self, until: datetime.datetime | None = None) -> None:
        """Runs until no pod waits or nothing changes any more; or to that time."""
        while self.turns < MOST_TURNS:
            while self.turn() and self.turns < MOST_TURNS:
                pass
            next_time = self.next_time()
            if until is not None and (next_time is None or next_time > until):
                self._jump(until)
                return
            if next_time is None or (until is None and not self.world.pending()):
                return
            self._jump(next_time)

    def settle(self, until: datetime.datetime, *, most_turns: int) -> None:
        """Decides until nothing changes any more, also at times by then at which time alone changes the answer."""
        last_turn = self.turns + most_turns
        while self.turns < last_turn:
            while self.turn() and self.turns < last_turn:
                pass
            wake_at = self.plan.wake_at
            if wake_at is None or not self.now < wake_at <= until:
                return
            self._jump(wake_at)

    def run_while_pending(
        self,
        until: datetime.datetime,
        *,
        most_turns: int,
        most_stops: int,
        policy_: policy.Policy,
    ) -> datetime.datetime:
        """Runs to that time as long as pods wait, by this policy; returns the time it came to.

        Where more pods end than `most_stops`, time goes on in so many equal steps, and a pod counts as ended at the end
        of its step. Gives up after `most_turns` decisions.
        """
        begin, self._policy = self.now, policy_
        last_turn = self.turns + most_turns
        ends = {end for end in self._end_of.values() if end <= until}
        step = (until - begin) / most_stops if len(ends) > most_stops else None
        while self.world.pending() and self.turns < last_turn:
            while self.turn() and self.turns < last_turn:
                pass
            next_time = self.next_time()
            if next_time is None or next_time > until:
                return until
            if step is not None:
                next_time = begin + step * -(-(next_time - begin) // step)
            self._jump(min(next_time, until))
        return self.now if self.world.pending() else until

    def staying(self) -> list[str]:
        """Pods on nodes without a known end."""
        return [pod_id for pod_id in self.world.running() if pod_id not in self._end_of]

    def advance(self, time: datetime.datetime) -> list[tuple[datetime.datetime, str]]:
        """Lets time pass without a decision; pods that end by then are gone, and returned with their ends."""
        return self._jump(time)

    def displace(self, pod_id: str) -> bool:
        """Ends a pod that loses its node; whether its controller creates it again, to wait under the same id."""
        return self._evict(pod_id) is not None

    def end_of(self, pod_id: str) -> datetime.datetime | None:
        """When the pod is expected to end; None where that is not known."""
        return self._end_of.get(pod_id)

    def set_end(self, pod_id: str, at: datetime.datetime | None) -> None:
        """Expects a running pod to end then; None: it is not known when."""
        if at is None:
            self._end_of.pop(pod_id, None)
            return
        self._end_of[pod_id] = at
        heapq.heappush(self._ends, (at, pod_id))

    def submit(self, *facts: Object) -> None:
        """Adds objects."""
        for fact in facts:
            self.world.apply(Changed(fact))

    def withdraw(self, fact: Object) -> None:
        """Removes an object."""
        self.world.apply(Deleted(fact))

    def turn(self) -> bool:
        """One decision, carried out; whether it changed anything."""
        self.turns += 1
        # Otherwise the grace of a gang below its minimum would begin again with every decision.
        staleness.note(self.world, self.now)
        self.plan = decide.decide(self.world, self._policy, self.now)
        self.world.set_promises(self.plan.promises)
        if self._decided is not None:
            self._decided(self.plan, self.now)
        self.evicted += self.plan.evictions
        recreated = [(self._evict(eviction.pod.uid), eviction) for eviction in self.plan.evictions]
        # Only once all victims are gone: pods that move may take each other's place.
        for pod, eviction in recreated:
            if pod is not None and eviction.moves_to:
                self._move(pod, eviction)
        for placement in self.plan.placements:
            self._start(placement)
        self._nominate(
            {nomination.pod.uid: nomination.node for nomination in self.plan.nominations}
        )
        is_again = self.plan.wake_at is not None and self.plan.wake_at <= self.now
        return is_again or bool(self.plan.placements or self.plan.evictions)

    def next_time(self) -> datetime.datetime | None:
        """When a pod ends or the engine wants to be woken next; None if neither is known."""
        # Entries of pods that ended, or got another end, are outdated.
        while self._ends and self._end_of.get(self._ends[0][1]) != self._ends[0][0]:
            heapq.heappop(self._ends)
        times = [self._ends[0][0]] if self._ends else []
        if self.plan.wake_at is not None and self.plan.wake_at > self.now:
            times.append(self.plan.wake_at)
        return min(times, default=None)

    def _jump(self, time: datetime.datetime) -> list[tuple[datetime.datetime, str]]:
        """Lets time pass; pods that end by then are gone, and returned with their ends."""
        self.now = max(self.now, time)
        pods_ended: list[tuple[datetime.datetime, str]] = []
        ended: dict[gangs.GangKey, None] = {}
        while self._ends and self._ends[0][0] <= self.now:
            at, pod_id = heapq.heappop(self._ends)
            if self._end_of.get(pod_id) == at:
                member = self.world.gangs.of(pod_id)
                if member is not None:
                    ended[member.gang] = None
                self.end(pod_id)
                pods_ended.append((at, pod_id))
        self._ended = tuple(ended)
        return pods_ended

    # Pods

    def end(self, pod_id: str) -> None:
        """Deletes the pod and releases what it held."""
        self._end_of.pop(pod_id, None)
        pod = self.world.pods[pod_id]
        self.world.apply(Deleted(pod))
        self._release_claims(pod)

    def _evict(self, pod_id: str) -> pods.Pod | None:
        """Ends the pod; returns the pending pod that its controller creates instead, if it has one."""
        pod = self.world.pods.get(pod_id)
        if pod is None or not pod.spec.node_name:
            return None
        member = self.world.gangs.of(pod_id)
        is_recreated = member is not None and self.world.gangs.definition(member.gang).is_recreated
        self.end(pod_id)
        if not is_recreated:
            return None
        recreated = recreated_pods.recreated(pod, self.now)
        self.world.apply(Changed(recreated))
        return recreated

    def _move(self, pod: pods.Pod, eviction: plan.Eviction) -> None:
        """Starts the recreated pod where room is kept for it."""
        refs = [plan.ClaimRef(*key) for key in reservations.named_claims(pod)]
        allocations = tuple(
            plan.Allocation(ref, result) for ref, result in zip(refs, eviction.keeps, strict=False)
        )
        placement = plan.Placement(
            pod=eviction.pod,
            node=eviction.moves_to,
            allocations=allocations,
            reservations=tuple(refs),
            made=self._made_again(eviction.made),
        )
        self._start(placement)

    def _made_again(
        self, made: plan.ExtendedResourceClaim | None
    ) -> plan.ExtendedResourceClaim | None:
        """The claim for extended resources that a moving pod gets: never the one that it had before."""
        if made is None or made.existing is None:
            return made
        key = (made.existing.namespace, made.existing.name)
        released = self.world.claims.get(key)
        return made if released is None else msgspec.structs.replace(made, claim=released)

    def _nominate(self, nodes: dict[str, str]) -> None:
        """Sets the nominated node of pods that wait for victims to leave; clears that of others."""
        for pod in self.world.pending():
            node = nodes.get(pod.metadata.uid, "")
            if pod.status.nominated_node_name != node:
                status = msgspec.structs.replace(pod.status, nominated_node_name=node)
                self.world.apply(Changed(msgspec.structs.replace(pod, status=status)))

    def _release_claims(self, pod: pods.Pod) -> None:
        for key in self.world.claims_used(pod):
            claim = self.world.claims.get(key)
            if claim is None:
                continue
            users = tuple(
                user for user in claim.status.reserved_for if not self._is_gone(user, pod)
            )
            allocation = claim.status.allocation if users else None
            status = msgspec.structs.replace(
                claim.status, reserved_for=users, allocation=allocation
            )
            self.world.apply(Changed(msgspec.structs.replace(claim, status=status)))

    def _is_gone(self, user: claims.ResourceClaimConsumerReference, pod: pods.Pod) -> bool:
        """Whether a user of a claim is the pod that ended, or its group without any pod left."""
        if not reservations.is_for(user, pod):
            return False
        is_group = reservations.is_group(user)
        return not is_group or pod_claims.is_deserted(self.world, user, pod.metadata.namespace)

    def _start(self, placement: plan.Placement) -> None:
        """Allocates and reserves the claims, then binds the pod, which runs at once."""
        for started in started_pods.objects_of(self.world, placement, self.now):
            self.world.apply(Changed(started))
        member = self.world.gangs.of(placement.pod.uid)
        if member is not None:
            self.started.setdefault(member.gang, Started(self.now, self._ended))
        self._expect_end(placement.pod.uid)

    def _expect_end(self, pod_id: str) -> None:
        pod, member = self.world.pods[pod_id], self.world.gangs.of(pod_id)
        if member is None:
            return
        gang = self.world.gangs.definition(member.gang)
        seconds = self._seconds(gang, self._allowed(gang))
        deletion = pod.metadata.deletion_timestamp
        if deletion is not None:
            end = max(pod_order.instant(deletion), self.now)
        elif seconds is not None:
            start = pod_order.instant(pod.status.start_time) if pod.status.start_time else self.now
            if start is pod_order.NEVER:
                start = self.now
            most = longest(gang, self._allowed(gang))
            end = runtimes.ending(start, self.now, seconds=seconds, most=most).at
        else:
            return
        self._end_of[pod_id] = end
        heapq.heappush(self._ends, (end, pod_id))

    def _allowed(self, gang: gangs.Gang) -> int | None:
        """Seconds that the gang's queue, or its first ancestor with a limit, lets work run."""
        if not self.world.queues:
            return None
        if self._doors is None:
            self._doors = queue_access.QueueAccess(self.world.queues, self.world.namespaces)
        answer = self._doors.resolve(gang.labels, gang.metadata.namespace, named=gang.queue)
        name = answer.queue or ""
        visited: set[str] = set()  # queues may name each other as parents
        while name in self.world.queues and name not in visited:
            visited.add(name)
            spec = self.world.queues[name].spec
            if spec.max_runtime_seconds is not None:
                return durations.at_most(spec.max_runtime_seconds)
            name = spec.parent
        return None

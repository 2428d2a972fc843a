"""How a cluster goes on from now if everybody takes the time they state: plans carried out on paper, hour by hour.

Given the facts of a cluster, which it keeps a picture of its own of. Between two decisions time jumps to the next end,
or to the hour the engine asked to be woken at. Never decides: it asks `decide`. Never writes anything anywhere.
"""

from __future__ import annotations

import datetime
import heapq
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from dovetail.model import claims, durations, gangs, plan, pods, policy, queueuse, reservations
from dovetail.schedule import claims as pod_claims
from dovetail.schedule import cycle, order
from dovetail.schedule.backfill import runtimes
from dovetail.schedule.gangs import staleness
from dovetail.world.events import Changed, Deleted, Object, ObjectKey, claims_of, key_of
from dovetail.world.world import World

MOST_TURNS: Final = 5_000  # decisions of one course: a cluster in which nothing comes to rest is left at that
Seconds = Callable[[gangs.Gang, int | None], int | None]  # of a gang, with what its queue allows


class Started(NamedTuple):
    """When a gang began to run, and who ended right before it."""

    at: datetime.datetime
    after: tuple[gangs.GangKey, ...]


def expected(gang: gangs.Gang, by_queue: int | None) -> int | None:
    """What it says it takes."""
    choices = (gang.expected_runtime, gang.max_runtime, by_queue)
    return next((one for one in choices if one is not None), None)


def longest(gang: gangs.Gang, by_queue: int | None) -> int | None:
    """What it takes at most."""
    most = runtimes.limit(gang, by_queue)
    return gang.expected_runtime if most is None else most


class Course:
    """One way things may go."""

    def __init__(
        self,
        facts: Iterable[Object],
        policy_: policy.Policy,
        now: plan.Instant,
        *,
        seconds: Seconds = expected,
        promises: Iterable[plan.Promise] = (),
        told: Callable[[plan.Plan, plan.Instant], None] | None = None,
    ) -> None:
        self._told = told
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
        self._known: dict[str, datetime.datetime] = {}
        self._doors: queueuse.Doors | None = None
        for fact in facts:
            self.world.apply(Changed(fact))
        self.world.promise(promises)
        for id_ in self.world.running():
            self._expect_end(id_)

    # Going on

    def go_on(self, until: datetime.datetime | None = None) -> None:
        """Until nobody waits or nothing changes any more; or to that hour."""
        while self.turns < MOST_TURNS:
            while self.turn() and self.turns < MOST_TURNS:
                pass
            hour = self._next_hour()
            if until is not None and (hour is None or hour > until):
                self._jump(until)
                return
            if hour is None or (until is None and not self.world.pending()):
                return
            self._jump(hour)

    def staying(self) -> list[str]:
        """Pods on nodes of which nobody knows when they end."""
        return [id_ for id_ in self.world.running() if id_ not in self._known]

    def submit(self, *facts: Object) -> None:
        """More work arrives."""
        for fact in facts:
            self.world.apply(Changed(fact))

    def withdraw(self, fact: Object) -> None:
        """Something is gone."""
        self.world.apply(Deleted(fact))

    def turn(self) -> bool:
        """One decision, carried out; whether it changed anything."""
        self.turns += 1
        staleness.note(self.world, self.now)  # else a gang below its minimum would be about to be taken back for ever
        self.plan = cycle.decide(self.world, self._policy, self.now)
        self.world.promise(self.plan.promises)
        if self._told is not None:
            self._told(self.plan, self.now)
        self.evicted += self.plan.evictions
        moved = [pair for one in self.plan.evictions if (pair := self._evict(one)) is not None]
        for pod, eviction in moved:  # once everybody who goes is gone: they take each other's place
            self._move(pod, eviction)
        for placement in self.plan.placements:
            self._start(placement)
        self._nominate({one.pod.uid: one.node for one in self.plan.nominations})
        is_again = self.plan.wake_at is not None and self.plan.wake_at <= self.now
        return is_again or bool(self.plan.placements or self.plan.evictions)

    def _next_hour(self) -> datetime.datetime | None:
        while self._ends and self._known.get(self._ends[0][1]) != self._ends[0][0]:
            heapq.heappop(self._ends)
        hours = [self._ends[0][0]] if self._ends else []
        if self.plan.wake_at is not None and self.plan.wake_at > self.now:
            hours.append(self.plan.wake_at)
        return min(hours, default=None)

    def _jump(self, hour: datetime.datetime) -> None:
        """Lets time pass; whoever ends by then is gone."""
        self.now = max(self.now, hour)
        ended: dict[gangs.GangKey, None] = {}
        while self._ends and self._ends[0][0] <= self.now:
            at, id_ = heapq.heappop(self._ends)
            if self._known.get(id_) == at:
                member = self.world.gangs.of(id_)
                if member is not None:
                    ended[member.gang] = None
                self.end(id_)
        self._ended = tuple(ended)

    # What happens to pods

    def end(self, id_: str) -> None:
        """The pod is gone, and so is what it held."""
        self._known.pop(id_, None)
        pod = self.world.pods[id_]
        self.world.apply(Deleted(pod))
        self._give_back(pod)

    def _evict(self, eviction: plan.Eviction) -> tuple[pods.Pod, plan.Eviction] | None:
        """The pod goes; something makes it anew, if anything does. Whoever is to move is handed back."""
        pod = self.world.pods.get(eviction.pod.uid)
        if pod is None or not pod.spec.node_name:
            return None
        member = self.world.gangs.of(eviction.pod.uid)
        is_back = member is not None and self.world.gangs.known(member.gang).is_recreated
        self.end(eviction.pod.uid)
        if not is_back:
            return None
        status = msgspec.structs.replace(pod.status, phase="Pending", start_time=None, nominated_node_name="")
        spec = msgspec.structs.replace(pod.spec, node_name="")
        anew = msgspec.structs.replace(pod, spec=spec, status=status)
        self.world.apply(Changed(anew))
        return (anew, eviction) if eviction.moves_to else None

    def _move(self, pod: pods.Pod, eviction: plan.Eviction) -> None:
        """The pod begins again where room is kept for it."""
        named = [plan.ClaimRef(*key) for key in claims_of(pod)]
        given = tuple(plan.Allocation(*pair) for pair in zip(named, eviction.keeps, strict=False))
        placement = plan.Placement(
            pod=eviction.pod, node=eviction.moves_to, allocations=given, reservations=tuple(named)
        )
        self._start(placement)

    def _nominate(self, nodes: dict[str, str]) -> None:
        """Pods that wait for others to leave say so; those that no longer do say nothing."""
        for pod in self.world.pending():
            node = nodes.get(pod.metadata.uid, "")
            if pod.status.nominated_node_name != node:
                status = msgspec.structs.replace(pod.status, nominated_node_name=node)
                self.world.apply(Changed(msgspec.structs.replace(pod, status=status)))

    def _give_back(self, pod: pods.Pod) -> None:
        for key in self.world.claims_used(pod):
            claim = self.world.claims.get(key)
            if claim is None:
                continue
            left = tuple(user for user in claim.status.reserved_for if not self._is_gone(user, pod))
            kept = claim.status.allocation if left else None
            status = msgspec.structs.replace(claim.status, reserved_for=left, allocation=kept)
            self.world.apply(Changed(msgspec.structs.replace(claim, status=status)))

    def _is_gone(self, user: claims.ResourceClaimConsumerReference, pod: pods.Pod) -> bool:
        """Whether a user of a claim is the pod that ended, or its group, none of which is left."""
        if not reservations.is_for(user, pod):
            return False
        is_group = reservations.is_group(user)
        return not is_group or pod_claims.is_deserted(self.world, user, pod.metadata.namespace)

    def _start(self, placement: plan.Placement) -> None:
        """Claims first, then the pod, which runs at once."""
        results: dict[ObjectKey, claims.AllocationResult] = {
            (one.claim.namespace, one.claim.name): one.result for one in placement.allocations
        }
        pod = self.world.pods[placement.pod.uid]
        user = claims.ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
        for ref in placement.reservations:
            claim = self.world.claims[ref.namespace, ref.name]
            whose = self.world.user_of(pod, key_of(claim))
            self.world.apply(Changed(_reserved(claim, results.get(key_of(claim)), whose)))
        began = self.now.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = msgspec.structs.replace(pod.status, phase="Running", start_time=began)
        if placement.made is not None:
            made = _named(placement.made, pod)
            self.world.apply(Changed(_reserved(made, placement.made.result, user)))
            served = pods.PodExtendedResourceClaimStatus(
                request_mappings=placement.made.mappings, resource_claim_name=made.metadata.name
            )
            status = msgspec.structs.replace(status, extended_resource_claim_status=served)
        spec = msgspec.structs.replace(pod.spec, node_name=placement.node)
        self.world.apply(Changed(msgspec.structs.replace(pod, spec=spec, status=status)))
        member = self.world.gangs.of(placement.pod.uid)
        if member is not None:
            self.started.setdefault(member.gang, Started(self.now, self._ended))
        self._expect_end(placement.pod.uid)

    def _expect_end(self, id_: str) -> None:
        pod, member = self.world.pods[id_], self.world.gangs.of(id_)
        if member is None:
            return
        gang = self.world.gangs.known(member.gang)
        seconds = self._seconds(gang, self._allowed(gang))
        leaving = pod.metadata.deletion_timestamp
        if seconds is None and leaving is None:
            return
        start = order.instant(pod.status.start_time) if pod.status.start_time else self.now
        if leaving is not None:
            at = max(order.instant(leaving), self.now)
        else:
            began = self.now if start is order.NEVER else start
            most = longest(gang, self._allowed(gang))
            at = runtimes.ending(began, self.now, seconds=seconds or 0, most=most).at
        self._known[id_] = at
        heapq.heappush(self._ends, (at, id_))

    def _allowed(self, gang: gangs.Gang) -> int | None:
        """Seconds the gang's queue, or the first above it that says so, lets work run."""
        if not self.world.queues:
            return None
        if self._doors is None:
            self._doors = queueuse.Doors(self.world.queues, self.world.namespaces)
        name = self._doors.resolve(gang.labels, gang.metadata.namespace, named=gang.queue).queue or ""
        seen: set[str] = set()
        while name in self.world.queues and name not in seen:
            seen.add(name)
            spec = self.world.queues[name].spec
            if spec.max_runtime_seconds is not None:
                return durations.at_most(spec.max_runtime_seconds)
            name = spec.parent
        return None


def _reserved(
    claim: claims.ResourceClaim,
    result: claims.AllocationResult | None,
    user: claims.ResourceClaimConsumerReference,
) -> claims.ResourceClaim:
    users = claim.status.reserved_for
    status = msgspec.structs.replace(
        claim.status,
        allocation=claim.status.allocation or result,
        reserved_for=users if user in users else (*users, user),
    )
    return msgspec.structs.replace(claim, status=status)


def _named(made: plan.MadeClaim, pod: pods.Pod) -> claims.ResourceClaim:
    """The claim for extended resources under a name that nobody else has."""
    if made.existing is not None:
        return made.claim
    name = f"{pod.metadata.name}-extended-resources"
    metadata = msgspec.structs.replace(made.claim.metadata, name=name, namespace=pod.metadata.namespace)
    return msgspec.structs.replace(made.claim, metadata=metadata)

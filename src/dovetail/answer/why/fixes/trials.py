"""Tries changes on the replica: whether the pod starts with them, what happens to others, what is in the way then.

Given a replica and a pod. Every trial edits the replica, asks the engine, and undoes the edit. Counts what it asks: the
number of decisions is bounded, not the time. Never shows a change, never chooses between them.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from dovetail import timestamps
from dovetail.answer.replica import verdict
from dovetail.answer.replica.patches import ref_of
from dovetail.answer.replica.replica import Edit, Replica
from dovetail.answer.why.fixes import change_set
from dovetail.answer.why.fixes.change_set import ChangeSet
from dovetail.answer.why.fixes.proposals import Candidate, Case, Change
from dovetail.kubetypes import codec, object_set, registry
from dovetail.kubetypes.core import pods
from dovetail.model import plan
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule.node import preconditions
from dovetail.schedule.node.pod_claims import ClaimLookup
from dovetail.world import events

MOST_DECISIONS: Final = 240
FEWEST_DECISIONS: Final = 24
# Where queues or gangs are decided together, a decision takes 50 to 60 microseconds a node or pod, measured on 2,000
# nodes and 2,200 pods; elsewhere a fifth of it. So many of them are looked at in one search.
MOST_WORK: Final = 120_000
_MOMENT: Final = datetime.timedelta(
    milliseconds=400
)  # two are less than the second servers count in
MOST_CASES: Final = 2  # members of a gang whose obstacles are looked into
# What is said of a member because of another one: the other one's obstacles are the ones to remove.
_SECONDARY: Final = frozenset({ReasonCode.GANG_WAITS})


class Trial(NamedTuple):
    """What the engine says about the pod with a change."""

    change: ChangeSet
    starts: bool
    verdict: verdict.Verdict | None  # about all pending pods; None where it does not start
    decided: plan.Plan
    members: frozenset[str]  # the ids of the gang's pods then

    @property
    def obstacles(self) -> frozenset[tuple[str, str, int, int]]:
        """What is in the way of the gang now, to compare it with what was."""
        return frozenset(
            (
                obstacle.reason.code.value,
                obstacle.reason.subject,
                obstacle.nodes,
                obstacle.reason.have or 0,
            )
            for refusal in self.decided.refusals
            if refusal.pod.uid in self.members
            for obstacle in refusal.obstacles
        )


class Trials:
    """Trials about one pod."""

    def __init__(self, replica: Replica, pod_id: str, *, most: int | None = None) -> None:
        self.replica = replica
        self.pod_id = pod_id
        self.decisions = 0
        self.members = members_of(replica, pod_id)
        self._most = _most_decisions(replica, len(self.members)) if most is None else most
        self.workshop = change_set.Workshop(replica, self.members)
        self.base = replica.decide()
        self.decisions += 1
        self._started = {placement.pod.uid: placement.pod for placement in self.base.placements}

    @property
    def is_spent(self) -> bool:
        """Whether no more decisions may be asked for."""
        return self.decisions >= self._most

    @property
    def part_spent(self) -> float:
        """How much of the decisions is used up, from 0 to 1."""
        return self.decisions / self._most

    def tried(self, candidates: Iterable[Candidate]) -> Trial | None:
        """The candidates together; None where they cannot be made, or no decision is left."""
        changes: list[Change] = []
        for candidate in candidates:
            changes += candidate.changes
        change = self.workshop.change_set(changes)
        if change is None or self.is_spent:
            return None
        with self.replica.edited(change.edits):
            return self._asked(change)

    def _asked(self, change: ChangeSet) -> Trial:
        replica = self.replica
        pod_id = change.new_ids.get(self.pod_id, self.pod_id)
        if pod_id not in replica.world.pods:
            return Trial(change, False, None, plan.Plan(), frozenset())
        members = frozenset(change.new_ids.get(member, member) for member in self.members)
        asked = sorted(members | set(change.new_ids.values()))
        # The gang alone first: without room even so, the others need not be decided about.
        alone = replica.decide(among=asked)
        self.decisions += 1
        if not verdict.verdict(replica, pod_id, alone).starts:
            return Trial(change, False, None, alone, members)
        whole = alone
        if len(replica.world.pending()) > 1:
            with replica.edited(self._after_equals(pod_id, members)):
                whole = replica.decide()
            self.decisions += 1
        answer = verdict.verdict(replica, pod_id, whole)
        starts = answer.starts and not answer.is_bound and self._keeps_gang(change, whole)
        waiting = replica.world.pods
        mates = [waiting[member] for member in sorted(members) if member in waiting]
        starts = starts and not _is_left_to_chance(change, waiting[pod_id], mates, whole)
        return Trial(change, starts, answer if starts else None, whole, members)

    def _after_equals(self, asked: str, members: frozenset[str]) -> list[Edit]:
        """The pods a moment younger than others of the same age: a fix must help in either order.

        The pod that is asked about comes after the others of its gang, too.
        """
        waiting = {events.pod_id(pod): pod for pod in self.replica.world.pending()}
        edits = []
        for pod_id in sorted(members & waiting.keys()):
            text = waiting[pod_id].metadata.creation_timestamp
            created = timestamps.parse_or_none(text)
            stored = self.replica.get(ref_of(waiting[pod_id]).key)
            if stored is None or created is None:
                continue
            moments = 2 if pod_id == asked else 1
            stamp = timestamps.to_exact_text(created + moments * _MOMENT)
            metadata = stored.tree["metadata"] | {"creationTimestamp": stamp}
            younger = codec.decode(stored.tree | {"metadata": metadata})
            edits.append(Edit(object_set.key_of(younger.struct), younger))
        return edits

    def _keeps_gang(self, change: ChangeSet, decided: plan.Plan) -> bool:
        """Whether the members of the gang that would start without the change still do."""
        ids = {placement.pod.uid for placement in decided.placements}
        ids |= {nomination.pod.uid for nomination in decided.nominations}
        before = [member for member in self.members if member in self._started]
        return all(change.new_ids.get(member, member) in ids for member in before)

    def displaced(self, trial: Trial) -> list[plan.PodRef]:
        """Pods of others that would have started, and do not because of the change."""
        ids = {placement.pod.uid for placement in trial.decided.placements}
        ids |= {nomination.pod.uid for nomination in trial.decided.nominations}
        return [
            ref
            for uid, ref in self._started.items()
            if trial.change.new_ids.get(uid, uid) not in ids and uid not in self.members
        ]

    # What is in the way

    def base_cases(self) -> list[Case]:
        """The pods of the gang that are refused for themselves, and why."""
        return self._cases(self.base, {})

    @contextlib.contextmanager
    def cases_after(self, trial: Trial) -> Iterator[list[Case]]:
        """The same with a change that does not suffice, while the replica holds it."""
        with self.replica.edited(trial.change.edits):
            yield self._cases(trial.decided, trial.change.new_ids)

    def _cases(self, decided: plan.Plan, new_ids: dict[str, str]) -> list[Case]:
        refusals = {refusal.pod.uid or str(refusal.pod): refusal for refusal in decided.refusals}
        # The pod itself first; then the members that keep it waiting.
        ordered = [self.pod_id, *(member for member in self.members if member != self.pod_id)]
        waiting = self.replica.world.pods
        gang = tuple(
            waiting[pod_id]
            for member in ordered
            if (pod_id := new_ids.get(member, member)) in waiting
        )
        cases: list[Case] = []
        for member in ordered:
            pod_id = new_ids.get(member, member)
            pod = self.replica.world.pods.get(pod_id)
            if pod is None:
                continue
            refusal = refusals.get(pod_id)
            obstacles = refusal.obstacles if refusal is not None else ()
            reasons = _with_preconditions(
                self.replica, pod_id, tuple(obstacle.reason for obstacle in obstacles)
            )
            if member != self.pod_id and all(reason.code in _SECONDARY for reason in reasons):
                continue
            authors = self.workshop.authors
            case = Case(self.replica, member, pod, reasons, authors, gang, decided.queues)
            cases.append(case)
        return cases[: 1 + MOST_CASES]


def _is_left_to_chance(
    change: ChangeSet, asked: pods.Pod, mates: list[pods.Pod], decided: plan.Plan
) -> bool:
    """Whether the order in which pods are changed decides which of a gang start: the first may before the last is."""
    changed = [patch for patch in change.patches if patch.object.kind == registry.POD.name]
    started = {placement.pod.uid for placement in decided.placements}
    started |= {nomination.pod.uid for nomination in decided.nominations}
    left_out = [mate for mate in mates if events.pod_id(mate) not in started]
    return len(changed) > 1 and any(mate.spec == asked.spec for mate in left_out)


def _most_decisions(replica: Replica, members: int) -> int:
    """As many as keep a search short, by the size of the cluster and of the gang, whose pods are all recreated."""
    world = replica.world
    size = 1 + len(world.nodes) + len(world.pods) + 3 * members
    is_together = bool(world.queues) or not world.gangs.is_trivial
    affordable = MOST_WORK * (1 if is_together else 5) // size
    return max(FEWEST_DECISIONS, min(MOST_DECISIONS, affordable))


def _with_preconditions(
    replica: Replica, pod_id: str, reasons: tuple[Reason, ...]
) -> tuple[Reason, ...]:
    """The reasons, and gates or claims that a gang's reason hides."""
    pod = replica.world.pods[pod_id]
    needs = preconditions.needs(pod, ClaimLookup(replica.world))
    hidden = needs if isinstance(needs, tuple) and needs and isinstance(needs[0], Reason) else ()
    known = {(reason.code, reason.subject) for reason in reasons}
    added = [
        reason
        for reason in hidden
        if isinstance(reason, Reason) and (reason.code, reason.subject) not in known
    ]
    return (*reasons, *added)


def members_of(replica: Replica, pod_id: str) -> tuple[str, ...]:
    """The pods of the gang that have no node yet, the pod itself included."""
    world = replica.world
    member = world.gangs.of(pod_id)
    ids = [pod_id] if member is None else [*world.gangs.members(member.gang)]
    waiting = {events.pod_id(pod) for pod in world.pending()}
    return tuple(dict.fromkeys([pod_id, *(other for other in ids if other in waiting)]))

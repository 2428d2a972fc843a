"""Asks two schedulers who has to go for a pod that waits: ours, and kube-scheduler's own preemption plugin.

Both see the same cluster. What ours decides happens for both before the next pod is asked about: victims are gone, the
pod runs where it was nominated. Disruption budgets are counted as our evictor counts them: a victim a budget protects
is spared, and ours decides once more. A difference that is none once all such pods are spared from the start is counted
apart: ours hears of a budget only when it asks for a pod. Never decides who is right.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from dovetail.kubetypes import codec
from dovetail.kubetypes.core.disruption_budgets import PodDisruptionBudget, covers
from dovetail.live.evict import disruption_limits, evictor
from dovetail.model import plan, policy
from dovetail.schedule import decide, pod_order
from dovetail.world.events import Changed, Deleted, pod_id
from dovetail.world.world import World
from tests.generators.preemptions import NAMESPACE, Case
from tests.support.oracle import Oracle

Tree = dict[str, Any]


class Outcome(NamedTuple):
    """What becomes of one pod."""

    kind: str  # starts, preempts, waits
    node: str = ""
    victims: tuple[str, ...] = ()


class Difference(NamedTuple):
    """One pod of which the two say different things, with the cluster as it was then."""

    pod: Tree
    ours: Outcome
    theirs: str
    objects: list[Tree]


class Tally:
    """What was compared."""

    def __init__(self) -> None:
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.victims = 0
        self.heard_late = (
            0  # another choice, because a budget was heard of only when a pod was asked for
        )
        self.differences: list[Difference] = []


def compare_singly(case: Case, oracle: Oracle, tally: Tally) -> None:
    """Pod by pod in the order in which they choose, each in a decision of its own."""
    both = Both(oracle, case.objects)
    for pod in _ordered(case.waiting):
        outcome = both.ours([pod])[pod["metadata"]["uid"]]
        compared(both, pod, outcome, tally)


def compare_together(case: Case, oracle: Oracle, tally: Tally) -> None:
    """All pods in one decision of ours; upstream follows in the order in which they choose."""
    both = Both(oracle, case.objects)
    outcomes = both.ours(case.waiting)
    for pod in _ordered(case.waiting):
        compared(both, pod, outcomes[pod["metadata"]["uid"]], tally)


def compared(both: Both, pod: Tree, ours: Outcome, tally: Tally) -> None:
    """Asks upstream about a pod, counts, and lets happen what ours decided."""
    answer = both.theirs(pod)
    is_agreed, kind, theirs = _agreement(ours, answer)
    tally.outcomes[kind] += 1
    if is_agreed:
        tally.victims += len(ours.victims)
    elif (safe := both.protected()) and _agreement(
        both.ours([pod], spared=safe)[pod["metadata"]["uid"]], answer
    )[0]:
        tally.heard_late += 1
    else:
        tally.differences.append(Difference(pod, ours, theirs, both.picture()))
    both.happens(pod, ours)


def _agreement(ours: Outcome, answer: Tree) -> tuple[bool, str, str]:
    """Whether ours does what upstream does, what that is, and upstream in words."""
    if answer["accepted"]:
        is_agreed = ours.kind == "starts" and ours.node in answer["accepted"]
        return is_agreed, "starts", f"starts on one of {answer['accepted']}"
    result = answer["preemption"]
    if not result["node"]:
        return ours.kind == "waits", "waits", f"waits: {result['why']}"
    theirs = Outcome("preempts", result["node"], tuple(result["victims"]))
    if result[
        "violations"
    ]:  # it would exceed a budget, as no node would do without; ours never does
        return (
            ours.kind == "waits",
            "a budget protects",
            f"exceeds {result['violations']} budgets: {theirs}",
        )
    return ours == theirs, "preempts", str(theirs)


class Both:
    """One cluster as both schedulers know it."""

    def __init__(self, oracle: Oracle, begin: Sequence[Tree]) -> None:
        self._oracle = oracle
        self._world = World()
        self._known = {_key(tree): tree for tree in begin}
        self._budgets = [_struct(tree) for tree in begin if tree["kind"] == "PodDisruptionBudget"]
        for tree in begin:
            if tree["kind"] != "PodDisruptionBudget":
                self._world.apply(Changed(codec.decode(tree).struct))
        self._asked({"op": "filters", "objects": list(begin)})

    def protected(self) -> set[str]:
        """Running pods that no budget lets go."""
        shut = [budget for budget in self._budgets if not budget.status.disruptions_allowed]
        return {
            id_
            for id_, pod in self._world.pods.items()
            if any(covers(budget, pod) for budget in shut)
        }

    def ours(self, waiting: Sequence[Tree], spared: Collection[str] = ()) -> dict[str, Outcome]:
        """What ours decides, by pod; pods that a budget protects are spared, as the evictor does."""
        structs = [codec.decode(pod).struct for pod in waiting]
        for struct in structs:
            self._world.apply(Changed(struct))
        among = [pod_id(struct) for struct in structs]
        safe = set(spared)
        while True:
            decided = decide.decide(self._world, policy.DEFAULT, among=among, spared=safe)
            refused = self._refused(decided)
            if not refused:
                break
            safe |= refused
        for struct in structs:
            self._world.apply(Deleted(struct))
        return dict(_outcomes(decided, among))

    def _refused(self, decided: plan.Plan) -> set[str]:
        limits = disruption_limits.Budgets({NAMESPACE: self._budgets})
        names: set[str] = set()
        for evictions in evictor.by_beneficiary(decided.evictions).values():
            going = [self._world.pods[eviction.pod.uid] for eviction in evictions]
            beyond = limits.over_limit(going)
            names.update(pod.metadata.uid for pod in beyond)
            if not beyond:
                for pod in going:
                    limits.record_eviction(pod)
        return names

    def theirs(self, pod: Tree) -> Tree:
        """What upstream says: the nodes that take the pod, or who would have to go."""
        return self._asked({"op": "filters", "pod": pod, "preempt": True})

    def happens(self, pod: Tree, outcome: Outcome) -> None:
        """Victims are gone, and the pod runs."""
        gone = [self._known.pop(("Pod", *name.split("/"))) for name in outcome.victims]
        for tree in gone:
            self._world.apply(Deleted(codec.decode(tree).struct))
        there: list[Tree] = []
        if outcome.node:
            started = {"phase": "Running", "startTime": pod["metadata"]["creationTimestamp"]}
            there.append(
                {**pod, "spec": {**pod["spec"], "nodeName": outcome.node}, "status": started}
            )
        for tree in there:
            self._known[_key(tree)] = tree
            self._world.apply(Changed(codec.decode(tree).struct))
        self._asked(
            {"op": "filters", "gone": gone}
        )  # first: upstream gives up a port for all who hold it
        self._asked({"op": "filters", "changed": there})

    def picture(self) -> list[Tree]:
        """Everything that is there."""
        return list(self._known.values())

    def _asked(self, request: Tree) -> Tree:
        answer = self._oracle.ask(request)
        assert "failure" not in answer, answer["failure"]
        return answer


def _outcomes(decided: plan.Plan, among: Iterable[str]) -> Iterator[tuple[str, Outcome]]:
    placed = {placement.pod.uid: placement.node for placement in decided.placements}
    nominated = {nomination.pod.uid: nomination for nomination in decided.nominations}
    victims = evictor.by_beneficiary(decided.evictions)
    for uid in among:
        if uid in placed:
            yield uid, Outcome("starts", placed[uid])
        elif uid in nominated:
            gone = sorted(
                f"{item.pod.namespace}/{item.pod.name}"
                for item in victims.get(nominated[uid].gang, ())
            )
            yield uid, Outcome("preempts" if gone else "starts", nominated[uid].node, tuple(gone))
        else:
            yield uid, Outcome("waits")


def _ordered(waiting: Sequence[Tree]) -> list[Tree]:
    by_id = {pod["metadata"]["uid"]: pod for pod in waiting}
    return [
        by_id[item.metadata.uid]
        for item in pod_order.waiting(codec.decode(pod).struct for pod in waiting)
    ]


def _struct(tree: Tree) -> PodDisruptionBudget:
    return codec.decode_struct(PodDisruptionBudget, codec.encode_tree(tree))


def _key(tree: Tree) -> tuple[str, str, str]:
    return tree["kind"], tree["metadata"].get("namespace", ""), tree["metadata"]["name"]

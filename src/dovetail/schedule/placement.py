"""Decides where a pod goes: on the node where it costs others least, of equal ones the first by name.

Pods of one kind share a cohort, which keeps for every class of like nodes the one answer all its nodes would give and
brings only nodes up to date that changed since. With the memo off every node is judged anew for every pod; the plan is
the same. Reads the world inside a trial; never changes it.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

from dovetail.allocate import outcome
from dovetail.model import claims, plan, pods, policy
from dovetail.schedule import likeness, refuse
from dovetail.schedule.claims import Needs
from dovetail.schedule.judge import Answer, Fits, Judge, Kind, Unfit, kind_of, stand_in
from dovetail.world.events import ObjectKey
from dovetail.world.world import World


class Found(NamedTuple):
    """A node for the pod, and devices for those of its claims that had none."""

    node: str
    allocations: dict[ObjectKey, claims.AllocationResult]
    terms: tuple[plan.Term, ...]


class Search:
    """Finds nodes for the pods of one cycle."""

    def __init__(self, world: World, policy: policy.Policy, budget: policy.Budget) -> None:
        self._world = world
        self._judge = Judge(world, policy, budget)
        self._memo = policy.memo
        self._cohorts: dict[likeness.Key, Cohort] = {}

    def find(self, pod: pods.Pod, needs: Needs) -> Found | plan.Refusal:
        """The best node, or why there is none."""
        cohort = self._cohort(pod, needs)
        best = cohort.best()
        if best is None:
            names = {stand_in(place): one.name for place, one in enumerate(needs.fresh)}
            return refuse.over_nodes(pod, cohort.tally(), names=names)
        node, answer = best
        results = self._results(answer, needs, node=node)
        keys = (one.key for one in needs.fresh)
        return Found(node, dict(zip(keys, results, strict=True)), answer.terms)

    def _cohort(self, pod: pods.Pod, needs: Needs) -> Cohort | Singles:
        if not self._memo:
            return Singles(self._world, self._judge, kind_of(pod, needs))
        key = likeness.pod_key(pod, needs)
        known = self._cohorts.get(key)
        if known is None:
            kind = kind_of(pod, needs)
            reads = likeness.reads_of(kind.fresh, self._world.classes)
            keys = likeness.keys_for(self._world, reads)
            known = self._cohorts[key] = Cohort(self._world, self._judge, kind, keys=keys)
        known.refresh()
        return known

    def _results(self, answer: Fits, needs: Needs, *, node: str) -> tuple[claims.AllocationResult, ...]:
        """The devices under the claims' own names: share ids depend on them, the choice does not."""
        shared = any(one.share_id is not None for result in answer.results for one in result.devices.results)
        if answer.node == node and not shared:
            return answer.results
        again = self._judge.allocated(tuple(one.claim for one in needs.fresh), self._world.view(node))
        assert isinstance(again, outcome.Allocated), "the same claims on the same node gave another answer"
        return again.results


class Cohort:
    """Pods of one kind and what every node means for them."""

    def __init__(self, world: World, judge: Judge, kind: Kind, *, keys: likeness.NodeKeys) -> None:
        self._world = world
        self._judge = judge
        self._kind = kind
        self._keys = keys
        self._ruled_out: dict[str, Unfit] = {}  # nodes whose own facts rule them out
        self._ids: dict[likeness.Key, int] = {}
        self._answers: list[Answer] = []  # by the number of the class
        self._class_of: dict[str, int] = {}
        self._heap: list[tuple[float, str, int]] = []
        self._read = -1  # entries of the world's journal already taken in
        self._tally: refuse.Tally | None = None

    def refresh(self) -> None:
        """Takes in what changed since the last time. Linear in changed nodes, and in all of them the first time."""
        journal = self._world.journal
        if self._read < 0:
            self._sort_out()
            changed = list(self._class_of)
        elif self._read > len(journal):  # it was cut
            changed = list(self._class_of)
        else:
            names = set(journal[self._read :])
            changed = list(self._class_of) if "" in names else [name for name in names if name in self._class_of]
        self._read = len(journal)
        for name in changed:
            self._classify(name)

    def best(self) -> tuple[str, Fits] | None:
        """The node with the lowest score, then name. Entries that are out of date fall off on the way."""
        while self._heap:
            _, name, number = self._heap[0]
            answer = self._answers[number]
            if self._class_of[name] == number and isinstance(answer, Fits):
                return name, answer
            heapq.heappop(self._heap)
        return None

    def tally(self) -> refuse.Tally:
        """Why no node suits, counted."""
        if self._tally is None:
            self._tally = _tally(
                self._ruled_out, {name: self._answers[number] for name, number in self._class_of.items()}
            )
        return self._tally

    def _sort_out(self) -> None:
        for name, node in sorted(self._world.nodes.items()):
            unfit = self._judge.standing(self._kind, node)
            if unfit is None:
                self._class_of[name] = -1
            else:
                self._ruled_out[name] = unfit

    def _classify(self, name: str) -> None:
        key = self._key(name)
        number = self._ids.get(key)
        if number is None:
            number = self._ids[key] = len(self._answers)
            self._answers.append(self._judge.answer(self._kind, name))
        if self._class_of[name] == number:
            return
        self._class_of[name] = number
        self._tally = None
        answer = self._answers[number]
        if isinstance(answer, Fits):
            heapq.heappush(self._heap, (answer.score, name, number))

    def _key(self, name: str) -> likeness.Key:
        free = self._world.free(name)
        if not self._kind.fresh:
            return free, self._judge.free_milli_gpu(name)
        return free, self._keys.devices_key(self._world.view(name))


class Singles:
    """The same questions without any memory: every node is asked."""

    def __init__(self, world: World, judge: Judge, kind: Kind) -> None:
        self._ruled_out: dict[str, Unfit] = {}
        self._answers: dict[str, Answer] = {}
        for name, node in sorted(world.nodes.items()):
            unfit = judge.standing(kind, node)
            if unfit is None:
                self._answers[name] = judge.answer(kind, name)
            else:
                self._ruled_out[name] = unfit

    def best(self) -> tuple[str, Fits] | None:
        """The node with the lowest score, then name."""
        fitting = [(name, answer) for name, answer in self._answers.items() if isinstance(answer, Fits)]
        return min(fitting, key=lambda one: (one[1].score, one[0]), default=None)

    def tally(self) -> refuse.Tally:
        """Why no node suits, counted."""
        return _tally(self._ruled_out, self._answers)


def _tally(ruled_out: dict[str, Unfit], answers: dict[str, Answer]) -> refuse.Tally:
    tally = refuse.Tally()
    for _, answer in sorted((ruled_out | answers).items()):
        if isinstance(answer, Unfit):
            tally.add(answer.reasons, is_undecided=answer.is_undecided)
    return tally

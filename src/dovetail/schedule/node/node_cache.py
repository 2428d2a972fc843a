"""Caches the filter results and scores of every node for pods of one kind, from pod to pod and from cycle to cycle.

Nodes that look alike to such pods form a class with one answer; only nodes that the World's journal names are filed
again. Which class a node moves to when one more such pod is placed there is remembered too, so that a row of equal pods
looks at no devices. Exact, because a class is everything an answer depends on, with two exceptions: the node's own
facts, which are filtered again when the node object is another, and device classes, which `Cohorts` watches. Where the
budget for a kind of pods ends before all nodes are filed, there is no answer, and the next call continues from there.
Never selects for a pod.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple, TypeVar

from dovetail import cache
from dovetail.cel.effort import Unfinished
from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.resource import claims, device_classes
from dovetail.model import plan
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule import refusal_summary, step_budget
from dovetail.schedule.node import equivalence, pick_transfer, priced_classes
from dovetail.schedule.node.evaluate_node import Choice, NodeEvaluator, NodeVerdict, PodKind

K = TypeVar("K")
V = TypeVar("V")

MOST_PICKS: Final = 4096  # choices of devices remembered for one kind of pods
MOST_CLASSES: Final = (
    200_000  # of nodes, in all cohorts of a world together; one takes about a kilobyte
)
BYTES_PER_CLASS: Final = 64  # of what claims ask for: a cohort keeps it in several forms
SLACK: Final = 256  # classes and heap entries beyond twice those in use before a sweep
_REASONS_UNKNOWN: Final = Reason(
    code=ReasonCode.BUDGET, detail="cannot serve the pod; the reasons are not worked out yet"
)


class NodeClasses:
    """Pods of one kind, and every node filtered and scored for them."""

    def __init__(
        self, kind: PodKind, keys: equivalence.NodeKeys, *, has_prices: bool = False
    ) -> None:
        """With `has_prices`, scores of unchanged nodes change, too, by what is scarce elsewhere."""
        self.kind = kind
        self._keys = keys
        self._priced = priced_classes.PricedClasses() if has_prices else None
        # By node: the object that was filtered, why its own facts rule it out, what preferences make of it.
        self._judged: dict[str, nodes.Node] = {}
        self._ruled_out: dict[str, Reason] = {}
        self._preferences: dict[str, tuple[plan.Term, ...]] = {}
        self._class_of: dict[str, int] = {}
        self._numbers: dict[equivalence.Key, int] = {}
        self._next = itertools.count()  # a number is never used twice
        # By the number of the class:
        self._answers: dict[int, float | NodeVerdict] = {}  # its score, or why it does not fit
        self._members: dict[int, int] = {}  # how many nodes it has
        self._terms: dict[int, tuple[plan.Term, ...]] = {}  # where a node of it was selected
        self._looks: dict[int, equivalence.Key] = {}  # the devices of its nodes
        self._after: dict[int, int] = {}  # the class with one more pod of the kind
        # By devices alone: room differs more often than they do.
        self._choices: dict[equivalence.Key, Choice | NodeVerdict] = {}
        self._picks: dict[equivalence.Key, pick_transfer.Pick] = {}
        self._pools: dict[str, tuple[str, ...]] = {}  # by node, the pools it sees
        self._heap: list[tuple[float, str, int]] = []
        self._unfiled: set[str] = set()  # nodes the budget did not suffice for
        self._sweep_at = SLACK
        self._read = -1  # position in the world's journal
        self._tally: refusal_summary.Tally | None = None

    @property
    def classes(self) -> int:
        """How many classes of nodes are remembered, those without nodes included."""
        return len(self._numbers)

    def refresh(self, evaluator: NodeEvaluator) -> int:
        """Filters and scores the nodes that changed since the last call; returns how many are still to come.

        Linear in changed nodes, and in all of them the first time.
        """
        world = evaluator.world
        if self._priced is not None:
            self._priced.set_prices(evaluator.prices(), evaluator.weights)
        changed = world.node_changes.since(self._read)
        if changed is not None and not changed and not self._unfiled:
            return 0
        self._read = world.node_changes.end
        existing = world.nodes.keys()
        if changed is None:  # the journal does not reach back that far
            names = existing | self._class_of.keys()
        else:
            names = self._unfiled.union(changed)
        self._unfiled = set(names)  # until each is filed: an exception may end the loop
        evaluator.worked += len(names) * step_budget.EVALUATED
        for name in sorted(names):  # so that the budget always ends at the same node
            if name not in existing:
                self._leave(name)
            elif not self._file(evaluator, name):
                continue
            self._unfiled.discard(name)
        self._sweep()
        return len(self._unfiled)

    def placed(self, evaluator: NodeEvaluator, node: str) -> None:
        """A pod of the kind was assumed on a node that was selected here, just now."""
        journal = evaluator.world.node_changes
        changed = journal.since(self._read)
        if changed is None or self._unfiled or changed.count(node) != len(changed):
            return  # other nodes changed, too
        before = self._class_of[node]
        after = self._after.get(before)
        if after is not None and after in self._members:
            self._read = journal.end
            self._enter(node, after)
            self._sweep()
            return
        self.refresh(evaluator)
        if not self._unfiled:
            self._after[before] = self._class_of[node]

    def best(self, within: Collection[str] | None = None) -> str | None:
        """The node with the lowest score, then name; of those in `within`, if given: linear in them then."""
        if within is not None:
            return _lowest(self.scores(within))
        if self._priced is not None:
            return self._priced.cheapest(self._class_of)
        while self._heap:
            _, name, number = self._heap[0]
            if self._class_of.get(name) == number:
                return name
            heapq.heappop(self._heap)
        return None

    def scores(self, within: Collection[str] | None = None) -> Iterator[tuple[str, float]]:
        """Every node that fits, of those in `within` if given, with its score. Linear in nodes."""
        class_of = self._class_of
        if within is not None:
            return self._scores_within(within)
        score_of = {
            number: self._now(number, score)
            for number, score in self._answers.items()
            if not isinstance(score, NodeVerdict)
        }
        return ((name, score_of[number]) for name, number in class_of.items() if number in score_of)

    def _scores_within(self, within: Collection[str]) -> Iterator[tuple[str, float]]:
        class_of, answers = self._class_of, self._answers
        for name in within:
            number = class_of.get(name)
            if number is None:
                continue
            score = answers[number]
            if not isinstance(score, NodeVerdict):
                yield name, self._now(number, score)

    def _now(self, number: int, score: float) -> float:
        """The score of a class at the prices of now."""
        return score if self._priced is None else self._priced.score(number)

    def terms(self, evaluator: NodeEvaluator, node: str) -> tuple[plan.Term, ...]:
        """What the score of a node that fits is made of."""
        number = self._class_of[node]
        if self._priced is not None:  # terms change with prices
            return evaluator.terms(self.kind, node)
        if number not in self._terms:
            self._terms[number] = evaluator.terms(self.kind, node)
        return self._terms[number]

    def pick(self, node: str) -> tuple[claims.AllocationResult, ...] | None:
        """The devices that were allocated before on a node that looks like this one, under their names here."""
        pick = self._picks.get(self._looks[self._class_of[node]])
        return None if pick is None else pick_transfer.transferred(pick, node, self._pools[node])

    def keep_pick(self, node: str, pick: pick_transfer.Pick) -> None:
        """Remembers what was allocated on a node, for those that look like it."""
        if len(self._picks) >= MOST_PICKS:
            self._picks.clear()
        self._picks[self._looks[self._class_of[node]]] = pick

    def tally(self, evaluator: NodeEvaluator) -> refusal_summary.Tally:
        """Why no node fits, counted. Linear in classes, and in nodes where reasons are not worked out yet."""
        if self._tally is not None:
            return self._tally
        is_complete = self._work_out_reasons(evaluator)
        tally = refusal_summary.Tally()
        for number, count in self._members.items():
            verdict = self._answers[number]
            if count and isinstance(verdict, NodeVerdict):
                reasons = verdict.reasons if verdict.reasons is not None else (_REASONS_UNKNOWN,)
                tally.add(reasons, is_undecided=verdict.is_undecided, nodes=count)
        if is_complete:
            self._tally = tally
        return tally

    def _work_out_reasons(self, evaluator: NodeEvaluator) -> bool:
        """Works out reasons on one node of each class; False where the budget did not suffice for all."""
        unexplained = {
            number
            for number, verdict in self._answers.items()
            if isinstance(verdict, NodeVerdict)
            and verdict.reasons is None
            and self._members[number]
        }
        evaluator.begin()
        if not unexplained:
            return True
        for name, number in self._class_of.items():
            if number not in unexplained:
                continue
            if evaluator.is_spent:
                return False
            unexplained.discard(number)
            verdict = self._explained_choice(evaluator, name)
            if verdict is None:
                return False
            self._answers[number] = verdict
        return True

    def _explained_choice(self, evaluator: NodeEvaluator, name: str) -> NodeVerdict | None:
        """Why the node's devices do not do, shared by nodes with equal devices; None where the budget ended."""
        key = self._devices_key(evaluator, name)
        verdict = self._choices[key]
        assert isinstance(verdict, NodeVerdict)
        if verdict.reasons is None:
            try:
                verdict = self._choices[key] = NodeVerdict(evaluator.reasons(self.kind, name))
            except Unfinished:
                return None
        return verdict

    def _file(self, evaluator: NodeEvaluator, name: str) -> bool:
        """Puts a node into its class; False where the budget does not suffice."""
        reason = self._standing(evaluator, name)
        key: equivalence.Key = reason
        look: equivalence.Key = None
        if reason is None:
            look = self._devices_key(evaluator, name)
            key = (evaluator.world.free(name), look, self._preferences.get(name))
            self._pools[name] = tuple([pool.name for pool in evaluator.view(name).pools])
        number = self._numbers.get(key)
        if number is None:
            answer = self._new_answer(evaluator, name, reason)
            if answer is None:
                self._leave(name, is_gone=False)
                return False
            number = self._numbers[key] = next(self._next)
            self._looks[number] = look
            self._members[number] = 0
            self._answers[number] = answer
            if self._priced is not None and not isinstance(answer, NodeVerdict):
                choice = self._choices[self._devices_key(evaluator, name)]
                assert isinstance(choice, Choice)
                self._priced.add(number, answer, evaluator.loss(self.kind, name, choice))
        if self._class_of.get(name) != number:
            self._enter(name, number)
        return True

    def _new_answer(
        self, evaluator: NodeEvaluator, name: str, reason: Reason | None
    ) -> float | NodeVerdict | None:
        """The answer for a node of a new class; None where the budget does not suffice."""
        if evaluator.is_spent:
            return None
        if reason is not None:
            return NodeVerdict((reason,))
        try:
            return self._answer(evaluator, name)
        except Unfinished:
            return None

    def _enter(self, name: str, number: int) -> None:
        self._leave(name, is_gone=False)
        self._class_of[name] = number
        self._members[number] += 1
        score = self._answers[number]
        if isinstance(score, NodeVerdict):
            return
        if self._priced is not None:
            self._priced.enter(name, number)
        else:
            heapq.heappush(self._heap, (score, name, number))

    def _standing(self, evaluator: NodeEvaluator, name: str) -> Reason | None:
        """What about the node itself rules it out; filtered again where it is another object."""
        node = evaluator.world.nodes[name]
        if self._judged.get(name) is not node:
            self._judged[name] = node
            reason = evaluator.static_refusal(self.kind, node)
            self._ruled_out.pop(name, None)
            self._preferences.pop(name, None)
            if reason is not None:
                self._ruled_out[name] = reason
            elif preferences := evaluator.preference_terms(self.kind, node):
                self._preferences[name] = preferences
        # The driver's version is published by devices, which change without the node.
        return self._ruled_out.get(name) or evaluator.driver_refusal(self.kind, node)

    def _answer(self, evaluator: NodeEvaluator, name: str) -> float | NodeVerdict:
        served = evaluator.served(self.kind, name)
        if (short := evaluator.resource_refusal(self.kind, name, served)) is not None:
            return short
        key = self._devices_key(evaluator, name)
        choice = self._choices.get(key)
        if choice is None:
            choice = self._choices[key] = evaluator.device_choice(self.kind, name, served)
        if isinstance(choice, NodeVerdict):
            return choice
        if self._priced is not None:
            return evaluator.fixed_score(self.kind, name, choice)
        return evaluator.score(self.kind, name, choice)

    def _devices_key(self, evaluator: NodeEvaluator, name: str) -> equivalence.Key:
        """Everything an answer depends on, the node's own facts and the room it has left aside."""
        # Expected losses depend on how much is free of which device, and on the CPU beside it.
        state = evaluator.gpu_state(name) if evaluator.has_losses else None
        if not self.kind.fresh and not self.kind.backed:
            return evaluator.free_milli_gpu(name) if state is None else state
        devices = self._keys.devices_key(evaluator.view(name))
        return evaluator.served(self.kind, name), devices, state

    def _leave(self, name: str, *, is_gone: bool = True) -> None:
        self._tally = None
        number = self._class_of.pop(name, None)
        if number is not None:
            self._members[number] -= 1
        if is_gone:
            self._judged.pop(name, None)
            self._ruled_out.pop(name, None)
            self._preferences.pop(name, None)
            self._pools.pop(name, None)

    def _sweep(self) -> None:
        """Forgets classes without nodes and heap entries out of date, once they are many."""
        if len(self._numbers) > self._sweep_at:
            self._numbers = {
                key: number for key, number in self._numbers.items() if self._members[number]
            }
            in_use = set(self._numbers.values())
            self._answers = _restricted(self._answers, in_use)
            self._members = _restricted(self._members, in_use)
            self._terms = _restricted(self._terms, in_use)
            self._looks = _restricted(self._looks, in_use)
            if self._priced is not None:
                self._priced.keep(in_use)
            self._after = {
                number: after for number, after in self._after.items() if {number, after} <= in_use
            }
            devices = {key[1] for key in self._numbers if isinstance(key, tuple)}
            self._choices = _restricted(self._choices, devices)
            self._sweep_at = 2 * len(in_use) + SLACK
        if len(self._heap) > 2 * len(self._class_of) + SLACK:
            self._heap = [
                (score, name, number)
                for name, number in self._class_of.items()
                if not isinstance(score := self._answers[number], NodeVerdict)
            ]
            heapq.heapify(self._heap)


class EachNode:
    """The same without any memory: every node is filtered and scored, or those in `names`."""

    def __init__(
        self, evaluator: NodeEvaluator, kind: PodKind, names: frozenset[str] | None = None
    ) -> None:
        self._kind = kind
        self._answers: dict[str, float | NodeVerdict] = {}
        self.unfiled = 0
        nodes_by_name = evaluator.world.nodes
        evaluator.worked += len(nodes_by_name) * step_budget.EVALUATED
        for name in sorted(nodes_by_name if names is None else names & nodes_by_name.keys()):
            node = nodes_by_name[name]
            reason = evaluator.static_refusal(kind, node) or evaluator.driver_refusal(kind, node)
            if reason is not None:
                self._answers[name] = NodeVerdict((reason,))
                continue
            try:
                answer = None if evaluator.is_spent else evaluator.evaluate(kind, name)
            except Unfinished:
                answer = None
            if answer is None:
                self.unfiled += 1
            else:
                self._answers[name] = answer

    def best(self, within: Collection[str] | None = None) -> str | None:
        """The node with the lowest score, then name."""
        return _lowest(self.scores(within))

    def scores(self, within: Collection[str] | None = None) -> Iterator[tuple[str, float]]:
        """Every node that fits, of those in `within` if given, with its score."""
        return (
            (name, score)
            for name, score in self._answers.items()
            if not isinstance(score, NodeVerdict) and (within is None or name in within)
        )

    def terms(self, evaluator: NodeEvaluator, node: str) -> tuple[plan.Term, ...]:
        """What the score of a node that fits is made of."""
        return evaluator.terms(self._kind, node)

    def tally(self, evaluator: NodeEvaluator) -> refusal_summary.Tally:
        """Why no node fits, counted."""
        tally = refusal_summary.Tally()
        for name, verdict in self._answers.items():
            if not isinstance(verdict, NodeVerdict):
                continue
            reasons = verdict.reasons
            if reasons is None:
                reasons = self._reasons(evaluator, name)
            tally.add(reasons, is_undecided=verdict.is_undecided)
        return tally

    def _reasons(self, evaluator: NodeEvaluator, name: str) -> tuple[Reason, ...]:
        try:
            return evaluator.reasons(self._kind, name)
        except Unfinished:
            return (_REASONS_UNKNOWN,)


class NodeClassesCache:
    """The cohorts of one World under one policy and budget; the least recently used are forgotten first."""

    def __init__(self, most: int) -> None:
        self._entries = cache.Memo[equivalence.Key, _Entry](
            MOST_CLASSES, most_entries=most, weigh=_weight_of
        )

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: equivalence.Key) -> NodeClasses | None:
        """The cohort of a kind of pods."""
        entry = self._entries.get(key)
        return None if entry is None else entry.node_classes

    def keep(
        self,
        key: equivalence.Key,
        node_classes: NodeClasses,
        read: dict[str, device_classes.DeviceClass | None],
        *,
        spec_bytes: int = 0,
    ) -> None:
        """Keeps a cohort that read these device classes, for claims of so many bytes."""
        self._entries.put(key, _Entry(node_classes, read, spec_bytes))

    def clear(self) -> None:
        """Forgets all cohorts."""
        for key, _ in self._entries.items():
            self._entries.drop(key)

    def weight(self) -> int:
        """The classes of nodes in all cohorts, and what their claims take. Linear in cohorts."""
        return self._entries.weight

    def drop_readers(self, classes: dict[str, device_classes.DeviceClass]) -> None:
        """Forgets cohorts that read a device class whose spec has changed since."""
        for key, entry in self._entries.items():
            if any(not _same(before, classes.get(name)) for name, before in entry.read.items()):
                self._entries.drop(key)


class _Entry(NamedTuple):
    node_classes: NodeClasses
    read: dict[str, device_classes.DeviceClass | None]
    spec_bytes: int


def _weight_of(entry: _Entry) -> int:
    return entry.node_classes.classes + entry.spec_bytes // BYTES_PER_CLASS


def _lowest(scores: Iterator[tuple[str, float]]) -> str | None:
    """The node with the lowest score, then name."""
    ranked = ((score, name) for name, score in scores)
    return min(ranked, default=(0.0, None))[1]


def _restricted(table: dict[K, V], keys: Collection[K]) -> dict[K, V]:
    return {key: value for key, value in table.items() if key in keys}


def _same(
    before: device_classes.DeviceClass | None, after: device_classes.DeviceClass | None
) -> bool:
    if before is None or after is None:
        return before is after
    return before is after or before.spec == after.spec

"""Keeps what every node means for pods of one kind, from pod to pod and from cycle to cycle.

Nodes that look alike to such pods form a class with one answer; only nodes the world's journal names are filed anew.
What a class becomes when one more such pod is put there is remembered too, so that a row of them looks at no devices.
Sound because a class is everything an answer depends on, but for the node's own facts, which are judged again when the
node object is another, and device classes, which whoever keeps a cohort watches. Where the budget for a kind of pods
ends before all nodes are filed, nothing is answered, and the next time goes on from there. Never chooses for a pod.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Iterator
from typing import Final

from dovetail.cel.effort import Unfinished
from dovetail.model import claims, classes, nodes, plan
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule import likeness, refuse, reuse, steps
from dovetail.schedule.judge import Choice, Judge, Kind, Told

MOST_PICKS: Final = 4096  # choices of devices remembered for one kind of pods
MOST_CLASSES: Final = 200_000  # of nodes, in all cohorts of a world together; one takes about a kilobyte
BYTES_PER_CLASS: Final = 64  # of what claims ask for: a cohort keeps it in several forms
SLACK: Final = 256  # classes and heap entries beyond twice those in use before a sweep
_UNTOLD: Final = Reason(code=ReasonCode.BUDGET, detail="cannot serve the pod; the reasons are not worked out yet")


class Cohort:
    """Pods of one kind and what every node means for them."""

    def __init__(self, kind: Kind, keys: likeness.NodeKeys) -> None:
        self.kind = kind
        self._keys = keys
        self._judged: dict[str, nodes.Node] = {}  # the node objects whose standing is known
        self._ruled_out: dict[str, Reason] = {}  # nodes whose own facts rule them out
        self._leaning: dict[str, tuple[plan.Term, ...]] = {}  # what about nodes themselves is liked less, or more
        self._class_of: dict[str, int] = {}
        self._numbers: dict[likeness.Key, int] = {}
        self._next = itertools.count()  # a number is never used twice
        self._answers: dict[int, float | Told] = {}  # by the number of the class: its score, or why not
        self._members: dict[int, int] = {}
        self._terms: dict[int, tuple[plan.Term, ...]] = {}  # of classes a node was chosen from
        self._choices: dict[likeness.Key, Choice | Told] = {}  # by devices alone: room differs more often than they do
        self._picks: dict[likeness.Key, reuse.Pick] = {}  # by devices alone, too
        self._looks: dict[int, likeness.Key] = {}  # by the number of the class, the devices of its nodes
        self._after: dict[int, int] = {}  # by the number of the class, that with one more pod of the kind
        self._pools: dict[str, tuple[str, ...]] = {}  # by node, the pools it sees
        self._heap: list[tuple[float, str, int]] = []
        self._unfiled: set[str] = set()  # nodes the budget did not suffice for
        self._sweep_at = SLACK
        self._read = -1  # position in the world's journal
        self._tally: refuse.Tally | None = None

    @property
    def classes(self) -> int:
        """How many classes of nodes are remembered, those without nodes included."""
        return len(self._numbers)

    def refresh(self, judge: Judge) -> int:
        """Takes in what changed since the last time; how many nodes are still to be judged.

        Linear in changed nodes, and in all of them the first time.
        """
        world = judge.world
        noted = world.journal.since(self._read)
        if noted is not None and not noted and not self._unfiled:
            return 0
        self._read = world.journal.end
        known = world.nodes.keys()
        names = known | self._class_of.keys() if noted is None else self._unfiled.union(noted)
        self._unfiled = set(names)  # until each is filed: an exception may end the loop
        judge.worked += len(names) * steps.JUDGED
        for name in sorted(names):  # so that the budget always ends at the same node
            if name not in known:
                self._leave(name)
            elif not self._file(judge, name):
                continue
            self._unfiled.discard(name)
        self._sweep()
        return len(self._unfiled)

    def placed(self, judge: Judge, node: str) -> None:
        """A pod of the kind was put on a node that was chosen here, just now."""
        journal = judge.world.journal
        noted = journal.since(self._read)
        if noted is None or self._unfiled or noted.count(node) != len(noted):
            return  # more than that happened
        before = self._class_of[node]
        after = self._after.get(before)
        if after is not None and after in self._members:
            self._read = journal.end
            self._enter(node, after)
            self._sweep()
            return
        self.refresh(judge)
        if not self._unfiled:
            self._after[before] = self._class_of[node]

    def best(self, within: Collection[str] | None = None) -> str | None:
        """The node with the lowest score, then name; of those named, if any are: linear in them then."""
        if within is not None:
            return min(((score, name) for name, score in self.scores(within)), default=(0.0, None))[1]
        while self._heap:
            _, name, number = self._heap[0]
            if self._class_of.get(name) == number:
                return name
            heapq.heappop(self._heap)
        return None

    def scores(self, within: Collection[str] | None = None) -> Iterator[tuple[str, float]]:
        """Every node that suits, of those named if any are. Linear in nodes."""
        if within is not None:
            numbered = ((name, self._answers[self._class_of[name]]) for name in within if name in self._class_of)
            return ((name, score) for name, score in numbered if not isinstance(score, Told))
        known = {number: score for number, score in self._answers.items() if not isinstance(score, Told)}
        return ((name, known[number]) for name, number in self._class_of.items() if number in known)

    def terms(self, judge: Judge, node: str) -> tuple[plan.Term, ...]:
        """What the score of a node that suits is made of."""
        number = self._class_of[node]
        if number not in self._terms:
            self._terms[number] = judge.terms(self.kind, node)
        return self._terms[number]

    def pick(self, node: str) -> tuple[claims.AllocationResult, ...] | None:
        """The devices that were chosen before on a node that looks like this one, as they are called here."""
        known = self._picks.get(self._looks[self._class_of[node]])
        return None if known is None else reuse.moved(known, node, self._pools[node])

    def keep_pick(self, node: str, pick: reuse.Pick) -> None:
        """Remembers what was chosen on a node, for those that look like it."""
        if len(self._picks) >= MOST_PICKS:
            self._picks.clear()
        self._picks[self._looks[self._class_of[node]]] = pick

    def tally(self, judge: Judge) -> refuse.Tally:
        """Why no node suits, counted. Linear in classes, and in nodes where reasons are to be written down."""
        if self._tally is not None:
            return self._tally
        is_complete = self._write_down(judge)
        tally = refuse.Tally()
        for number, count in self._members.items():
            told = self._answers[number]
            if count and isinstance(told, Told):
                reasons = told.reasons if told.reasons is not None else (_UNTOLD,)
                tally.add(reasons, is_undecided=told.is_undecided, nodes=count)
        if is_complete:
            self._tally = tally
        return tally

    def _write_down(self, judge: Judge) -> bool:
        """Asks one node of each class for its reasons; False where the budget did not suffice for all."""
        silent = {number for number, told in self._answers.items() if isinstance(told, Told) and told.reasons is None}
        silent &= {number for number, count in self._members.items() if count}
        judge.begin()
        for name, number in self._class_of.items() if silent else ():
            if number in silent:
                if judge.is_spent:
                    return False
                silent.discard(number)
                key = self._devices_key(judge, name)
                known = self._choices[key]
                if isinstance(known, Told) and known.reasons is None:
                    try:
                        known = self._choices[key] = Told(judge.reasons(self.kind, name))
                    except Unfinished:
                        return False
                assert isinstance(known, Told)
                self._answers[number] = known
        return True

    def _file(self, judge: Judge, name: str) -> bool:
        """Puts a node into its class; False where the budget does not suffice."""
        reason = self._standing(judge, name)
        key: likeness.Key = reason
        look: likeness.Key = None
        if reason is None:
            look = self._devices_key(judge, name)
            key = (judge.world.free(name), look, self._leaning.get(name))
            self._pools[name] = tuple([pool.name for pool in judge.view(name).pools])
        number = self._numbers.get(key)
        if number is None:
            answer = self._new_answer(judge, name, reason)
            if answer is None:
                self._leave(name, is_gone=False)
                return False
            number = self._numbers[key] = next(self._next)
            self._looks[number] = look
            self._members[number] = 0
            self._answers[number] = answer
        if self._class_of.get(name) != number:
            self._enter(name, number)
        return True

    def _new_answer(self, judge: Judge, name: str, reason: Reason | None) -> float | Told | None:
        """What a node of a class that is not known yet means; None where the budget does not suffice."""
        if judge.is_spent:
            return None
        if reason is not None:
            return Told((reason,))
        try:
            return self._answer(judge, name)
        except Unfinished:
            return None

    def _enter(self, name: str, number: int) -> None:
        self._leave(name, is_gone=False)
        self._class_of[name] = number
        self._members[number] += 1
        score = self._answers[number]
        if not isinstance(score, Told):
            heapq.heappush(self._heap, (score, name, number))

    def _standing(self, judge: Judge, name: str) -> Reason | None:
        """What about the node itself rules it out; judged again where it is another object."""
        node = judge.world.nodes[name]
        if self._judged.get(name) is not node:
            self._judged[name] = node
            reason = judge.standing(self.kind, node)
            self._ruled_out.pop(name, None)
            self._leaning.pop(name, None)
            if reason is not None:
                self._ruled_out[name] = reason
            elif leaning := judge.leaning(self.kind, node):
                self._leaning[name] = leaning
        return self._ruled_out.get(name)

    def _answer(self, judge: Judge, name: str) -> float | Told:
        served = judge.served(self.kind, name)
        if (short := judge.room(self.kind, name, served)) is not None:
            return short
        key = self._devices_key(judge, name)
        choice = self._choices.get(key)
        if choice is None:
            choice = self._choices[key] = judge.choice(self.kind, name, served)
        return choice if isinstance(choice, Told) else judge.score(self.kind, name, choice)

    def _devices_key(self, judge: Judge, name: str) -> likeness.Key:
        """Everything an answer depends on, the node's own facts and the room it has left aside."""
        if not self.kind.fresh and not self.kind.backed:
            return judge.free_milli_gpu(name)
        return judge.served(self.kind, name), self._keys.devices_key(judge.view(name))

    def _leave(self, name: str, *, is_gone: bool = True) -> None:
        self._tally = None
        number = self._class_of.pop(name, None)
        if number is not None:
            self._members[number] -= 1
        if is_gone:
            self._judged.pop(name, None)
            self._ruled_out.pop(name, None)
            self._leaning.pop(name, None)
            self._pools.pop(name, None)

    def _sweep(self) -> None:
        """Forgets classes without nodes and heap entries out of date, once they are many."""
        if len(self._numbers) > self._sweep_at:
            self._numbers = {key: number for key, number in self._numbers.items() if self._members[number]}
            kept = set(self._numbers.values())
            self._answers = {number: answer for number, answer in self._answers.items() if number in kept}
            self._members = {number: count for number, count in self._members.items() if number in kept}
            self._terms = {number: terms for number, terms in self._terms.items() if number in kept}
            self._looks = {number: look for number, look in self._looks.items() if number in kept}
            self._after = {number: after for number, after in self._after.items() if {number, after} <= kept}
            devices = {key[1] for key in self._numbers if isinstance(key, tuple)}
            self._choices = {key: choice for key, choice in self._choices.items() if key in devices}
            self._sweep_at = 2 * len(kept) + SLACK
        if len(self._heap) > 2 * len(self._class_of) + SLACK:
            self._heap = [
                (score, name, number)
                for name, number in self._class_of.items()
                if not isinstance(score := self._answers[number], Told)
            ]
            heapq.heapify(self._heap)


class Singles:
    """The same questions without any memory: every node is asked, or those named."""

    def __init__(self, judge: Judge, kind: Kind, names: frozenset[str] | None = None) -> None:
        self._kind = kind
        self._answers: dict[str, float | Told] = {}
        self.unfiled = 0
        known = judge.world.nodes
        judge.worked += len(known) * steps.JUDGED
        for name in sorted(known if names is None else names & known.keys()):
            reason = judge.standing(kind, known[name])
            if reason is not None:
                self._answers[name] = Told((reason,))
                continue
            try:
                answer = None if judge.is_spent else judge.answer(kind, name)
            except Unfinished:
                answer = None
            if answer is None:
                self.unfiled += 1
            else:
                self._answers[name] = answer

    def best(self, within: Collection[str] | None = None) -> str | None:
        """The node with the lowest score, then name."""
        return min(((score, name) for name, score in self.scores(within)), default=(0.0, None))[1]

    def scores(self, within: Collection[str] | None = None) -> Iterator[tuple[str, float]]:
        """Every node that suits, of those named if any are."""
        return (
            (name, score)
            for name, score in self._answers.items()
            if not isinstance(score, Told) and (within is None or name in within)
        )

    def terms(self, judge: Judge, node: str) -> tuple[plan.Term, ...]:
        """What the score of a node that suits is made of."""
        return judge.terms(self._kind, node)

    def tally(self, judge: Judge) -> refuse.Tally:
        """Why no node suits, counted."""
        tally = refuse.Tally()
        for name, told in self._answers.items():
            if isinstance(told, Told):
                reasons = told.reasons if told.reasons is not None else self._reasons(judge, name)
                tally.add(reasons, is_undecided=told.is_undecided)
        return tally

    def _reasons(self, judge: Judge, name: str) -> tuple[Reason, ...]:
        try:
            return judge.reasons(self._kind, name)
        except Unfinished:
            return (_UNTOLD,)


class Cohorts:
    """The cohorts of one world under one policy and budget, those used last kept longest."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[likeness.Key, tuple[Cohort, dict[str, classes.DeviceClass | None]]] = {}
        self._bytes: dict[likeness.Key, int] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: likeness.Key) -> Cohort | None:
        """A cohort that is still good."""
        known = self._known.pop(key, None)
        if known is None:
            return None
        self._known[key] = known  # used last
        return known[0]

    def keep(
        self, key: likeness.Key, cohort: Cohort, read: dict[str, classes.DeviceClass | None], *, spec_bytes: int = 0
    ) -> None:
        """Keeps a cohort that read these device classes, for claims of so many bytes."""
        self._known[key] = (cohort, read)
        self._bytes[key] = spec_bytes
        excess = self.weight() - MOST_CLASSES
        while len(self._known) > self._most or (excess > 0 and len(self._known) > 1):
            oldest = next(iter(self._known))
            excess -= self._weight_of(oldest)
            self._drop(oldest)

    def weight(self) -> int:
        """The classes of nodes in all cohorts, and what their claims take. Linear in cohorts."""
        return sum(map(self._weight_of, self._known))

    def _weight_of(self, key: likeness.Key) -> int:
        return self._known[key][0].classes + self._bytes[key] // BYTES_PER_CLASS

    def _drop(self, key: likeness.Key) -> None:
        del self._known[key]
        del self._bytes[key]

    def drop_readers(self, known: dict[str, classes.DeviceClass]) -> None:
        """Forgets cohorts that read a device class which is another now."""
        for key, (_, read) in [*self._known.items()]:
            if any(not _same(one, known.get(name)) for name, one in read.items()):
                self._drop(key)


def _same(one: classes.DeviceClass | None, other: classes.DeviceClass | None) -> bool:
    if one is None or other is None:
        return one is other
    return one is other or one.spec == other.spec

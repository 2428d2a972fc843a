"""Filters and scores nodes by pod affinity and anti-affinity: kube-scheduler's InterPodAffinity.

In both directions: the terms of the pod about running pods, and the terms of running pods about it. Given a pod and the
pod index, assumed pods included. Worked out once per pod, evaluated per node. Never reads resources or devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from dovetail import cache
from dovetail.kubetypes import label_selectors
from dovetail.kubetypes.core import nodes, pods
from dovetail.kubetypes.core.namespaces import Namespace
from dovetail.model import plan, policy
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.world import pod_index
from dovetail.world.world import World

# What a required affinity of a running pod is worth to a pending one: InterPodAffinityArgs.
HARD_WEIGHT: Final = 1
Place = tuple[str, str]  # a topology key and its value: nodes that carry both are one place
_AWAY: Final = Reason(
    code=ReasonCode.POD_AFFINITY, detail="has no pod nearby that the pod has to be near to"
)
_OWN: Final = Reason(
    code=ReasonCode.POD_ANTI_AFFINITY, detail="has a pod nearby that the pod has to be away from"
)
_OTHERS: Final = Reason(
    code=ReasonCode.POD_ANTI_AFFINITY, detail="has a pod nearby that keeps pods like this one away"
)


class Term(NamedTuple):
    """One wish about neighbours, read for the pod that has it."""

    namespaces: frozenset[str]
    namespace_tests: label_selectors.Tests
    tests: label_selectors.Tests
    key: str
    weight: int = HARD_WEIGHT

    def is_about(self, pod: pods.Pod, namespaces: Mapping[str, Namespace]) -> bool:
        """Whether the pod is one of those the wish is about."""
        name = pod.metadata.namespace
        if name not in self.namespaces and not label_selectors.passes(
            self.namespace_tests, _labels_of(name, namespaces)
        ):
            return False
        return label_selectors.passes(self.tests, pod.metadata.labels)

    def question(self, namespaces: Mapping[str, Namespace]) -> pod_index.PodQuery:
        """Which pods to count for it."""
        if self.namespace_tests == label_selectors.EVERYTHING:
            return pod_index.PodQuery(None, self.tests)
        selected = {
            name
            for name, namespace in namespaces.items()
            if label_selectors.passes(self.namespace_tests, namespace.metadata.labels)
        }
        return pod_index.PodQuery(self.namespaces | selected, self.tests)


class Wishes(NamedTuple):
    """All wishes about neighbours of one pod."""

    near: tuple[Term, ...] = ()
    away: tuple[Term, ...] = ()
    rather_near: tuple[Term, ...] = ()
    rather_away: tuple[Term, ...] = ()


class PodAffinityFilter:
    """What the neighbours make of every node for one pod."""

    def __init__(self, pod: pods.Pod, world: World, *, wishes: Wishes) -> None:
        self._near = wishes.near
        self._world = world
        self._kept_away: set[Place] = set()  # by those who are there
        self._avoided: set[Place] = set()  # by the pod itself
        self._liked: Counter[Place] = Counter()
        self._strongest = 0
        self._read_others(pod)
        for term in wishes.away:
            self._avoided.update(self._places(term))
        self._company = self._shared_company() if self._near else Counter[Place]()
        self._is_first = not self._company and all(_is_counted(pod, term) for term in self._asked())
        for term in wishes.rather_near:
            self._like(self._places(term), term.weight)
        for term in wishes.rather_away:
            self._like(self._places(term), -term.weight)

    @property
    def is_void(self) -> bool:
        """Whether it makes no difference to any node."""
        return not (self._near or self._kept_away or self._avoided or self._liked)

    @property
    def has_costs(self) -> bool:
        """Whether some nodes are liked better than others."""
        return bool(self._liked)

    def misfit(self, node: nodes.Node) -> Reason | None:
        """Why the neighbours rule the node out."""
        places = node.metadata.labels.items()
        if self._near and not self._has_company(node.metadata.labels):
            return _AWAY
        if self._avoided and not self._avoided.isdisjoint(places):
            return _OWN
        if self._kept_away and not self._kept_away.isdisjoint(places):
            return _OTHERS
        return None

    def costs(
        self, suitable: Sequence[nodes.Node], weights: policy.Weights
    ) -> dict[str, plan.Term]:
        """What each node costs more than the best of them: at most the weight of the strongest wish."""
        if not self._liked:
            return {}
        sums = {node.metadata.name: self._liking(node.metadata.labels) for node in suitable}
        best, worst = max(sums.values(), default=0), min(sums.values(), default=0)
        if best == worst:
            return {}
        unit = weights.preference * self._strongest / (best - worst)
        return {
            name: plan.Term(
                "neighbours",
                round(unit * (best - liking), 3),
                f"neighbours liked {best - liking} points less",
            )
            for name, liking in sums.items()
            if liking != best
        }

    def _read_others(self, pod: pods.Pod) -> None:
        namespaces = self._world.namespaces
        for wish, counts in self._world.pod_index.affinities().items():
            theirs = read(wish)
            for term in theirs.away:
                if term.is_about(pod, namespaces):
                    self._kept_away.update(self._spread(counts, term.key))
            for term, sign in (
                *_signed(theirs.near, theirs.rather_near, 1),
                *_signed((), theirs.rather_away, -1),
            ):
                if term.is_about(pod, namespaces):
                    self._like(self._spread(counts, term.key), sign * term.weight)

    def _like(self, places: Counter[Place], weight: int) -> None:
        if not places:
            return
        self._strongest = max(self._strongest, abs(weight))
        for place, count in places.items():
            self._liked[place] += weight * count

    def _liking(self, labels: Mapping[str, str]) -> int:
        return sum(self._liked[place] for place in labels.items() if place in self._liked)

    def _places(self, term: Term) -> Counter[Place]:
        """Where pods the term is about are, and how many."""
        return self._spread(
            self._world.pod_index.count(term.question(self._world.namespaces)), term.key
        )

    def _spread(self, counts: pod_index.Counts, key: str) -> Counter[Place]:
        count_by_place: Counter[Place] = Counter()
        for name, count in counts.items():
            node = self._world.nodes.get(name)
            value = node.metadata.labels.get(key) if node is not None else None
            if value is not None:
                count_by_place[key, value] += count
        return count_by_place

    def _asked(self) -> list[pod_index.PodQuery]:
        return [term.question(self._world.namespaces) for term in self._near]

    def _shared_company(self) -> Counter[Place]:
        """Where pods are that all required terms are about: one pod has to meet them all."""
        terms = self._asked()
        spaces = [term.namespaces for term in terms if term.namespaces is not None]
        together = frozenset.intersection(*spaces) if spaces else None
        tests = tuple(dict.fromkeys(test for term in terms for test in term.tests))
        counts = self._world.pod_index.count(pod_index.PodQuery(together, tests))
        count_by_place: Counter[Place] = Counter()
        for key in {term.key for term in self._near}:
            count_by_place += self._spread(counts, key)
        return count_by_place

    def _has_company(self, labels: Mapping[str, str]) -> bool:
        if any(term.key not in labels for term in self._near):
            return False
        if (
            self._is_first
        ):  # no pod to be near to yet: the first of a group that wants to be together
            return True
        return all(self._company[term.key, labels[term.key]] for term in self._near)


def filter_(pod: pods.Pod, world: World) -> PodAffinityFilter | None:
    """The filter for a pod's neighbours; None where there is none. Cheap where no pod has affinity terms."""
    wish = pod_index.pod_affinity_of(pod)
    if wish is None and not world.pod_index.affinities():
        return None
    filter_ = PodAffinityFilter(pod, world, wishes=read(wish) if wish is not None else Wishes())
    return None if filter_.is_void else filter_


@cache.remembered(10_000)
def read(wish: pod_index.PodAffinity) -> Wishes:
    """The wishes of pods, read."""
    near, away = wish.affinity.pod_affinity or _NONE, wish.affinity.pod_anti_affinity or _NONE
    return Wishes(
        near=tuple(
            _term(wish, term) for term in near.required_during_scheduling_ignored_during_execution
        ),
        away=tuple(
            _term(wish, term) for term in away.required_during_scheduling_ignored_during_execution
        ),
        rather_near=_weighted(wish, near),
        rather_away=_weighted(wish, away),
    )


_NONE: Final = pods.PodAffinity()


def _weighted(wish: pod_index.PodAffinity, side: pods.PodAffinity) -> tuple[Term, ...]:
    listed = side.preferred_during_scheduling_ignored_during_execution
    return tuple(
        _term(wish, weighted.pod_affinity_term, weight=weighted.weight) for weighted in listed
    )


def _term(
    wish: pod_index.PodAffinity, term: pods.PodAffinityTerm, *, weight: int = HARD_WEIGHT
) -> Term:
    is_plain = not term.namespaces and term.namespace_selector is None
    return Term(
        namespaces=frozenset({wish.namespace} if is_plain else term.namespaces),
        namespace_tests=label_selectors.tests_of(term.namespace_selector),
        tests=label_selectors.tests_of(term.label_selector),
        key=term.topology_key,
        weight=weight,
    )


def _is_counted(pod: pods.Pod, question: pod_index.PodQuery) -> bool:
    is_near = question.namespaces is None or pod.metadata.namespace in question.namespaces
    return is_near and label_selectors.passes(question.tests, pod.metadata.labels)


def _signed(hard: tuple[Term, ...], soft: tuple[Term, ...], sign: int) -> list[tuple[Term, int]]:
    return [(term, sign) for term in (*hard, *soft)]


def _labels_of(name: str, namespaces: Mapping[str, Namespace]) -> Mapping[str, str]:
    namespace = namespaces.get(name)
    return {} if namespace is None else namespace.metadata.labels

"""Decides what other objects than the node itself make of it for one pod: neighbours, ports, volumes, nominations.

Ties are worked out once per pod against the world as it is, assumed pods included, and asked per node; everything else
is judged per kind of pods. Most pods have none, and pay nothing. Never reads devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from dovetail.model import nodes, plan, pods, policy
from dovetail.model.reasons import Reason
from dovetail.schedule import affinity, nominated, ports, refuse, spread, volumes
from dovetail.world.world import World


class Tie(Protocol):
    """One thing that ties a pod to other objects."""

    def misfit(self, node: nodes.Node) -> Reason | None:
        """Why the node is out of the question."""


class Leaning(Protocol):
    """A tie that makes some nodes liked less than others."""

    def costs(self, suitable: Sequence[nodes.Node], weights: policy.Weights) -> dict[str, plan.Term]:
        """What each of the nodes that suit costs more than the best of them."""


class Best(NamedTuple):
    """The node to choose, and what its ties cost."""

    node: str
    terms: tuple[plan.Term, ...]


class Ties(NamedTuple):
    """Everything that ties one pod."""

    ruling: tuple[Tie, ...]
    leaning: tuple[Leaning, ...] = ()
    volumes: volumes.VolumeTie | None = None
    first: str = ""  # the node somebody keeps free for the pod

    def choose(
        self, scores: Iterable[tuple[str, float]], known: dict[str, nodes.Node], weights: policy.Weights
    ) -> Best | refuse.Tally:
        """The best of the nodes that suit otherwise, or why none of them does. Linear in nodes."""
        suiting = dict(scores)
        best = self._liked_best(suiting, known, weights) if self.leaning or self.first else self._first(suiting, known)
        return best or self._tally(suiting, known)

    def _first(self, scores: dict[str, float], known: dict[str, nodes.Node]) -> Best | None:
        """By score and name alone: a node is asked about only if it would be better than the best so far."""
        best: tuple[float, str] | None = None
        for name, score in scores.items():
            if (best is None or (score, name) < best) and self.misfit(known[name]) is None:
                best = (score, name)
        return None if best is None else Best(best[1], ())

    def _liked_best(
        self, scores: dict[str, float], known: dict[str, nodes.Node], weights: policy.Weights
    ) -> Best | None:
        suitable = [known[name] for name in scores if self.misfit(known[name]) is None]
        if not suitable:
            return None
        costs = [one.costs(suitable, weights) for one in self.leaning]
        ranked = {one.metadata.name: scores[one.metadata.name] for one in suitable}
        for table in costs:
            for name, term in table.items():
                ranked[name] += term.milli_gpu
        best = self.first if self.first in ranked else min(ranked, key=lambda name: (ranked[name], name))
        return Best(best, tuple(table[best] for table in costs if best in table))

    def _tally(self, scores: dict[str, float], known: dict[str, nodes.Node]) -> refuse.Tally:
        counts = Counter(self.misfit(known[name]) for name in scores)
        tally = refuse.Tally()
        for reason, count in counts.items():
            tally.add((reason,) if reason is not None else (), nodes=count)
        return tally

    def misfit(self, node: nodes.Node) -> Reason | None:
        """The first tie that rules the node out."""
        for tie in self.ruling:
            if (reason := tie.misfit(node)) is not None:
                return reason
        return None


def of(pod: pods.Pod, world: World) -> Ties | tuple[Reason, ...] | None:
    """The ties of a pod; None where it has none, reasons where it can go nowhere for now."""
    if _is_untied(pod, world):
        return None
    found = _without_nominated(pod, world)
    if not isinstance(found, Ties):
        return found
    kept = nominated.tie(pod, world, again=lambda: _ruling(pod, world))
    if kept is not None:
        return found._replace(ruling=(*found.ruling, kept))
    return found if found.ruling or found.first else None


def _is_untied(pod: pods.Pod, world: World) -> bool:
    """Whether a quick look tells that nothing ties the pod to anything. True for most."""
    spec = pod.spec
    return not (
        spec.volumes
        or spec.affinity is not None
        or spec.topology_spread_constraints
        or pod.status.nominated_node_name
        or world.crowd.wishes()
        or world.crowd.expected()
        or any(one.ports for one in spec.containers)
        or any(one.ports for one in spec.init_containers)
    )


def _without_nominated(pod: pods.Pod, world: World) -> Ties | tuple[Reason, ...]:
    kept = volumes.tie(pod, world)
    if isinstance(kept, tuple):
        return kept
    near = affinity.tie(pod, world)
    even = spread.tie(pod, world)
    found: tuple[Tie | None, ...] = (ports.tie(pod, world), kept, even, near)
    leaning = tuple(one for one in (near, even) if one is not None and one.has_costs)
    first = pod.status.nominated_node_name
    return Ties(tuple(one for one in found if one is not None), leaning, kept, first)


def _ruling(pod: pods.Pod, world: World) -> tuple[Tie, ...] | None:
    found = _without_nominated(pod, world)
    return found.ruling if isinstance(found, Ties) else None

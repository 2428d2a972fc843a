"""The filters and scores that depend on objects other than the node: other pods, host ports, volumes, nominations.

They are worked out once per pod against the World as it is, assumed pods included, and evaluated per node; everything
else is evaluated per kind of pods. Most pods have none, and pay nothing. Never reads devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from dovetail.kubetypes.core import nodes, pods
from dovetail.model import plan, policy
from dovetail.model.reasons import Reason
from dovetail.schedule import refusal_summary
from dovetail.schedule.node.filters import (
    host_ports,
    nominated_pods,
    pod_affinity,
    topology_spread,
    volume_binding,
)
from dovetail.world.world import World


class Filter(Protocol):
    """One filter that depends on other objects."""

    def misfit(self, node: nodes.Node) -> Reason | None:
        """Why the node is ruled out."""


class Score(Protocol):
    """A score that depends on other objects."""

    def costs(
        self, suitable: Sequence[nodes.Node], weights: policy.Weights
    ) -> dict[str, plan.Term]:
        """What each of the nodes that fit costs more than the best of them."""


class SelectedNode(NamedTuple):
    """The selected node, and what these scores add to its cost."""

    node: str
    terms: tuple[plan.Term, ...]


class RelationalFilters(NamedTuple):
    """The filters and scores of one pod."""

    ruling: tuple[Filter, ...]
    preferences: tuple[Score, ...] = ()
    volumes: volume_binding.VolumeFilter | None = None
    first: str = ""  # the node that the pod is nominated for

    def choose(
        self,
        scores: Iterable[tuple[str, float]],
        nodes_by_name: dict[str, nodes.Node],
        weights: policy.Weights,
    ) -> SelectedNode | refusal_summary.Tally:
        """The best of the nodes that fit otherwise, or why none of them does. Linear in nodes."""
        suiting = dict(scores)
        best = (
            self._liked_best(suiting, nodes_by_name, weights)
            if self.preferences or self.first
            else self._first(suiting, nodes_by_name)
        )
        return best or self._tally(suiting, nodes_by_name)

    def _first(
        self, scores: dict[str, float], nodes_by_name: dict[str, nodes.Node]
    ) -> SelectedNode | None:
        """By score and name alone: filters run only on nodes that would be better than the best so far."""
        best: tuple[float, str] | None = None
        for name, score in scores.items():
            if (best is None or (score, name) < best) and self.misfit(nodes_by_name[name]) is None:
                best = (score, name)
        return None if best is None else SelectedNode(best[1], ())

    def _liked_best(
        self,
        scores: dict[str, float],
        nodes_by_name: dict[str, nodes.Node],
        weights: policy.Weights,
    ) -> SelectedNode | None:
        suitable = [
            nodes_by_name[name] for name in scores if self.misfit(nodes_by_name[name]) is None
        ]
        if not suitable:
            return None
        costs = [scorer.costs(suitable, weights) for scorer in self.preferences]
        ranked = {node.metadata.name: scores[node.metadata.name] for node in suitable}
        for table in costs:
            for name, term in table.items():
                ranked[name] += term.milli_gpu
        best = (
            self.first
            if self.first in ranked
            else min(ranked, key=lambda name: (ranked[name], name))
        )
        return SelectedNode(best, tuple(table[best] for table in costs if best in table))

    def _tally(
        self, scores: dict[str, float], nodes_by_name: dict[str, nodes.Node]
    ) -> refusal_summary.Tally:
        counts = Counter(self.misfit(nodes_by_name[name]) for name in scores)
        tally = refusal_summary.Tally()
        for reason, count in counts.items():
            tally.add((reason,) if reason is not None else (), nodes=count)
        return tally

    def misfit(self, node: nodes.Node) -> Reason | None:
        """The reason of the first filter that rules the node out."""
        for filter_ in self.ruling:
            if (reason := filter_.misfit(node)) is not None:
                return reason
        return None


def filters_of(pod: pods.Pod, world: World) -> RelationalFilters | tuple[Reason, ...] | None:
    """The filters of a pod; None where it has none, reasons where it fits no node for now."""
    if _is_untied(pod, world):
        return None
    filters = _without_nominated(pod, world)
    if not isinstance(filters, RelationalFilters):
        return filters
    nominated = nominated_pods.filter_(pod, world, again=lambda: _ruling(pod, world))
    if nominated is not None:
        return filters._replace(ruling=(*filters.ruling, nominated))
    return filters if filters.ruling or filters.first else None


def _is_untied(pod: pods.Pod, world: World) -> bool:
    """Whether a quick look shows that no such filter applies. True for most pods."""
    spec = pod.spec
    return not (
        spec.volumes
        or spec.affinity is not None
        or spec.topology_spread_constraints
        or pod.status.nominated_node_name
        or world.pod_index.affinities()
        or world.pod_index.nominated()
        or any(container.ports for container in spec.containers)
        or any(container.ports for container in spec.init_containers)
    )


def _without_nominated(pod: pods.Pod, world: World) -> RelationalFilters | tuple[Reason, ...]:
    volumes = volume_binding.filter_(pod, world)
    if isinstance(volumes, tuple):
        return volumes
    near = pod_affinity.filter_(pod, world)
    even = topology_spread.filter_(pod, world)
    filters: tuple[Filter | None, ...] = (host_ports.filter_(pod, world), volumes, even, near)
    preferences = tuple(
        scorer for scorer in (near, even) if scorer is not None and scorer.has_costs
    )
    first = pod.status.nominated_node_name
    return RelationalFilters(
        tuple(filter_ for filter_ in filters if filter_ is not None), preferences, volumes, first
    )


def _ruling(pod: pods.Pod, world: World) -> tuple[Filter, ...] | None:
    filters = _without_nominated(pod, world)
    return filters.ruling if isinstance(filters, RelationalFilters) else None

"""Filters and scores nodes by topology spread constraints: kube-scheduler's PodTopologySpread.

DoNotSchedule rules nodes out, ScheduleAnyway makes them cost more. Given a pod and the pod index, assumed pods
included. Worked out once per pod, evaluated per node; linear in nodes. The default constraints that kube-scheduler adds
for services and sets are not added. Never reads resources or devices.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from dovetail import cache
from dovetail.kubetypes import label_selectors
from dovetail.kubetypes.core import nodes, pods
from dovetail.model import plan, policy
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule.node import node_fit
from dovetail.world import pod_index
from dovetail.world.world import World

HARD: Final = "DoNotSchedule"
HONOR: Final = "Honor"
HOST: Final = "kubernetes.io/hostname"
MAX_GROUNDS: Final = 64  # remembered for one world


class Rule(NamedTuple):
    """One constraint, read for the pod that has it."""

    key: str
    max_skew: int
    tests: label_selectors.Tests
    min_domains: int
    honors_affinity: bool
    honors_taints: bool

    def counts_node(self, pod: pods.Pod, node: nodes.Node) -> bool:
        """Whether the node's place and pods count, whether or not the pod could go there."""
        if self.honors_affinity and not node_fit.has_labels(pod.spec, node):
            return False
        return (
            not self.honors_taints
            or node_fit.untolerated(node.spec.taints, pod.spec.tolerations) is None
        )


class _Ground(NamedTuple):
    """The places a rule counts, whatever pods are there: by node, and all of them."""

    place_of: Mapping[str, str]
    places: frozenset[str]


class _Domains(NamedTuple):
    """The places a hard rule knows, with the matching pods in each."""

    rule: Rule
    counts: Mapping[str, int]
    most: int  # pods a place may have before it gets this one
    unknown: Reason
    uneven: Reason


class TopologySpreadFilter:
    """What spreading makes of every node for one pod."""

    def __init__(self, pod: pods.Pod, world: World) -> None:
        self._pod = pod
        self._world = world
        self._soft = rules_of(pod, is_hard=False)
        hard = rules_of(pod, is_hard=True)
        keys = frozenset(rule.key for rule in hard)
        self._hard = [
            self._domains(rule, _ground(pod, world, rule=rule, keys=keys)) for rule in hard
        ]

    @property
    def has_costs(self) -> bool:
        """Whether some nodes are liked better than others."""
        return bool(self._soft)

    def misfit(self, node: nodes.Node) -> Reason | None:
        """The first hard rule the pod would break there."""
        for domains in self._hard:
            value = node.metadata.labels.get(domains.rule.key)
            if value is None:
                return domains.unknown
            if domains.counts.get(value, 0) > domains.most:
                return domains.uneven
        return None

    def costs(
        self, suitable: Sequence[nodes.Node], weights: policy.Weights
    ) -> dict[str, plan.Term]:
        """What each node costs more than the best of them because pods like this one are less even there."""
        return {
            name: plan.Term(
                "spread",
                round(weights.soft_spread * part, 3),
                "pods like it would be less evenly spread",
            )
            for name, part in self._unevenness(suitable).items()
            if part
        }

    def _unevenness(self, suitable: Sequence[nodes.Node]) -> dict[str, float]:
        """By the soft rules: 0 for the best of these nodes, 1 at most."""
        if not self._soft:
            return {}
        keys = {rule.key for rule in self._soft}
        labelled = [node for node in suitable if keys <= node.metadata.labels.keys()]
        sums = {node.metadata.name: 0.0 for node in labelled}
        for rule in self._soft:
            self._add(sums, rule, labelled)

        rounded = {name: math.floor(total + 0.5) for name, total in sums.items()}
        most, least = max(rounded.values(), default=0), min(rounded.values(), default=0)
        scale = most or 1  # all sums are 0 where the largest is
        unevenness = {name: (total - least) / scale for name, total in rounded.items()}

        names = [node.metadata.name for node in suitable]
        return {name: unevenness.get(name, 1.0) for name in names}  # unlabelled nodes come last

    def _add(self, sums: dict[str, float], rule: Rule, labelled: Sequence[nodes.Node]) -> None:
        counts = self._counts(rule)
        if rule.key == HOST:
            weight = math.log(len(labelled) + 2)
            for node in labelled:
                sums[node.metadata.name] += (
                    counts.get(node.metadata.name, 0) * weight + rule.max_skew - 1
                )
            return
        count_by_place = self._by_place(rule, counts)
        weight = math.log(len({node.metadata.labels[rule.key] for node in labelled}) + 2)
        for node in labelled:
            sums[node.metadata.name] += (
                count_by_place[node.metadata.labels[rule.key]] * weight + rule.max_skew - 1
            )

    def _by_place(self, rule: Rule, counts: pod_index.Counts) -> Counter[str]:
        ground = _ground(
            self._pod,
            self._world,
            rule=rule,
            keys=frozenset(soft_rule.key for soft_rule in self._soft),
        )
        return _summed(ground, counts)

    def _domains(self, rule: Rule, ground: _Ground) -> _Domains:
        count_by_place = _summed(ground, self._counts(rule))
        least = min((count_by_place[place] for place in ground.places), default=0)
        if len(ground.places) < rule.min_domains:
            least = 0
        itself = int(label_selectors.passes(rule.tests, self._pod.metadata.labels))
        return _Domains(
            rule,
            count_by_place,
            rule.max_skew + least - itself,
            Reason(code=ReasonCode.SPREAD_LABEL, subject=rule.key),
            Reason(code=ReasonCode.SPREAD, subject=rule.key, need=rule.max_skew),
        )

    def _counts(self, rule: Rule) -> pod_index.Counts:
        if not rule.tests:  # an empty selector counts no pod, although it matches every pod
            return {}
        spaces = frozenset({self._pod.metadata.namespace})
        return self._world.pod_index.count(
            pod_index.PodQuery(spaces, rule.tests, with_leaving=False)
        )


def _summed(ground: _Ground, counts: pod_index.Counts) -> Counter[str]:
    """Pods by place. Linear in nodes that have any."""
    count_by_place: Counter[str] = Counter()
    for name, count in counts.items():
        place = ground.place_of.get(name)
        if place is not None:
            count_by_place[place] += count
    return count_by_place


_GROUNDS: Final = cache.WeakMemo[World, Hashable, _Ground](MAX_GROUNDS)


def _ground(pod: pods.Pod, world: World, *, rule: Rule, keys: frozenset[str]) -> _Ground:
    """Worked out once for all pods that select the same nodes, until a node changes."""
    read_spec = pods.PodSpec(
        node_selector=pod.spec.node_selector if rule.honors_affinity else {},
        affinity=pods.Affinity(node_affinity=pod.spec.affinity.node_affinity)
        if rule.honors_affinity and pod.spec.affinity
        else None,
        tolerations=pod.spec.tolerations if rule.honors_taints else (),
    )
    key = (rule.key, keys, rule.honors_affinity, rule.honors_taints, msgspec.json.encode(read_spec))

    def worked_out() -> _Ground:
        place_of = {
            node.metadata.name: node.metadata.labels[rule.key]
            for node in world.nodes.values()
            if keys <= node.metadata.labels.keys() and rule.counts_node(pod, node)
        }
        return _Ground(place_of, frozenset(place_of.values()))

    return _GROUNDS.of(world, key, worked_out, version=world.nodes_version)


def filter_(pod: pods.Pod, world: World) -> TopologySpreadFilter | None:
    """The filter for a pod with spread constraints; None where it has none."""
    return TopologySpreadFilter(pod, world) if pod.spec.topology_spread_constraints else None


def rules_of(pod: pods.Pod, *, is_hard: bool) -> tuple[Rule, ...]:
    """The constraints of a pod, defaults filled in."""
    return tuple(
        Rule(
            key=constraint.topology_key,
            max_skew=constraint.max_skew,
            tests=label_selectors.narrowed(
                label_selectors.tests_of(constraint.label_selector),
                constraint.match_label_keys,
                pod.metadata.labels,
            ),
            min_domains=1 if constraint.min_domains is None else constraint.min_domains,
            honors_affinity=constraint.node_affinity_policy in (None, HONOR),
            honors_taints=constraint.node_taints_policy == HONOR,
        )
        for constraint in pod.spec.topology_spread_constraints
        if (constraint.when_unsatisfiable == HARD) == is_hard
    )

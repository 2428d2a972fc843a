"""Every placement policy by name.

Given the state of a cluster, the mix or the way to learn it, and a seed for chance. A policy is a function that takes a
shape and the nodes with room for it and returns a node and a device. Never places the pod itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import numpy as np

from dovetail.model import pod_mix
from dovetail.study import mix_source
from dovetail.study.placement import expected_loss, fgd, gpu_clustering, packing_policies, power
from dovetail.study.placement.cluster_state import NO_DEVICE, Booleans, ClusterState, Floats

Choice = tuple[int, int]  # node, and the device that a sharing pod takes
Choose = Callable[[pod_mix.Shape, Booleans], Choice]
Score = Callable[[ClusterState, pod_mix.Shape], Floats]


class Setting(NamedTuple):
    """What a policy may know."""

    cluster: ClusterState
    mix: mix_source.MixSource
    seed: int


class Rule(Protocol):
    """A rule for one mix."""

    def choose(self, shape: pod_mix.Shape, feasible: Booleans, /) -> Choice:
        """The node and device for a pod, among nodes with room."""
        ...


def _by_score(score: Score) -> Callable[[Setting], Choose]:
    """The first node with the highest score, and the fullest device there."""

    def prepare(setting: Setting) -> Choose:
        cluster = setting.cluster

        def choose(shape: pod_mix.Shape, feasible: Booleans) -> Choice:
            node = _first_highest(score(cluster, shape), feasible)
            return node, _fullest_device(cluster, shape, node)

        return choose

    return prepare


def _random(setting: Setting) -> Choose:
    """Any node with room, and any device with room there."""
    cluster = setting.cluster
    draw = np.random.default_rng(setting.seed)

    def choose(shape: pod_mix.Shape, feasible: Booleans) -> Choice:
        node = int(draw.choice(np.flatnonzero(feasible)))
        if not shape.is_sharing:
            return node, NO_DEVICE
        return node, int(draw.choice(np.flatnonzero(cluster.devices[node] >= shape.gpu_milli)))

    return choose


def _gpu_clustering(setting: Setting) -> Choose:
    cluster = setting.cluster
    clustering = gpu_clustering.GpuClustering(cluster)

    def choose(shape: pod_mix.Shape, feasible: Booleans) -> Choice:
        node = _first_highest(clustering.scores(shape), feasible)
        clustering.placed(shape, node)
        return node, _fullest_device(cluster, shape, node)

    return choose


def _by_mix(rule_for: Callable[[ClusterState, pod_mix.Mix], Rule]) -> Callable[[Setting], Choose]:
    """A rule that is prepared again whenever the expected mix changes."""

    def prepare(setting: Setting) -> Choose:
        mix = setting.mix.current
        rule = rule_for(setting.cluster, mix)

        def choose(shape: pod_mix.Shape, feasible: Booleans) -> Choice:
            nonlocal mix, rule
            if mix is not setting.mix.current:
                mix = setting.mix.current
                rule = rule_for(setting.cluster, mix)
            return rule.choose(shape, feasible)

        return choose

    return prepare


POLICIES: Final[dict[str, Callable[[Setting], Choose]]] = {
    "random": _random,
    "first-fit": _by_score(packing_policies.first_fit),
    "spread": _by_score(packing_policies.spread),
    "dot-product": _by_score(packing_policies.dot_product),
    "gpu-clustering": _gpu_clustering,
    "gpu-packing": _by_score(packing_policies.gpu_packing),
    "best-fit": _by_score(packing_policies.best_fit),
    "fgd": _by_mix(fgd.Fgd),
    "pwr": _by_mix(power.PowerAware),
    "dovetail": _by_mix(expected_loss.ExpectedLoss),
}


def _first_highest(scores: Floats, feasible: Booleans) -> int:
    return int(np.argmax(np.where(feasible, scores, -np.inf)))


def _fullest_device(cluster: ClusterState, shape: pod_mix.Shape, node: int) -> int:
    return cluster.best_fit_device(shape, node) if shape.is_sharing else NO_DEVICE

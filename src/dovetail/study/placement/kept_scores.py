"""Scores of all nodes by kind of request, computed again only for nodes that changed since the last pod of the kind.

Given the state of a cluster. A rule computes the scores of the nodes that are named as stale. Never compares nodes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dovetail.model import pod_mix
from dovetail.study.placement.cluster_state import NO_DEVICE, ClusterState, Floats, Integers

Request = tuple[int, ...]  # what scores depend on of a shape


class KeptScores:
    """Scores of one kind of request, and the device that earned each, as of a number of placements."""

    def __init__(self, nodes: int, lowest: float) -> None:
        self.scores: Floats = np.full(nodes, lowest)
        self.devices: Integers = np.full(nodes, NO_DEVICE, dtype=np.intp)
        self.up_to = 0


class ScoresByRequest:
    """The kept scores of every kind of request that was asked for."""

    def __init__(
        self,
        cluster: ClusterState,
        score: Callable[[pod_mix.Shape, Integers, KeptScores], None],
        *,
        initial: float,
    ) -> None:
        """`score` writes the scores of the nodes it is given; those without room keep what they had."""
        self._cluster = cluster
        self._score = score
        self._initial = initial
        self._by_request: dict[Request, KeptScores] = {}

    def of(self, shape: pod_mix.Shape) -> KeptScores:
        """Scores and devices of all nodes now; those of nodes without room have no meaning."""
        request = (shape.cpu_milli, shape.gpus, shape.gpu_milli)
        kept = self._by_request.get(request)
        if kept is None:
            kept = self._by_request[request] = KeptScores(len(self._cluster.nodes), self._initial)
            stale = np.arange(len(self._cluster.nodes))
        else:
            stale = self._cluster.changed_since(kept.up_to)
        kept.up_to = len(self._cluster.changed)
        if len(stale):
            self._score(shape, stale, kept)
        return kept

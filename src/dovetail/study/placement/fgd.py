"""FGD (fragmentation gradient descent, ATC'23): the placement that makes the least idle GPU unusable for the mix.

Given the state of a cluster and a mix. Scores are rounded to whole numbers as in the published runs, and equal ones go
to the earlier node; a part of the published result comes from that. Never places a pod.
"""

from __future__ import annotations

import numpy as np

from dovetail.model import pod_mix
from dovetail.study.placement import kept_scores, sharing_candidates, unusable
from dovetail.study.placement.cluster_state import (
    Booleans,
    ClusterState,
    Floats,
    Integers,
)
from dovetail.study.placement.packing_policies import MAX_SCORE


class Fgd:
    """Scores by kind of request, and the device that earned each."""

    def __init__(self, cluster: ClusterState, mix: pod_mix.Mix) -> None:
        """For the typical pods of this mix."""
        self._cluster = cluster
        self._unusable = unusable.UnusableGpu(cluster, pod_mix.typical(mix), as_published=True)
        self._scores = kept_scores.ScoresByRequest(cluster, self._score, initial=-1.0)

    def choose(self, shape: pod_mix.Shape, feasible: Booleans) -> tuple[int, int]:
        """The first node with the highest score, and the device that earned it."""
        kept = self.kept(shape)
        node = int(np.argmax(np.where(feasible, kept.scores, -np.inf)))
        return node, int(kept.devices[node])

    def kept(self, shape: pod_mix.Shape) -> kept_scores.KeptScores:
        """Scores and devices of all nodes; those without room have no meaning."""
        return self._scores.of(shape)

    def _score(self, shape: pod_mix.Shape, nodes: Integers, kept: kept_scores.KeptScores) -> None:
        self._unusable.refresh()
        if shape.is_sharing:
            self._score_sharing(shape, nodes, kept)
        else:
            self._score_whole(shape, nodes, kept)

    def _score_sharing(
        self, shape: pod_mix.Shape, nodes: Integers, kept: kept_scores.KeptScores
    ) -> None:
        options = sharing_candidates.with_room(self._cluster, shape, nodes)
        if not len(options.nodes):
            return
        after = self._unusable.after_sharing(shape, options.nodes, options.free)
        scores = self._rounded(options.nodes, after)

        starts = options.starts
        best = np.maximum.reduceat(scores, starts)
        counts = np.diff(np.append(starts, len(scores)))
        is_best = scores == np.repeat(best, counts)
        first_best = np.minimum.reduceat(
            np.where(is_best, options.devices, len(scores) + 64), starts
        )
        chosen = options.nodes[starts]
        kept.scores[chosen] = best
        kept.devices[chosen] = first_best

    def _score_whole(
        self, shape: pod_mix.Shape, nodes: Integers, kept: kept_scores.KeptScores
    ) -> None:
        nodes = sharing_candidates.with_room_for_whole(self._cluster, shape, nodes)
        if len(nodes):
            kept.scores[nodes] = self._rounded(nodes, self._unusable.after_whole(shape, nodes))

    def _rounded(self, nodes: Integers, after: Floats) -> Floats:
        gained = (self._unusable.by_node[nodes] - after) / self._unusable.scale
        return np.trunc(1.0 / (1.0 + np.exp(-gained / pod_mix.MILLI)) * MAX_SCORE)

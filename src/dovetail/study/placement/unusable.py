"""How much idle GPU of a node a mix of pods could not use: FGD's fragmentation measure, and a repeated-fill part.

Given the state of a cluster and a mix. F1 is FGD's: the expected idle milli-GPU that a pod drawn from the mix cannot
use. F2 is what stays idle if one shape is repeated until it no longer fits. The result is F1 with a chosen share of F2,
times a scale, the number of pods of the mix: F1 alone is then a whole number. `as_published` adds up in the order and
with the rounding of the published simulator instead; its scale is 1. Keeps tables by node, never places a pod.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.model import pod_mix
from dovetail.study.placement import cluster_state
from dovetail.study.placement.cluster_state import Booleans, Floats, Integers


class _States(NamedTuple):
    """Nodes as they are or would be, one a row; the last three have a column for each size of GPU request."""

    cpu: Floats
    idle: Floats
    full: Floats
    devices_at_least: Floats  # devices with so much free
    too_small: Floats  # idle milli-GPU on devices with less free
    copies: Floats  # requests of this size that fit the devices


class UnusableGpu:
    """Unusable idle GPU of every node, now and after a placement that is only considered."""

    def __init__(
        self,
        cluster: cluster_state.ClusterState,
        mix: pod_mix.Mix,
        *,
        repeated_share: float = 0.0,
        as_published: bool = False,
    ) -> None:
        """Tables for all nodes as they are now."""
        self._pods = sum(count for _, count in mix.counts)
        self.scale = 1 if as_published else self._pods
        self._cluster = cluster
        self._repeated_share = repeated_share
        self._published = _PublishedSums(mix) if as_published else None
        self._read_mix([(shape, count) for shape, count in mix.counts if shape.gpus])

        every_node = np.arange(len(cluster.nodes))
        columns = (len(cluster.nodes), len(self._sizes))
        self._devices_at_least = np.zeros(columns)
        self._too_small = np.zeros(columns)
        self._copies = np.zeros(columns)
        self.by_node = np.zeros(len(cluster.nodes))
        self.total = 0.0
        self._recount(every_node)
        self._up_to = len(cluster.changed)

    def _read_mix(self, shapes: list[tuple[pod_mix.Shape, int]]) -> None:
        self._sizes = np.array(sorted({shape.gpu_milli for shape, _ in shapes}), dtype=np.float64)
        self._copies_of_whole = np.floor(pod_mix.MILLI / self._sizes)
        self._column = np.searchsorted(self._sizes, [shape.gpu_milli for shape, _ in shapes])
        self._count = np.array([count for _, count in shapes], dtype=np.float64)
        self._cpu_only_pods = float(self._pods - self._count.sum())
        self._cpu = np.array([max(1, shape.cpu_milli) for shape, _ in shapes], dtype=np.float64)
        self._gpus = np.array([shape.gpus for shape, _ in shapes], dtype=np.float64)
        self._milli = np.array([shape.total_gpu_milli for shape, _ in shapes], dtype=np.float64)
        self._is_sharing = np.array([shape.is_sharing for shape, _ in shapes], dtype=np.bool_)
        self._is_any_model = all(not shape.models for shape, _ in shapes)
        models = self._cluster.models
        accepts = [[shape.accepts(model) for shape, _ in shapes] for model in models]
        self._accepts = np.array(accepts, dtype=np.bool_)

    def refresh(self) -> None:
        """Brings the tables up to date with the placements since the last call."""
        changed = self._cluster.changed
        if self._up_to < len(changed):
            self._recount(self._cluster.changed_since(self._up_to))
            self._up_to = len(changed)

    def _recount(self, nodes: Integers) -> None:
        cluster = self._cluster
        devices = cluster.devices[nodes][:, :, None]
        self._devices_at_least[nodes] = np.count_nonzero(devices >= self._sizes, axis=1)
        self._too_small[nodes] = np.where(devices < self._sizes, devices, 0.0).sum(axis=1)
        self._copies[nodes] = np.floor(devices / self._sizes).sum(axis=1)
        states = _States(
            cpu=cluster.cpu[nodes],
            idle=cluster.idle[nodes],
            full=cluster.full[nodes],
            devices_at_least=self._devices_at_least[nodes],
            too_small=self._too_small[nodes],
            copies=self._copies[nodes],
        )
        unusable = self._unusable(nodes, states)
        self.total += float((unusable - self.by_node[nodes]).sum())
        self.by_node[nodes] = unusable

    def after_sharing(self, shape: pod_mix.Shape, nodes: Integers, free: Floats) -> Floats:
        """Of these nodes, if a sharing pod took its part of a device with so much free."""
        cluster = self._cluster
        sizes = self._sizes
        before = free[:, None]
        after = before - shape.gpu_milli
        too_small_before = np.where(before < sizes, before, 0.0)
        too_small_after = np.where(after < sizes, after, 0.0)
        states = _States(
            cpu=cluster.cpu[nodes] - shape.cpu_milli,
            idle=cluster.idle[nodes] - shape.gpu_milli,
            full=cluster.full[nodes] - (free == pod_mix.MILLI),
            devices_at_least=self._devices_at_least[nodes] - ((before >= sizes) & (after < sizes)),
            too_small=self._too_small[nodes] + too_small_after - too_small_before,
            copies=self._copies[nodes] + np.floor(after / sizes) - np.floor(before / sizes),
        )
        return self._unusable(nodes, states)

    def after_whole(self, shape: pod_mix.Shape, nodes: Integers) -> Floats:
        """Of these nodes, if a pod took its whole GPUs, or CPU only if it asks for no GPU."""
        cluster = self._cluster
        states = _States(
            cpu=cluster.cpu[nodes] - shape.cpu_milli,
            idle=cluster.idle[nodes] - shape.total_gpu_milli,
            full=cluster.full[nodes] - shape.gpus,
            devices_at_least=self._devices_at_least[nodes] - shape.gpus,
            too_small=self._too_small[nodes],
            copies=self._copies[nodes] - shape.gpus * self._copies_of_whole,
        )
        return self._unusable(nodes, states)

    def _unusable(self, nodes: Integers, states: _States) -> Floats:
        has_cpu = states.cpu[:, None] >= self._cpu
        has_devices = states.devices_at_least[:, self._column] >= self._gpus
        fits = has_cpu & has_devices
        accepts = None
        if not self._is_any_model:
            accepts = self._accepts[self._cluster.model[nodes]]
            fits &= accepts

        lost = np.where(fits, states.too_small[:, self._column], states.idle[:, None])
        if self._published is not None:
            kinds = _kinds_of_loss(has_cpu, has_devices, accepts)
            return self._published.expected(kinds, lost, states)
        expected: Floats = lost @ self._count + states.idle * self._cpu_only_pods
        if not self._repeated_share:
            return expected

        copies = states.copies[:, self._column]
        copies_of_whole = np.floor(states.full[:, None] / self._gpus)
        repeats = np.where(self._is_sharing, copies, copies_of_whole)
        repeats = np.minimum(repeats, np.floor(states.cpu[:, None] / self._cpu))
        filled = np.where(fits, repeats * self._milli, 0.0)
        left_over = states.idle * self._pods - filled @ self._count
        share = self._repeated_share
        return (1 - share) * expected + share * left_over


# Why a shape cannot use idle GPU, in the order in which the published simulator adds up.
_LACKS_BOTH, _LACKS_GPU, _LACKS_CPU, _NEEDS_NO_GPU, _NEEDS_NO_GPU_LACKS_CPU, _WRONG_MODEL = range(6)
_KINDS = 6


def _kinds_of_loss(has_cpu: Booleans, has_devices: Booleans, accepts: Booleans | None) -> Integers:
    """One a state and shape. A shape that fits loses the devices that are too small for it, which counts as GPU."""
    lacks_cpu = np.where(has_devices, _LACKS_CPU, _LACKS_BOTH)
    kinds = np.where(has_cpu, _LACKS_GPU, lacks_cpu)
    return kinds if accepts is None else np.where(accepts, kinds, _WRONG_MODEL)


class _PublishedSums:
    """F1 with the published simulator's rounding errors, which decide where a placement changes nothing."""

    def __init__(self, mix: pod_mix.Mix) -> None:
        """Weights are shares of all pods of the typical mix."""
        pods = sum(count for _, count in mix.counts)
        all_pods = mix.cut_from_pods or pods
        # Divided twice, as the published simulator does: once by all pods, then by the share of typical ones.
        weights = [(shape, count / all_pods / (pods / all_pods)) for shape, count in mix.counts]
        gpu_shapes = [weight for shape, weight in weights if shape.gpus]
        cpu_shapes = [(shape, weight) for shape, weight in weights if not shape.gpus]
        self._weight = np.array(gpu_shapes)
        self._cpu_only_weight = np.array([weight for _, weight in cpu_shapes])
        self._cpu_only_cpu = np.array(
            [shape.cpu_milli for shape, _ in cpu_shapes], dtype=np.float64
        )

    def expected(self, kinds: Integers, lost: Floats, states: _States) -> Floats:
        """One sum a kind of loss, shape by shape, and then the sum of these."""
        rows = len(states.idle)
        has_cpu = states.cpu[:, None] >= self._cpu_only_cpu
        cpu_only_kinds = np.where(has_cpu, _NEEDS_NO_GPU, _NEEDS_NO_GPU_LACKS_CPU)
        cpu_only_lost = states.idle[:, None] * self._cpu_only_weight
        all_kinds = np.hstack((kinds, cpu_only_kinds)) + _KINDS * np.arange(rows)[:, None]
        amounts = np.hstack((lost * self._weight, cpu_only_lost))
        # bincount adds in the order given, which a plain sum does not promise.
        by_kind = np.bincount(all_kinds.ravel(), amounts.ravel(), minlength=_KINDS * rows)
        expected = np.zeros(rows)
        for kind in range(_KINDS):
            expected += by_kind[kind::_KINDS]
        return expected

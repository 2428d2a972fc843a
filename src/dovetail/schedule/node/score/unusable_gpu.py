"""How much idle GPU of a node the work to expect could not use, in milli-GPU times the pods of the mix.

Given the typical part of a mix. The expected part is FGD's measure: idle GPU that a pod drawn from the mix cannot use.
The repeated part is what stays idle if one shape is repeated until it no longer fits, which packs shares together. The
study's kernel computes the same for all nodes at once. Never compares nodes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dovetail import cache
from dovetail.model import pod_mix
from dovetail.schedule.node.score.gpu_states import GpuState

MOST_STATES: Final = 50_000


class _Demand(NamedTuple):
    """A shape of the mix, and how often it occurs."""

    shape: pod_mix.Shape
    pods: int
    milli_cpu: int


class _Devices(NamedTuple):
    """What the devices of a node offer to requests of one size."""

    at_least: int  # devices with so much free
    too_small: int  # idle milli-GPU on devices with less
    copies: int  # requests of the size that fit


class UnusableGpu:
    """Unusable idle GPU of a state, for one mix."""

    def __init__(self, mix: pod_mix.Mix, *, repeated_percent: int) -> None:
        """For the typical pods of a mix."""
        self.pods = sum(count for _, count in mix.counts)
        self._cpu_only_pods = sum(count for shape, count in mix.counts if not shape.gpus)
        self._repeated_share = repeated_percent / 100
        self._demands = [
            _Demand(shape, count, max(1, shape.cpu_milli))
            for shape, count in mix.counts
            if shape.gpus
        ]
        self._sizes = sorted({demand.shape.gpu_milli for demand in self._demands})
        self._memo = cache.Memo[tuple[str, int, tuple[int, ...]], float](MOST_STATES)

    def of(self, state: GpuState) -> float:
        """In milli-GPU, times the pods of the mix: sums of whole numbers are exact in any order."""
        key = (state.model, state.milli_cpu, state.devices)
        unusable = self._memo.get(key)
        if unusable is None:
            unusable = self._of(state)
            self._memo.put(key, unusable)
        return unusable

    def _of(self, state: GpuState) -> float:
        offers = {size: _offered(size, state.devices) for size in self._sizes}
        expected = state.idle * self._cpu_only_pods
        filled = 0
        for demand in self._demands:
            shape = demand.shape
            offer = offers[shape.gpu_milli]
            fits = state.milli_cpu >= demand.milli_cpu and offer.at_least >= shape.gpus
            if not fits or not shape.accepts(state.model):
                expected += demand.pods * state.idle
                continue
            expected += demand.pods * offer.too_small
            copies = offer.copies if shape.is_sharing else state.full // shape.gpus
            repeats = min(copies, state.milli_cpu // demand.milli_cpu)
            filled += demand.pods * repeats * shape.total_gpu_milli

        left_over = state.idle * self.pods - filled
        share = self._repeated_share
        return (1 - share) * expected + share * left_over


def _offered(size: int, devices: tuple[int, ...]) -> _Devices:
    with_room = [free for free in devices if free >= size]
    return _Devices(
        at_least=len(with_room),
        too_small=sum(devices) - sum(with_room),
        copies=sum(free // size for free in with_room),
    )

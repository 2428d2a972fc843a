"""One run of the placement benchmark: pods arrive one by one, and are placed or dropped; nothing departs.

Given a workload and a policy. A pod that fits somewhere is never refused, one that fits nowhere is never retried.
Figures are averaged by whole percent of arrived demand, as the published tables do. Never reads a clock or a file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from dovetail.model import pod_mix
from dovetail.study import mix_source, workload
from dovetail.study.placement import cluster_state, policies, unusable

LAST_PERCENT = 130
_EVERY = 256  # arrivals between two reports of progress


class PlacementResult(msgspec.Struct, frozen=True):
    """What a run allocated, by arrived demand in percent of all GPUs."""

    allocation_pct: dict[str, float]
    fragmentation_pct: dict[str, float]
    first_failure_pct: float | None  # None: every pod was placed
    arrivals: int
    failed_pods: int
    allocated_gpu_milli: int


def run(
    work: workload.Workload,
    *,
    policy: str,
    is_mix_known: bool = True,
    first_arrivals: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PlacementResult:
    """All arrivals, or the first so many of them."""
    cluster = cluster_state.ClusterState(work.nodes)
    mix = mix_source.known(work.mix) if is_mix_known else mix_source.learned()
    choose = policies.POLICIES[policy](policies.Setting(cluster, mix, work.seed))
    fragmented = unusable.UnusableGpu(cluster, pod_mix.typical(work.mix))
    record = _Record(work.gpu_milli)

    arrivals = work.arrivals[:first_arrivals]
    for number, shape in enumerate(arrivals, start=1):
        mix.arrived(shape)
        feasible = cluster.feasible(shape)
        is_placed = bool(feasible.any())
        if is_placed:
            node, device = choose(shape, feasible)
            cluster.place(shape, node, device)
            fragmented.refresh()
        record.arrived(
            shape,
            is_placed=is_placed,
            allocated=cluster.allocated_gpu_milli,
            fragmented=fragmented.total / fragmented.scale,
        )
        if progress is not None and number % _EVERY == 0:
            progress(number, len(arrivals))
    return record.result()


class _Record:
    """Figures after each arrival, by whole percent of arrived demand."""

    def __init__(self, capacity_milli: int) -> None:
        self._capacity = capacity_milli
        self._arrived_milli = 0
        self._arrivals = 0
        self._failed = 0
        self._allocated = 0
        self._first_failure: float | None = None
        self._allocation: defaultdict[int, list[float]] = defaultdict(list)
        self._fragmentation: defaultdict[int, list[float]] = defaultdict(list)

    def arrived(
        self, shape: pod_mix.Shape, *, is_placed: bool, allocated: int, fragmented: float
    ) -> None:
        """One more pod."""
        self._arrivals += 1
        self._arrived_milli += shape.total_gpu_milli
        self._allocated = allocated
        arrived_percent = 100 * self._arrived_milli / self._capacity
        if not is_placed:
            self._failed += 1
            if self._first_failure is None:
                self._first_failure = round(arrived_percent, 2)

        percent = round(arrived_percent)
        self._allocation[percent].append(round(100 * allocated / self._capacity, 2))
        self._fragmentation[percent].append(100 * fragmented / self._capacity)

    def result(self) -> PlacementResult:
        """Means by percent."""
        return PlacementResult(
            allocation_pct=_curve(self._allocation),
            fragmentation_pct=_curve(self._fragmentation),
            first_failure_pct=self._first_failure,
            arrivals=self._arrivals,
            failed_pods=self._failed,
            allocated_gpu_milli=self._allocated,
        )


def _curve(figures: Mapping[int, Sequence[float]]) -> dict[str, float]:
    """The mean at each percent; a percent that no arrival falls on takes its neighbours, as the published tables do."""
    curve = {}
    for percent in range(LAST_PERCENT + 1):
        values = figures.get(percent) or [
            value for near in (percent - 1, percent + 1) for value in figures.get(near, ())
        ]
        if values:
            curve[str(percent)] = _two_decimals(float(np.mean(values)))
    return curve


def _two_decimals(value: float) -> float:
    """Rounded as numpy does it, half to even: with the built-in `round` some published figures differ by 0.01."""
    return round(100 * value) / 100

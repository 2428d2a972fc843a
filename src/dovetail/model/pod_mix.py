"""The mix of work to expect: what shapes of pods there are, and how often each occurs. Data and counting only.

A shape is what a pod takes of a node: CPU, memory, GPUs, and the models of GPU that will do. Given by what counts pods:
the scheduler from those of its World, a study from a trace. Never reads a cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

MILLI = 1000  # of one GPU
TYPICAL_PERCENT = 95  # of the pods of a mix, as FGD's published runs set it
FIRST_COUNT = 5  # pods before the first count, and added to each distance
GROWTH_PERCENT = 105  # of the pods of a count, at the next one


class Shape(msgspec.Struct, frozen=True, order=True):
    """What pods of one kind ask for. `gpu_milli` is per GPU; no `models` means that any model will do."""

    cpu_milli: int
    gpu_milli: int
    gpus: int
    models: tuple[str, ...]
    memory_mib: int = 0

    @property
    def total_gpu_milli(self) -> int:
        """Over all its GPUs."""
        return self.gpus * self.gpu_milli

    @property
    def is_sharing(self) -> bool:
        """Asks for a part of one GPU."""
        return self.gpus == 1 and self.gpu_milli < MILLI

    def accepts(self, model: str) -> bool:
        """Whether GPUs of this model will do."""
        return not self.models or model in self.models


class Mix(msgspec.Struct, frozen=True):
    """How often each shape occurs."""

    counts: tuple[tuple[Shape, int], ...]
    cut_from_pods: int | None = None  # of the larger mix that this is the frequent part of

    @property
    def total_gpu_milli(self) -> int:
        """What all pods of the mix ask for together."""
        return sum(shape.total_gpu_milli * count for shape, count in self.counts)


def mix_of(shapes: Iterable[Shape]) -> Mix:
    """The mix of these pods, in a fixed order of shapes."""
    return mix_of_counts(Counter(shapes))


def mix_of_counts(counts: Mapping[Shape, int]) -> Mix:
    """The mix with these counts."""
    return Mix(counts=tuple(sorted(counts.items())))


def next_count(pods: int) -> int:
    """How many pods there are when a mix of so many is counted again: tables are computed for each count."""
    return GROWTH_PERCENT * pods // 100 + FIRST_COUNT


def last_count(pods: int) -> int:
    """How many of so many pods the latest count took in; 0 while there are too few."""
    counted, upcoming = 0, FIRST_COUNT
    while upcoming <= pods:
        counted, upcoming = upcoming, next_count(upcoming)
    return counted


def typical(mix: Mix) -> Mix:
    """The most frequent shapes that make up 95 % of the pods, without memory: FGD's target workload.

    Shapes that occur equally often are taken from the largest to the smallest, as the published simulator does.
    """
    counts: Counter[Shape] = Counter()
    for shape, count in mix.counts:
        counts[msgspec.structs.replace(shape, memory_mib=0)] += count

    by_frequency = sorted(counts.items(), key=_frequency_and_size, reverse=True)
    needed = TYPICAL_PERCENT * counts.total() / 100
    covered = 0
    chosen = []
    for shape, count in by_frequency:
        if covered >= needed:
            break
        chosen.append((shape, count))
        covered += count
    return Mix(counts=tuple(chosen), cut_from_pods=counts.total())


def _frequency_and_size(item: tuple[Shape, int]) -> tuple[int, int, int, int, str]:
    """Models compare as the text they stand in the trace with."""
    shape, count = item
    return count, shape.cpu_milli, shape.gpu_milli, shape.gpus, "|".join(shape.models)

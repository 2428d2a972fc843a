"""Whether runs of the same work could share one GPU: whether their peaks fit together, and how often they collide.

Given a family. Looks at runs at the same times: how often so many of them together would have wanted more than one GPU.
Only runs of one family are considered, because they trust each other. Never places anything.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final, NamedTuple

from dovetail.answer.right_size import families
from dovetail.model.accounting.records import MICRO_GPU

MOST_SHARING: Final = 4  # runs on one GPU
MOST_COLLISIONS: Final = 0.05  # of the time
FEWEST_JOINT_SAMPLES: Final = 100


class Collisions(NamedTuple):
    """How often so many runs together wanted more than one GPU."""

    sharing: int
    share: float
    samples: int


def collisions(family: families.Family, sharing: int) -> Collisions | None:
    """Over all times at which so many runs were measured; None where there are too few."""
    by_time: dict[int, dict[int, int]] = defaultdict(dict)
    for number, run in enumerate(family.runs):
        for held in run.held:
            for sample in held.usage:
                if sample.busy_micro is not None:
                    busy = sample.busy_micro * held.allocation.micro_gpu // MICRO_GPU
                    by_time[sample.start][number] = busy
    over = samples = 0
    for when in sorted(by_time):
        busy_runs = [by_time[when][number] for number in sorted(by_time[when])]
        if len(busy_runs) < sharing:
            continue
        ring = busy_runs + busy_runs[: sharing - 1]  # each run with those after it
        for place in range(len(busy_runs)):
            samples += 1
            over += sum(ring[place : place + sharing]) > MICRO_GPU
    if samples < FEWEST_JOINT_SAMPLES:
        return None
    return Collisions(sharing, over / samples, samples)

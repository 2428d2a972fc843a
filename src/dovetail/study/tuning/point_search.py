"""Searches the point of a unit cube with the lowest value: random points first, then steps around the best one.

Given a function, a point to begin with, a number of trials and a seed; the same ones always try the same points. The
step grows after a success and shrinks after a failure, as in Rechenberg's evolution strategy. Never knows what a
coordinate means.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

RANDOM_PART: Final = 0.4  # of the trials, before steps around the best point
FIRST_STEP: Final = 0.25  # standard deviation, in widths of the cube
LEAST_STEP: Final = 0.02
GROWTH: Final = (
    1.5  # after a success; its fourth root undoes it, so that one success in five keeps the step
)

Point = tuple[float, ...]


def search(
    value: Callable[[Point], float], begin: Sequence[float], *, trials: int, seed: int
) -> Point:
    """The best point of so many trials; the first one is `begin`, which only a lower value replaces."""
    chance = random.Random(seed)  # noqa: S311 (a search, not a secret)
    best = tuple(begin)
    lowest = value(best)
    random_trials = round(RANDOM_PART * (trials - 1))
    step = FIRST_STEP
    for trial in range(1, trials):
        is_random = trial <= random_trials
        point = _anywhere(best, chance) if is_random else _near(best, step, chance)
        reached = value(point)
        is_better = reached < lowest
        if is_better:
            best, lowest = point, reached
        if not is_random:
            step *= GROWTH if is_better else GROWTH**-0.25
            step = min(max(step, LEAST_STEP), FIRST_STEP)
    return best


def _anywhere(point: Point, chance: random.Random) -> Point:
    return tuple(chance.random() for _ in point)


def _near(point: Point, step: float, chance: random.Random) -> Point:
    """About half of the coordinates move, at least one."""
    moving = [chance.random() < 0.5 for _ in point]
    moving[chance.randrange(len(point))] = True
    return tuple(
        min(1.0, max(0.0, place + chance.gauss(0, step))) if moves else place
        for place, moves in zip(point, moving, strict=True)
    )

"""Requests for MIG slices: Poisson arrivals of a mix of profiles at a load, with lives of mean one.

The same seed gives the same requests to every policy. Load is offered compute slices, in parts of all there are. A
shifting mix changes at half time, and the rate with it. Never looks at a fleet.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final, NamedTuple

from dovetail import errors
from dovetail.study.partitions.board_places import Board, SliceProfile

LIVES: Final = 60  # mean lives that a run lasts
WARM_UP: Final = 6  # of these, before requests count
Mix = tuple[float, ...]  # a weight per profile of a board with seven slices, smallest first

MIXES: Final[dict[str, Mix]] = {
    "uniform": (1, 1, 1, 1, 1, 1),
    "small": (45, 10, 20, 15, 5, 5),
    "large": (10, 5, 15, 30, 20, 20),
}
SHIFT: Final = ">"
NAMES: Final = (*MIXES, "small>large", "large>small", "uniform>small")


class SliceRequest(NamedTuple):
    """One request: when it arrives, what it asks for, how long it would run."""

    time: float
    profile: SliceProfile
    life: float

    @property
    def is_counted(self) -> bool:
        """Whether the run has warmed up."""
        return self.time > WARM_UP


def requests(
    board: Board, gpu_count: int, *, mix: str, load: float, seed: int, lives: int = LIVES
) -> Iterator[SliceRequest]:
    """All requests of a run, in order of time."""
    phases = [_weights(board, part) for part in mix.split(SHIFT)]
    rates = [load * gpu_count * board.compute_slices / _mean(board, phase) for phase in phases]
    chance = random.Random(seed)  # noqa: S311 - draws a workload, guards nothing
    time = 0.0
    while True:
        phase = min(int(time * len(phases) / lives), len(phases) - 1)
        time += chance.expovariate(rates[phase])
        if time >= lives:
            return
        profile = chance.choices(board.profiles, phases[phase])[0]
        yield SliceRequest(time, profile, chance.expovariate(1.0))


def named(name: str) -> str:
    """The mix of this name: one of the known, or two of them joined by `>`."""
    parts = name.split(SHIFT)
    if len(parts) > 2 or any(part not in MIXES for part in parts):
        raise errors.NotFound(f'no mix "{name}"; there are: {", ".join(NAMES)}')
    return name


def _weights(board: Board, mix: str) -> Mix:
    weights = MIXES[mix]
    if len(board.profiles) == len(weights):
        return weights
    if mix == "uniform":
        return (1,) * len(board.profiles)
    raise errors.InputError(f'mix "{mix}" is for boards with seven slices; {board.name}: uniform')


def _mean(board: Board, weights: Mix) -> float:
    pairs = zip(board.profiles, weights, strict=True)
    return sum(profile.compute_slices * weight for profile, weight in pairs) / sum(weights)

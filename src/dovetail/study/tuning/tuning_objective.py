"""What a tuning minimises: figures of a run, each by that of the default, weighted; and which runs no other one beats.

Given figures and weights. A run in which fewer jobs ended than with the default has no score. Power is no part of it: a
study of queues does not model it. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from dovetail import errors
from dovetail.study.queueing import job_log, run_figures

SMALL_GPUS: Final = 1
TERMS: Final = ("waiting", "small", "fairness", "utilisation", "lost")
DEFAULT: Final = {"waiting": 1.0, "fairness": 0.5}
# Below these a term counts as this much, so that nothing is divided by almost nothing.
_LEAST: Final = {"waiting": 60.0, "small": 60.0, "fairness": 1.0, "utilisation": 1.0, "lost": 1.0}


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one run came to."""

    ended: int
    never_started: int
    waiting_mean_s: float
    small_waiting_mean_s: float  # of jobs with one GPU
    below_quota_gpu_hours: float
    utilisation_pct: float
    lost_gpu_hours: float
    evictions: int

    def term(self, name: str) -> float:
        """What a weight of this name multiplies; less is better."""
        terms = {
            "waiting": self.waiting_mean_s,
            "small": self.small_waiting_mean_s,
            "fairness": self.below_quota_gpu_hours,
            "utilisation": 100 - self.utilisation_pct,
            "lost": self.lost_gpu_hours,
        }
        return terms[name]


def read(text: str) -> dict[str, float]:
    """Weights as `waiting=1,fairness=0.5`; what is left out weighs nothing."""
    weights: dict[str, float] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, number = part.partition("=")
        if name not in TERMS:
            raise errors.InputError(f'--objective: no "{name}"; there are: {", ".join(TERMS)}')
        try:
            weights[name] = float(number)
        except ValueError:
            weights[name] = -1.0
        if not (0 <= weights[name] < math.inf):
            raise errors.InputError(
                f'--objective: {name}: expected a number from 0, got "{number}"'
            )
    if not sum(weights.values()):
        raise errors.InputError("--objective: expected at least one weight above 0")
    return weights


def outcome(figures: run_figures.Figures, log: job_log.Log) -> Outcome:
    """The figures that count."""
    small = [
        row.waiting_s
        for row in log.rows.values()
        if row.end_s is not None and row.gpus <= SMALL_GPUS
    ]
    return Outcome(
        ended=figures.ended,
        never_started=figures.never_started,
        waiting_mean_s=figures.waiting_mean_s or 0.0,
        small_waiting_mean_s=round(sum(small) / len(small), 2) if small else 0.0,
        below_quota_gpu_hours=figures.below_quota_gpu_hours,
        utilisation_pct=figures.utilisation_pct,
        lost_gpu_hours=figures.lost_gpu_hours,
        evictions=figures.evictions,
    )


def score(result: Outcome, usual: Outcome, weights: Mapping[str, float]) -> float:
    """1 for the default, less for better ones; infinite if jobs stay behind that the default ends."""
    if result.ended < usual.ended:
        return math.inf
    total = sum(weights.values())
    parts = (
        weight * max(result.term(name), 0.0) / max(usual.term(name), _LEAST[name])
        for name, weight in weights.items()
    )
    # A term that is almost nothing for the default adds what it lacks to 1, so that the default scores 1.
    missing = (
        weight * (1 - usual.term(name) / max(usual.term(name), _LEAST[name]))
        for name, weight in weights.items()
    )
    return round((sum(parts) + sum(missing)) / total, 6)


def front(outcomes: Sequence[Outcome]) -> list[int]:
    """The numbers of the runs that no other one beats in waiting, time below quota and idle GPUs at once."""
    places = [
        (-each.ended, *(each.term(name) for name in ("waiting", "fairness", "utilisation")))
        for each in outcomes
    ]
    return [
        number
        for number, place in enumerate(places)
        if not any(_dominates(other, place) for other in places)
    ]


def _dominates(first: Sequence[float], second: Sequence[float]) -> bool:
    return first != second and all(a <= b for a, b in zip(first, second, strict=True))

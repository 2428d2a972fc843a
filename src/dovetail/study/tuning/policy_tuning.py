"""Tunes the engine's policy on a list of jobs: searches on the first part of them, judges on the last.

Given a study, weights of what matters, a number of trials and a seed; the same ones always give the same answer. The
default runs beside everything. What the search chose beats the default only if it is better by 1 % at least on the
held-out part, and better on each of its shaken copies. Never chooses by the held-out part, never writes a policy.
A change without which the search part goes as well is taken back first.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from dovetail.study.queueing import job_list, job_run, run_figures, study_runs
from dovetail.study.tuning import held_out_jobs, point_search, policy_settings, tuning_objective

SHAKES: Final = 5  # better on the held-out part and on 5 copies of it by luck alone: 1 in 64
LEAST_GAIN: Final = 0.01

Progress = Callable[[int, int], None]  # jobs that ended, of all in all runs
Key = tuple[policy_settings.Value, ...]
Tried = dict[Key, tuning_objective.Outcome]  # by the values of all settings, in the order of trials


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that were tried on the searched part; `score` is None where jobs stayed behind."""

    number: int
    changes: policy_settings.Settings
    score: float | None
    outcome: tuning_objective.Outcome
    is_on_front: bool


class Shake(msgspec.Struct, frozen=True, kw_only=True):
    """One shaken copy of the held-out part: the chosen settings by the default there."""

    seed: int
    score: float | None
    waiting_mean_s: float
    default_waiting_mean_s: float


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. `changes`: what the chosen settings change in the default; scores are 1 for the default."""

    study: str
    seed: int
    gpus: int
    objective: dict[str, float]
    searched_jobs: int
    held_out_jobs: int
    changes: policy_settings.Settings
    searched_score: float
    held_out_score: float | None
    searched: tuning_objective.Outcome
    searched_default: tuning_objective.Outcome
    held_out: tuning_objective.Outcome
    held_out_default: tuning_objective.Outcome
    shakes: list[Shake]
    beats_default: bool
    verdict: str
    trials: list[Trial]


class Request(NamedTuple):
    """What is asked for."""

    objective: Mapping[str, float]
    trials: int
    holdout: float
    seed: int


class _Runs:
    """Runs of the engine; counts jobs over all of them."""

    def __init__(
        self, given: study_runs.StudyInput, total_jobs: int, progress: Progress | None
    ) -> None:
        self._given = given
        self._total_jobs = total_jobs
        self._progress = progress
        self._done_jobs = 0

    def run(
        self, jobs: held_out_jobs.Jobs, settings: policy_settings.Settings, *, seed: int
    ) -> tuning_objective.Outcome:
        given = self._given
        engine = job_run.EngineRun(
            given.fleet,
            jobs,
            study=given.study,
            seed=seed,
            policy_=policy_settings.policy_of(settings),
            past=copy.deepcopy(given.past),
        )
        log = engine.run(self._show)
        self.skip(jobs)
        quotas = study_runs.quotas(given)
        figures = run_figures.figures(log, gpus=given.gpus, quotas=quotas)
        return tuning_objective.outcome(figures, log)

    def skip(self, jobs: Sequence[job_list.Job]) -> None:
        """These need no run, or have had theirs."""
        self._done_jobs += len(jobs)
        self._show(0, 0)

    def _show(self, ended: int, _: int) -> None:
        if self._progress is not None:
            self._progress(self._done_jobs + ended, self._total_jobs)


def tune(
    given: study_runs.StudyInput, request: Request, *, progress: Progress | None = None
) -> Tuning:
    """Searches, then judges."""
    parts = held_out_jobs.divided(given.jobs, holdout=request.holdout)
    judged = 2 * (1 + SHAKES) * len(parts.held_out)
    settings = policy_settings.searched(has_promises=given.study.promises is None)
    searched = (request.trials + len(settings)) * len(parts.searched)
    runs = _Runs(given, searched + judged, progress)
    usual = policy_settings.default(settings)
    best, tried = _searched(runs, parts.searched, settings, request)
    changes = policy_settings.changed(best)
    default_outcome, best_outcome = tried[_key(usual)], tried[_key(best)]
    held_out_default = runs.run(parts.held_out, usual, seed=request.seed)
    held_out = held_out_default
    shakes: list[Shake] = []
    if changes:
        held_out = runs.run(parts.held_out, best, seed=request.seed)
        shakes = _shakes(runs, parts.held_out, usual, best, request)
    held_out_score = tuning_objective.score(held_out, held_out_default, request.objective)
    is_better = bool(changes) and beats(held_out_score, shakes)
    return Tuning(
        study=given.name,
        seed=request.seed,
        gpus=given.gpus,
        objective=dict(request.objective),
        searched_jobs=len(parts.searched),
        held_out_jobs=len(parts.held_out),
        changes=changes,
        searched_score=tuning_objective.score(best_outcome, default_outcome, request.objective),
        held_out_score=_finite(held_out_score),
        searched=best_outcome,
        searched_default=default_outcome,
        held_out=held_out,
        held_out_default=held_out_default,
        shakes=shakes,
        beats_default=is_better,
        verdict=_verdict(is_better, changes, held_out_score, shakes),
        trials=_trials(settings, tried, request.objective),
    )


def _searched(
    runs: _Runs,
    jobs: held_out_jobs.Jobs,
    settings: Sequence[policy_settings.Setting],
    request: Request,
) -> tuple[policy_settings.Settings, Tried]:
    """The best settings, and all that were tried, the default first."""
    usual = policy_settings.default(settings)
    tried: Tried = {}

    def value(chosen: policy_settings.Settings) -> float:
        if _key(chosen) in tried:
            runs.skip(jobs)
        else:
            tried[_key(chosen)] = runs.run(jobs, chosen, seed=request.seed)
        return tuning_objective.score(tried[_key(chosen)], tried[_key(usual)], request.objective)

    place = point_search.search(
        lambda point: value(policy_settings.values(settings, point)),
        policy_settings.point(settings, usual),
        trials=request.trials,
        seed=request.seed,
    )
    return simplified(policy_settings.values(settings, place), usual, value), tried


def _key(chosen: policy_settings.Settings) -> Key:
    return tuple(chosen.values())


def simplified(
    best: policy_settings.Settings,
    usual: policy_settings.Settings,
    value: Callable[[policy_settings.Settings], float],
) -> policy_settings.Settings:
    """The same without the changes that bring nothing on the searched part."""
    lowest = value(best)
    for path in policy_settings.changed(best):
        without = {**best, path: usual[path]}
        reached = value(without)
        if reached <= lowest:
            best, lowest = without, reached
    return best


def _shakes(
    runs: _Runs,
    jobs: held_out_jobs.Jobs,
    usual: policy_settings.Settings,
    best: policy_settings.Settings,
    request: Request,
) -> list[Shake]:
    shakes = []
    for number in range(1, SHAKES + 1):
        seed = request.seed + number
        copies = held_out_jobs.shaken(jobs, seed=seed)
        default_outcome = runs.run(copies, usual, seed=seed)
        result = runs.run(copies, best, seed=seed)
        score = tuning_objective.score(result, default_outcome, request.objective)
        shakes.append(
            Shake(
                seed=seed,
                score=_finite(score),
                waiting_mean_s=result.waiting_mean_s,
                default_waiting_mean_s=default_outcome.waiting_mean_s,
            )
        )
    return shakes


def beats(held_out_score: float, shakes: Sequence[Shake]) -> bool:
    """Whether the chosen settings are better by enough, and not by luck."""
    is_better_everywhere = all(each.score is not None and each.score < 1 for each in shakes)
    return held_out_score <= 1 - LEAST_GAIN and is_better_everywhere


def _verdict(
    is_better: bool,
    changes: policy_settings.Settings,
    held_out_score: float,
    shakes: Sequence[Shake],
) -> str:
    if not changes:
        return "nothing beat the default on the part that was searched"
    better = sum(each.score is not None and each.score < 1 for each in shakes)
    by_copies = f"better on {better} of {len(shakes)} shaken copies of it"
    if is_better:
        gain = 100 * (1 - held_out_score)
        return f"beats the default on the held-out part by {gain:.1f} %, {by_copies}"
    reached = "leaves jobs behind" if math.isinf(held_out_score) else f"scores {held_out_score:.3f}"
    return (
        "nothing beat the default on the held-out part: "
        f"the best on the searched part {reached} there and is {by_copies}"
    )


def _trials(
    settings: Sequence[policy_settings.Setting],
    tried: Tried,
    objective: Mapping[str, float],
) -> list[Trial]:
    outcomes = list(tried.values())
    on_front = set(tuning_objective.front(outcomes))
    paths = [each.path for each in settings]
    return [
        Trial(
            number=number,
            changes=policy_settings.changed(dict(zip(paths, values, strict=True))),
            score=_finite(tuning_objective.score(outcome, outcomes[0], objective)),
            outcome=outcome,
            is_on_front=number in on_front,
        )
        for number, (values, outcome) in enumerate(tried.items())
    ]


def _finite(score: float) -> float | None:
    return None if math.isinf(score) else score

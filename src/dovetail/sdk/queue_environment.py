"""An environment for reinforcement learning: at each decision the action says which waiting job starts next.

    environment = QueueEnvironment.drawn(gpus_by_node=[8] * 4, days=1, load=1.1)
    observation, info = environment.reset(seed=1)
    observation, reward, terminated, truncated, info = environment.step(0)

The shape is Gymnasium's, which is not needed: without it `action_space` and `observation_space` are None and
observations are tuples; with it (`pip install 'dovetail[gym]'`) they are spaces and float32 arrays. Runs the simulator
that `dovetail sim compare` uses for its rules. Never evicts, never reads a clock.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from dovetail import errors
from dovetail.study.queueing import (
    generated_jobs,
    job_list,
    job_log,
    job_rules,
    rule_run,
    study_file,
)

HOUR: Final = 3600
JOB_FEATURES: Final = ("is there", "fits", "gpus", "predicted time", "waited", "use of quota")
CLUSTER_FEATURES: Final = ("free", "waiting jobs", "waiting GPUs")
_FIRST_COME: Final = "pooled"  # the order in which jobs are offered

Draw = Callable[[int], Sequence[job_list.Job]]
Step = tuple[Any, float, bool, bool, dict[str, Any]]


class QueueEnvironment:
    """One cluster; an episode begins with `reset` and ends when all jobs that ever can have ended.

    Action i starts the i-th of the first waiting jobs; the last action, and one that names no job with room, waits
    for the next end or submission. Rewards are minus the job-hours waited since the last decision.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}
    render_mode = None
    spec = None

    def __init__(
        self,
        gpus_by_node: Sequence[int],
        draw: Draw,
        *,
        study: study_file.Study | None = None,
        choices: int = 8,
    ) -> None:
        if choices < 1:
            raise errors.InputError(f"choices: expected at least 1, got {choices}")
        self._gpus_by_node = list(gpus_by_node)
        self._draw = draw
        self._study = study_file.Study() if study is None else study
        self._choices = choices
        self._run: rule_run.RuleRun | None = None
        self._offered: list[job_rules.Waiting] = []
        self._episodes = 0
        self._numpy: Any = None
        self.action_space: Any = None
        self.observation_space: Any = None
        self._make_spaces()

    @classmethod
    def drawn(
        cls,
        gpus_by_node: Sequence[int],
        *,
        days: float = 1.0,
        load: float = 0.9,
        median_seconds: float = 900.0,
        study: study_file.Study | None = None,
        choices: int = 8,
    ) -> QueueEnvironment:
        """Every episode draws its own jobs, from the seed of `reset`."""
        arrivals = generated_jobs.Arrivals(days=days, load=load, median_seconds=median_seconds)
        queues = () if study is None else study.queues

        def draw(seed: int) -> Sequence[job_list.Job]:
            return generated_jobs.draw(
                arrivals, gpus_by_node=gpus_by_node, queues=queues, seed=seed
            )

        return cls(gpus_by_node, draw, study=study, choices=choices)

    @property
    def unwrapped(self) -> QueueEnvironment:
        """The environment itself, as wrappers ask for it."""
        return self

    @property
    def log(self) -> job_log.Log:
        """What has happened to the jobs of this episode."""
        return self._running().log

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode; without a seed the next one in order."""
        del options
        self._episodes = self._episodes + 1 if seed is None else seed
        jobs = self._draw(self._episodes)
        self._run = rule_run.RuleRun(
            self._gpus_by_node,
            jobs,
            rule=job_rules.named(_FIRST_COME),
            study=self._study,
            seed=self._episodes,
        )
        self._run.advance()
        self._go_on()
        return self._observation(), self._info()

    def step(self, action: int) -> Step:
        """Carries one action out."""
        run, number = self._running(), int(action)
        if not self._offered:
            raise errors.InputError("the episode has ended; call reset")
        if not 0 <= number <= self._choices:
            raise errors.InputError(f"action: expected 0 to {self._choices}, got {action}")
        waited: int | None = 0
        if self.action_mask()[number] and number < self._choices:
            run.start_waiting(self._offered[number])
        else:
            waited = self._next_event()
        if waited is None:
            # Nothing runs and nothing comes: to wait would be to wait for ever.
            run.start_waiting(next(each for each in self._offered if run.fits(each.job)))
            waited = 0
        waited += self._go_on()
        return self._observation(), -waited / HOUR, not self._offered, False, self._info()

    def action_mask(self) -> list[int]:
        """1 for every action that starts a job now, and for the last one, which waits."""
        run = self._running()
        fits = [int(run.fits(each.job)) for each in self._offered]
        return [*fits, *[0] * (self._choices - len(fits)), 1]

    def close(self) -> None:
        """Nothing is open."""

    def _running(self) -> rule_run.RuleRun:
        if self._run is None:
            raise errors.InputError("no episode; call reset first")
        return self._run

    def _next_event(self) -> int | None:
        """To the next end or submission; the job-seconds waited until then, None where nothing comes."""
        run = self._running()
        run.settle()
        began, waiting_jobs = run.view.now, run.log.waiting_jobs
        if not run.advance():
            return None
        return waiting_jobs * (run.view.now - began)

    def _go_on(self) -> int:
        """To the next time at which there is something to decide; the job-seconds waited until then."""
        run, waited = self._running(), 0
        while True:
            self._offered = run.first_waiting(self._choices)
            if any(run.fits(each.job) for each in self._offered):
                return waited
            more = self._next_event()
            if more is None:
                self._offered = []
                return waited
            waited += more

    # What an agent sees

    def features(self) -> list[float]:
        """Of every offered job, then of the cluster; all from 0 to 1."""
        run = self._running()
        view = run.view
        values: list[float] = []
        for number in range(self._choices):
            if number < len(self._offered):
                values += _job_features(self._offered[number], run)
            else:
                values += [0.0] * len(JOB_FEATURES)
        free = view.gpus - sum(view.used.values())
        waiting_jobs, waiting_gpus = run.log.waiting_jobs, run.log.waiting_gpus
        values += [free / view.gpus, _part(waiting_jobs, 10), _part(waiting_gpus, view.gpus)]
        return values

    def _observation(self) -> Any:
        values = self.features()
        if self._numpy is None:
            return tuple(values)
        return self._numpy.asarray(values, dtype=self._numpy.float32)

    def _info(self) -> dict[str, Any]:
        run = self._running()
        return {"action_mask": self.action_mask(), "seconds": run.view.now, "ended": run.log.ended}

    def _make_spaces(self) -> None:
        try:
            spaces = importlib.import_module("gymnasium.spaces")
        except ModuleNotFoundError:
            return
        self._numpy = importlib.import_module("numpy")
        size = self._choices * len(JOB_FEATURES) + len(CLUSTER_FEATURES)
        self.action_space = spaces.Discrete(self._choices + 1)
        self.observation_space = spaces.Box(0.0, 1.0, (size,), self._numpy.float32)


def as_gymnasium(environment: QueueEnvironment) -> Any:
    """The environment as a subclass of `gymnasium.Env`, which some libraries insist on."""
    try:
        gymnasium = importlib.import_module("gymnasium")
    except ModuleNotFoundError:
        raise errors.InputError(
            "this needs gymnasium; install it with: pip install 'dovetail[gym]'"
        ) from None

    def reset(
        self: Any, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        gymnasium.Env.reset(
            self, seed=seed
        )  # the generator that wrappers look for; nothing draws from it
        return QueueEnvironment.reset(self, seed=seed, options=options)

    bases = (QueueEnvironment, gymnasium.Env)
    kind: Any = type("GymnasiumQueueEnvironment", bases, {"reset": reset})
    copy = object.__new__(kind)
    copy.__dict__.update(environment.__dict__)
    return copy


def _job_features(waiting: job_rules.Waiting, run: rule_run.RuleRun) -> list[float]:
    job, view = waiting.job, run.view
    quota = view.quotas[job.queue] or view.gpus
    return [
        1.0,
        float(run.fits(job)),
        min(1.0, job.gpus / view.gpus),
        _part(waiting.predicted_seconds, HOUR),
        _part(view.now - job.submit_seconds, HOUR),
        _part(view.used[job.queue], quota),
    ]


def _part(value: float, usual: float) -> float:
    """0 for nothing, 1/2 for what is usual, near 1 for much more."""
    return value / (value + usual)

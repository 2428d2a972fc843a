"""Runs a list of jobs under a policy by its name: one of the rules, or the engine; returns what happened and figures.

Given jobs, a fleet and the assumptions of a study. Never reads files, never prints.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dovetail import errors
from dovetail.sim.fleet import fleet_spec
from dovetail.study.queueing import (
    alone_times,
    job_list,
    job_log,
    job_rules,
    job_run,
    past_runtimes,
    rule_run,
    run_figures,
    study_file,
)


class StudyInput(NamedTuple):
    """What every policy of a study is given."""

    name: str
    jobs: tuple[job_list.Job, ...]
    fleet: fleet_spec.Fleet
    study: study_file.Study
    past: past_runtimes.PastRuntimes

    @property
    def gpus(self) -> int:
        """GPUs of the fleet."""
        return sum(gpus_by_node(self.fleet))


def check_policy(policy: str) -> None:
    """Refuses a name that is no policy."""
    if policy != job_rules.ENGINE:
        job_rules.named(policy)


def run(
    given: StudyInput, *, policy: str, seed: int = 0, progress: rule_run.Progress | None = None
) -> job_log.Log:
    """One run. Policies do not learn from each other's: each gets its own copy of the past."""
    past = copy.deepcopy(given.past)
    if policy == job_rules.ENGINE:
        engine = job_run.EngineRun(given.fleet, given.jobs, study=given.study, seed=seed, past=past)
        return engine.run(progress)
    rule = job_rules.named(policy)
    nodes = gpus_by_node(given.fleet)
    return rule_run.RuleRun(
        nodes, given.jobs, rule=rule, study=given.study, seed=seed, past=past
    ).run(progress)


def figures(given: StudyInput, log: job_log.Log, alone: Mapping[str, int]) -> run_figures.Figures:
    """The figures of a run."""
    return run_figures.figures(log, gpus=given.gpus, quotas=quotas(given), alone=alone)


def alone(given: StudyInput, *, seed: int = 0) -> dict[str, int]:
    """What every job would take alone on the quota of its queue."""
    return alone_times.alone(
        given.jobs,
        study=given.study,
        quotas=quotas(given),
        gpus_per_node=max(gpus_by_node(given.fleet), default=1),
        seed=seed,
    )


def quotas(given: StudyInput) -> dict[str, int]:
    """By queue. Where the study names no queues, jobs may count on all GPUs."""
    by_name = {queue.name: queue.quota for queue in given.study.queues}
    if not by_name:
        by_name = dict.fromkeys(sorted({job.queue for job in given.jobs}), given.gpus)
    return by_name


def check_queues(jobs: Sequence[job_list.Job], study: study_file.Study, *, file: str) -> None:
    """Refuses a job of a queue that the study does not define."""
    defined = {queue.name for queue in study.queues}
    stray = next((job for job in jobs if job.queue and job.queue not in defined), None)
    if stray is not None:
        raise errors.InputError(
            f'{file}: job {stray.name}: no queue "{stray.queue}"; '
            "define it under queues in the file of --study"
        )


def gpus_by_node(fleet: fleet_spec.Fleet) -> list[int]:
    """Whole GPUs of every node."""
    divided = next((pool.name for pool in fleet.pools if pool.mig or pool.shares), None)
    if divided is not None:
        raise errors.InputError(
            f"fleet {fleet.name}: pool {divided} divides its GPUs; remove mig or shares"
        )
    return [pool.gpus_per_node for pool in fleet.pools for _ in range(pool.count)]

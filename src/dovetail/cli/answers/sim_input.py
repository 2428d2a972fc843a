"""The options of `dovetail sim` that say which jobs run where, and what a study is given by them.

Given names of files, a trace or the settings of a generator. Reads files; never runs anything.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click

from dovetail import errors
from dovetail.cli import output
from dovetail.history import stores
from dovetail.sim.fleet import fleet_spec
from dovetail.study import openb_files
from dovetail.study.queueing import (
    generated_jobs,
    job_list,
    past_runtimes,
    philly_files,
    recorded_jobs,
    study_file,
    study_runs,
)

PHILLY: Final = "philly"
FOREVER: Final = 2**62  # milliseconds

Function = TypeVar("Function", bound=Callable[..., Any])


class Source(NamedTuple):
    """What was named on the command line."""

    trace: str | None = None
    jobs: str | None = None
    generate: str | None = None
    fleet: str | None = None
    study: str | None = None
    traces: str | None = None
    days: int | None = None
    history: str | None = None


def options(function: Function) -> Function:
    """Adds the options to a command; they arrive by the names of the fields of a Source."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def read(source: Source, *, seed: int) -> study_runs.StudyInput:
    """The study."""
    kinds = [source.trace, source.jobs, source.generate, source.history]
    if sum(kind is not None for kind in kinds) != 1:
        raise errors.InputError(
            "expected one of --trace philly[:PART], --jobs FILE.csv, --generate SETTINGS "
            "or --history STORE"
        )
    if source.trace is not None:
        return _philly(source.trace, source.traces, source.days)
    if source.fleet is None:
        raise errors.InputError("--jobs, --generate and --history need --fleet FILE.yaml")
    fleet = fleet_spec.read(_text(source.fleet), file=source.fleet)
    nodes = study_runs.gpus_by_node(fleet)
    study = study_file.Study()
    if source.study is not None:
        study = study_file.read(_text(source.study), file=source.study)
    if source.jobs is not None:
        jobs = job_list.read(_text(source.jobs), file=source.jobs)
        study_runs.check_queues(jobs, study, file=source.jobs)
        name = Path(source.jobs).name
    elif source.history is not None:
        jobs = _recorded(source.history)
        study_runs.check_queues(jobs, study, file=source.history)
        name = "recorded history"
    else:
        arrivals = generated_jobs.read(source.generate or "")
        jobs = generated_jobs.draw(arrivals, gpus_by_node=nodes, queues=study.queues, seed=seed)
        name = f"generated ({source.generate or 'defaults'})"
    return study_runs.StudyInput(name, jobs, fleet, study, past_runtimes.PastRuntimes())


def _recorded(location: str) -> tuple[job_list.Job, ...]:
    with stores.open_store(location) as store:
        history = store.records(0, FOREVER, has_usage=False)
    recorded = recorded_jobs.jobs(history)
    if recorded.open_pods or recorded.divided_pods:
        output.say(
            f"left out: {recorded.open_pods} pods that still run, "
            f"{recorded.divided_pods} that held parts of GPUs"
        )
    return recorded.jobs


def _philly(trace: str, directory: str | None, days: int | None) -> study_runs.StudyInput:
    collection, _, part = trace.partition(":")
    if collection != PHILLY:
        raise errors.InputError(f'--trace "{trace}": expected philly, or a part as philly:0.6')
    read = philly_files.read(openb_files.folder(directory), scale=_scale(part), days=days)
    name = trace if days is None else f"{trace}, {days} days"
    return study_runs.StudyInput(name, read.jobs, read.fleet, read.study, read.past)


def _scale(part: str) -> float:
    try:
        scale = float(part or "1")
    except ValueError:
        scale = 0.0
    if not 0 < scale <= 10:
        raise errors.InputError(
            f'--trace "philly:{part}": expected a part of the nodes above 0, such as philly:0.6'
        )
    return scale


def _text(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise errors.InputError(f"{file}: cannot be read: {error}") from None


_OPTIONS: Final = (
    click.option("--trace", metavar="philly[:PART]", help="A recorded workload."),
    click.option("--jobs", metavar="FILE.csv", help="A list of jobs, instead of a trace."),
    click.option(
        "--generate",
        metavar="SETTINGS",
        help="Draw jobs, as days=7,load=0.9; an empty text takes the defaults.",
    ),
    click.option("--history", metavar="STORE", help="Jobs as a recorded history holds them."),
    click.option("--fleet", metavar="FILE.yaml", help="The nodes that run the jobs."),
    click.option("--study", metavar="FILE.yaml", help="Queues, checkpoints and failures."),
    click.option(
        "--traces",
        metavar="DIR",
        help="Folder of the traces. [default: $DOVETAIL_TRACES, else shared/traces beside the checkout]",
    ),
    click.option("--days", type=click.IntRange(1), help="Only so many days of a trace."),
)

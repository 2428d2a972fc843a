"""`dovetail sim run --jobs` and `--trace philly`: jobs on a fleet in virtual time, and how long they waited.

Given the names of files. Writes one line per job to a file if asked. Never decides.
"""

from __future__ import annotations

import csv
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from dovetail import errors
from dovetail.cli import output
from dovetail.sim.fleet import fleet_spec
from dovetail.study import openb_files
from dovetail.study.queueing import (
    job_list,
    job_log,
    job_rules,
    job_run,
    past_runtimes,
    philly_files,
    rule_run,
    study_file,
)


class Files(NamedTuple):
    """The files of a run."""

    jobs: str
    fleet: str
    study: str | None
    rows: str | None


class Input(NamedTuple):
    """What a run is given."""

    jobs: tuple[job_list.Job, ...]
    fleet: fleet_spec.Fleet
    study: study_file.Study
    past: past_runtimes.PastRuntimes


class JobsReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a run of a list of jobs came to."""

    policy: str
    seed: int
    gpus: int
    figures: job_log.Figures
    seconds: float


def run(files: Files, *, seed: int, policy: str, form: str) -> None:
    """Runs the list and prints the report."""
    _check_policy(policy)
    jobs = job_list.read(_text(files.jobs), file=files.jobs)
    fleet = fleet_spec.read(_text(files.fleet), file=files.fleet)
    study = study_file.Study()
    if files.study is not None:
        study = study_file.read(_text(files.study), file=files.study)
    _check_queues(files, jobs, study)
    given = Input(jobs, fleet, study, past_runtimes.PastRuntimes())
    _run_and_report(given, seed=seed, policy=policy, form=form, rows=files.rows)


def run_philly(
    part: str, directory: str | None, *, seed: int, policy: str, form: str, rows: str | None
) -> None:
    """Runs the Philly trace, on this part of its nodes, and prints the report."""
    _check_policy(policy)
    trace = philly_files.read(openb_files.folder(directory), scale=_scale(part))
    given = Input(trace.jobs, trace.fleet, trace.study, trace.past)
    _run_and_report(given, seed=seed, policy=policy, form=form, rows=rows)


def _check_policy(policy: str) -> None:
    if policy != job_rules.ENGINE:
        job_rules.named(policy)


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


def _run_and_report(given: Input, *, seed: int, policy: str, form: str, rows: str | None) -> None:
    began = time.perf_counter()

    def show_progress(done: int, total: int) -> None:
        elapsed = time.perf_counter() - began
        left = f", about {elapsed * (total - done) / done:.0f} s left" if done else ""
        output.progress(f"{done} of {total} jobs ended{left}")

    log = _log(given, seed=seed, policy=policy, progress=show_progress)
    seconds = round(time.perf_counter() - began, 2)
    output.clear_progress(output.PROGRESS_WIDTH)
    gpus = sum(_gpus_by_node(given.fleet))
    report = JobsReport(
        policy=policy, seed=seed, gpus=gpus, figures=log.figures(gpus), seconds=seconds
    )
    if rows is not None:
        _write_rows(log, rows)
    if form == "json":
        output.write_json(report)
    else:
        output.write_lines(_table(report))


def _log(given: Input, *, seed: int, policy: str, progress: rule_run.Progress) -> job_log.Log:
    if policy == job_rules.ENGINE:
        engine = job_run.EngineRun(
            given.fleet, given.jobs, study=given.study, seed=seed, past=given.past
        )
        return engine.run(progress)
    rule = job_rules.named(policy)
    nodes = _gpus_by_node(given.fleet)
    return rule_run.RuleRun(
        nodes, given.jobs, rule=rule, study=given.study, seed=seed, past=given.past
    ).run(progress)


def _gpus_by_node(fleet: fleet_spec.Fleet) -> list[int]:
    divided = next((pool.name for pool in fleet.pools if pool.mig or pool.shares), None)
    if divided is not None:
        raise errors.InputError(
            f"fleet {fleet.name}: pool {divided} divides its GPUs; remove mig or shares"
        )
    return [pool.gpus_per_node for pool in fleet.pools for _ in range(pool.count)]


def _check_queues(files: Files, jobs: tuple[job_list.Job, ...], study: study_file.Study) -> None:
    defined = {queue.name for queue in study.queues}
    stray = next((job for job in jobs if job.queue and job.queue not in defined), None)
    if stray is not None:
        raise errors.InputError(
            f'{files.jobs}: job {stray.name}: no queue "{stray.queue}"; '
            "define it under queues in the file of --study"
        )


def _text(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise errors.InputError(f"{file}: cannot be read: {error}") from None


def _write_rows(log: job_log.Log, file: str) -> None:
    columns = [field.name for field in msgspec.structs.fields(job_log.JobRow)]
    try:
        with Path(file).open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(msgspec.structs.asdict(row) for row in log.rows.values())
    except OSError as error:
        raise errors.InputError(f"{file}: cannot be written: {error}") from None


def _table(report: JobsReport) -> list[str]:
    figures = report.figures
    interruptions = ", ".join(f"{count} {what}" for what, count in figures.interruptions.items())
    return [
        f"{figures.jobs} jobs on {report.gpus} GPUs, policy {report.policy}, seed {report.seed}",
        f"{figures.ended} ended, {figures.never_started} never started",
        f"waiting: mean {figures.waiting_mean_s} s, "
        f"median {figures.waiting_p50_s} s, p95 {figures.waiting_p95_s} s",
        f"from submission to end: mean {figures.jct_mean_s} s",
        f"GPUs in use while jobs arrived: {figures.utilisation_pct} %",
        f"interruptions: {interruptions or 'none'}; {figures.lost_gpu_hours} GPU-hours lost",
    ]

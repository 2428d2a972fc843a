"""`dovetail sim run --jobs`: runs a list of jobs on a fleet in virtual time and reports what they waited for.

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
from dovetail.study.queueing import engine_run, job_list, outcome, study_file

ENGINE = "dovetail"


class Files(NamedTuple):
    """The files of a run."""

    jobs: str
    fleet: str
    study: str | None
    rows: str | None


class JobsReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a run of a list of jobs came to."""

    policy: str
    seed: int
    gpus: int
    figures: outcome.Figures
    seconds: float


def run(files: Files, *, seed: int, policy: str, form: str) -> None:
    """Runs the list and prints the report."""
    if policy != ENGINE:
        raise errors.NotFound(f'no policy "{policy}" for a list of jobs; there is: {ENGINE}')
    jobs = job_list.read(_text(files.jobs), file=files.jobs)
    fleet = fleet_spec.read(_text(files.fleet), file=files.fleet)
    study = study_file.Study()
    if files.study is not None:
        study = study_file.read(_text(files.study), file=files.study)
    _check_queues(files, jobs, study)

    began = time.perf_counter()

    def show_progress(done: int, total: int) -> None:
        elapsed = time.perf_counter() - began
        left = f", about {elapsed * (total - done) / done:.0f} s left" if done else ""
        output.progress(f"{done} of {total} jobs ended{left}")

    log = engine_run.EngineRun(fleet, jobs, study=study, seed=seed).run(show_progress)
    seconds = round(time.perf_counter() - began, 2)
    output.clear_progress(output.PROGRESS_WIDTH)
    gpus = sum(pool.count * pool.gpus_per_node for pool in fleet.pools)
    report = JobsReport(
        policy=policy, seed=seed, gpus=gpus, figures=log.figures(gpus), seconds=seconds
    )
    if files.rows is not None:
        _write_rows(log, files.rows)
    if form == "json":
        output.write_json(report)
    else:
        output.write_lines(_table(report))


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


def _write_rows(log: outcome.Log, file: str) -> None:
    columns = [field.name for field in msgspec.structs.fields(outcome.JobRow)]
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

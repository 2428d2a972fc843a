"""`dovetail sim run --jobs`, `--generate` and `--trace philly`: jobs on a fleet in virtual time, and their waiting.

Given what was named on the command line. Writes one line per job to a file if asked. Never decides.
"""

from __future__ import annotations

import msgspec

from dovetail.cli import output
from dovetail.cli.answers import sim_input, sim_progress, sim_rows
from dovetail.study.queueing import run_figures, study_runs


class JobsReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a run of a list of jobs came to."""

    policy: str
    seed: int
    gpus: int
    figures: run_figures.Figures
    seconds: float


def run(source: sim_input.Source, *, seed: int, policy: str, form: str, rows: str | None) -> None:
    """Runs the jobs and prints the report."""
    study_runs.check_policy(policy)
    rows_file = None if rows is None else sim_rows.RowsFile(rows)
    given = sim_input.read(source, seed=seed)
    bar = sim_progress.Bar([policy])
    log = study_runs.run(
        given, policy=policy, seed=seed, progress=lambda ended, total: bar.show(0, ended, total)
    )
    seconds = bar.close()
    figures = study_runs.figures(given, log, study_runs.alone(given, seed=seed))
    report = JobsReport(policy=policy, seed=seed, gpus=given.gpus, figures=figures, seconds=seconds)
    if rows_file is not None:
        rows_file.add(policy, log)
        rows_file.write()
    if form == "json":
        output.write_json(report)
    else:
        output.write_lines(_table(report))


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
        f"below quota while fitting work waited: {figures.below_quota_gpu_hours} GPU-hours",
        f"idle while waited for: {figures.idle_while_waiting_gpu_hours} GPU-hours, of no use to any "
        f"waiting pod: {figures.unusable_gpu_hours}",
    ]

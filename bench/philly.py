"""Queue policies on two months of the Philly trace: waiting, use of the GPUs, evictions, fairness, beside a bound.

`python -m bench philly [--part 0.6] [--days N] [--policies fifo,kai] [--seed N]`. Rows of other parts, days and
policies stay in bench/results/philly.json. Simulated: no GPU takes part. Without the trace it names the missing files.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench import result_rows
from dovetail import errors
from dovetail.study import openb_files
from dovetail.study.queueing import (
    job_rules,
    philly_files,
    run_figures,
    study_runs,
    waiting_bound,
)

RESULTS = Path(__file__).resolve().parent / "results" / "philly.json"
POLICIES = (*(name for name in job_rules.RULES if name != "fair-share"), job_rules.ENGINE)


class Row(msgspec.Struct):
    """One finished run."""

    part: float  # of the nodes
    days: int  # of the window; 61 is all of it
    policy: str
    seed: int
    gpus: int
    decision_seconds: int
    bound_waiting_s: float
    bound_jct_s: float
    figures: run_figures.Figures
    cpu_seconds: float
    date: str


def main(arguments: Sequence[str]) -> int:
    """Runs what was asked for, stores each result at once, prints a table."""
    parser = argparse.ArgumentParser(prog="python -m bench philly")
    parser.add_argument("--part", type=float, default=0.6)
    parser.add_argument("--days", type=int, default=61)
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--decision-seconds", type=int, default=0, help="of the engine")
    parser.add_argument("--traces", help="folder of the traces")
    options = parser.parse_args(arguments)
    try:
        _measure(options)
    except errors.InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    show(stored(), part=options.part, days=options.days)
    return 0


def stored() -> list[Row]:
    """Rows of earlier calls."""
    if not RESULTS.exists():
        return []
    return msgspec.convert(msgspec.json.decode(RESULTS.read_bytes())["rows"], list[Row])


def show(rows: Sequence[Row], *, part: float, days: int) -> None:
    """The rows of one setting, the shortest mean waiting first."""
    chosen = [row for row in rows if (row.part, row.days) == (part, days)]
    print(
        "policy        waiting      p95       JCT   used  evicted  lost h   Jain    FTF  below quota h   CPU s"
    )
    for row in sorted(chosen, key=lambda row: row.figures.waiting_mean_s or 0.0):
        figures = row.figures
        print(
            f"{row.policy:<12} {figures.waiting_mean_s or 0:8.0f} {figures.waiting_p95_s or 0:8.0f}"
            f" {figures.jct_mean_s or 0:9.0f} {figures.utilisation_pct:6.2f} {figures.evictions:8}"
            f" {figures.lost_gpu_hours:7.0f} {figures.jain or 0:6.3f} {figures.finish_time_mean or 0:6.3f}"
            f" {figures.below_quota_gpu_hours:14.0f} {row.cpu_seconds:7.1f}"
        )
    if chosen:
        bound = chosen[0]
        print(f"{'bound':<12} {bound.bound_waiting_s:8.0f} {'':>8} {bound.bound_jct_s:9.0f}")


def _measure(options: argparse.Namespace) -> None:
    trace = philly_files.read(
        openb_files.folder(options.traces), scale=options.part, days=options.days
    )
    study = msgspec.structs.replace(trace.study, decision_seconds=options.decision_seconds)
    given = study_runs.StudyInput("philly", trace.jobs, trace.fleet, study, trace.past)
    policies = options.policies.split(",")
    for policy in policies:
        study_runs.check_policy(policy)
    alone = study_runs.alone(given, seed=options.seed)
    bound = waiting_bound.bound(given.jobs, given.gpus)
    for policy in policies:
        began = time.process_time()
        log = study_runs.run(given, policy=policy, seed=options.seed)
        seconds = time.process_time() - began
        row = Row(
            part=options.part,
            days=options.days,
            policy=policy,
            seed=options.seed,
            gpus=given.gpus,
            decision_seconds=options.decision_seconds if policy == job_rules.ENGINE else 0,
            bound_waiting_s=bound.waiting_s,
            bound_jct_s=bound.jct_s,
            figures=study_runs.figures(given, log, alone),
            cpu_seconds=round(seconds, 1),
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        )
        _store([*(each for each in stored() if _key(each) != _key(row)), row])
        print(f"{policy}: {seconds:.0f} s", file=sys.stderr, flush=True)


def _key(row: Row) -> tuple[float, int, str, int, int]:
    return row.part, row.days, row.policy, row.seed, row.decision_seconds


def _store(rows: list[Row]) -> None:
    head = {
        "benchmark": "philly",
        "protocol": "Philly, October and November 2017, 11 queues; restart 30 s, checkpoint each 600 s",
        "machine": "2 cores, shared; simulated, no GPU takes part",
    }
    ordered = sorted(rows, key=_key)
    result_rows.write(RESULTS, head, "rows", ordered)

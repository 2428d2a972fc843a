"""Reads the Philly trace (Microsoft, 2017) as a study of 11 queues.

October and November are run; jobs that ended before are the past for predictions. Given the folder of traces and which
part of the nodes there is. A queue's quota is its own part of them. Rows without a duration are left out and counted.
Reads files, never writes.
"""

from __future__ import annotations

import csv
import datetime
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from dovetail import errors
from dovetail.sim.fleet import fleet_spec
from dovetail.study.queueing import job_list, past_runtimes, study_file

FILES: Final = {"jobs": "philly_pcs.csv.gz", "nodes": "philly_vc_nodes.csv.gz"}
SOURCE: Final = (
    "the GitHub repositories TuftsNATLab/PCS (simulation/traces) and "
    "S-Lab-System-Group/HeliosArtifact (QSSF Service/data/philly_vc.csv)"
)
FIRST: Final = datetime.datetime(2017, 10, 1)  # local time, as in the trace
LAST: Final = datetime.datetime(2017, 12, 1)
GPUS_PER_NODE: Final = 8
# Within 30 s, the published cost of a checkpoint of up to 8 GPUs; how often work is saved is our assumption.
RESTART_SECONDS: Final = 30
CHECKPOINT_SECONDS: Final = 600
BOARD: Final = "A100-SXM4-80GB"  # any board will do: jobs ask for whole GPUs


class PhillyStudy(NamedTuple):
    """The jobs of the window, what ended before it, the fleet and its queues."""

    jobs: tuple[job_list.Job, ...]
    left_out: int  # rows without a duration
    past: past_runtimes.PastRuntimes
    fleet: fleet_spec.Fleet
    study: study_file.Study


def read(traces: Path, *, scale: float, days: int | None = None) -> PhillyStudy:
    """The study, on this part of the nodes of every queue; `days` ends the window early."""
    _require_files(traces)
    last = LAST if days is None else min(LAST, FIRST + datetime.timedelta(days=days))
    jobs, earlier, left_out = [], [], 0
    for number, row in enumerate(_rows(traces, "jobs")):
        submitted = datetime.datetime.fromisoformat(row["est_submit"])
        is_in_window = FIRST <= submitted < last
        if not row["est_duration_s"]:
            left_out += is_in_window
        elif is_in_window:
            jobs.append(_job(row, number, submitted))
        elif submitted < FIRST:
            earlier.append((submitted, _job(row, number, FIRST)))
    queues = tuple(
        study_file.StudyQueue(name=row["vc"], quota=_nodes(row, scale) * GPUS_PER_NODE)
        for row in _rows(traces, "nodes")
    )
    count = sum(queue.quota for queue in queues) // GPUS_PER_NODE
    pool = fleet_spec.Pool(name="n", count=count, gpu=BOARD, gpus_per_node=GPUS_PER_NODE)
    study = study_file.Study(
        queues=queues,
        checkpoint_seconds=CHECKPOINT_SECONDS,
        restart_seconds=RESTART_SECONDS,
        predicts_runtimes=True,
    )
    ordered = tuple(sorted(jobs, key=lambda job: job.submit_seconds))
    fleet = fleet_spec.Fleet(name="philly", pools=(pool,))
    return PhillyStudy(ordered, left_out, _past(earlier), fleet, study)


def _past(
    earlier: list[tuple[datetime.datetime, job_list.Job]],
) -> past_runtimes.PastRuntimes:
    """Jobs that had ended before the window even if they did not wait, in the order of their ends."""
    past = past_runtimes.PastRuntimes()
    ends = [
        (submitted + datetime.timedelta(seconds=job.duration_seconds), job.name, job)
        for submitted, job in earlier
    ]
    for end, _, job in sorted(ends, key=lambda entry: entry[:2]):
        if end < FIRST:
            past.add(job)
    return past


def _job(row: dict[str, str], number: int, submitted: datetime.datetime) -> job_list.Job:
    gpus = int(row["num_gpus"])
    return job_list.Job(
        name=f"j{number}",
        submit_seconds=int((submitted - FIRST).total_seconds()),
        duration_seconds=max(1, round(float(row["est_duration_s"]))),
        gpus=gpus,
        pods=job_list.equal_pods(gpus, most=GPUS_PER_NODE),
        queue=row["vc"],
    )


def _nodes(row: dict[str, str], scale: float) -> int:
    return max(1, round(int(row["node num"]) * scale))


def _require_files(traces: Path) -> None:
    missing = [name for name in FILES.values() if not (traces / name).is_file()]
    if missing:
        raise errors.NotFound(
            f"{traces}: no {', '.join(missing)}; made from {SOURCE}; "
            "name their folder by --traces or DOVETAIL_TRACES"
        )


def _rows(traces: Path, which: str) -> Iterator[dict[str, str]]:
    with gzip.open(traces / FILES[which], "rt", encoding="utf-8") as text:
        yield from csv.DictReader(text)

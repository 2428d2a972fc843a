"""A list of jobs through the engine in virtual time, and through the live loops: the same starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from dovetail import errors
from dovetail.cli.answers import sim_command
from dovetail.sim import timed_jobs, virtual_run
from dovetail.sim.fleet import fleet_spec
from dovetail.study.queueing import (
    job_list,
    job_log,
    job_run,
    run_figures,
    study_file,
    study_objects,
)

HEADER = "name,submit_s,duration_s,num_gpus,queue\n"


def fleet(nodes: int = 1, gpus: int = 4) -> fleet_spec.Fleet:
    pool = fleet_spec.Pool(name="n", count=nodes, gpu="H100-SXM5-80GB", gpus_per_node=gpus)
    return fleet_spec.Fleet(name="study", pools=(pool,))


def run(text: str, *, nodes: int = 1, seed: int = 0, **study: object) -> job_log.Log:
    jobs = job_list.read(HEADER + text, file="jobs.csv")
    assumptions = study_file.Study(**study)  # type: ignore[arg-type]
    return job_run.EngineRun(fleet(nodes), jobs, study=assumptions, seed=seed).run()


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("a,0,60,many,", "jobs.csv: line 2, column num_gpus: expected a number from 1 to 100000"),
        ("a,-1,60,1,", "jobs.csv: line 2, column submit_s: expected a number from 0"),
        ("a,0,nan,1,", "jobs.csv: line 2, column duration_s: expected a number from 1"),
        ("A_b,0,60,1,", "jobs.csv: line 2, column name: expected lower-case letters"),
        ("a,0,60,1,\na,0,60,1,", "jobs.csv: line 3, column name: expected a name that line 2"),
    ],
)
def test_a_wrong_cell_is_reported_with_line_and_column(row: str, expected: str) -> None:
    with pytest.raises(errors.InputError) as raised:
        job_list.read(HEADER + row, file="jobs.csv")
    assert str(raised.value).startswith(expected)


def test_a_missing_column_is_named() -> None:
    with pytest.raises(errors.InputError, match="no column duration_s"):
        job_list.read("submit_s,num_gpus\n0,1\n", file="jobs.csv")


def test_a_job_waits_for_the_gpus_of_the_one_before() -> None:
    log = run("first,0,600,4,\nsecond,60,100,2,\nthird,60,100,2,\n")
    starts = {row.name: row.first_start_s for row in log.rows.values()}
    assert starts == {"first": 0, "second": 600, "third": 600}
    figures = run_figures.figures(log, gpus=4, quotas={})
    assert (figures.ended, figures.waiting_p95_s, figures.jct_mean_s) == (3, 540, 626.67)
    assert figures.utilisation_pct == 100.0


def test_a_job_larger_than_the_fleet_never_starts_and_is_counted() -> None:
    log = run("huge,0,60,64,\nsmall,10,60,1,\n")
    figures = run_figures.figures(log, gpus=4, quotas={})
    assert (figures.ended, figures.never_started) == (1, 1)


def test_a_queue_reclaims_its_quota_and_the_victim_goes_on_from_its_checkpoint() -> None:
    queues = (study_file.StudyQueue(name="a", quota=2), study_file.StudyQueue(name="b", quota=2))
    text = "lent,0,1000,4,a\nowner,350,100,2,b\n"
    log = run(text, queues=queues, checkpoint_seconds=100, restart_seconds=30)
    assert log.rows["owner"].first_start_s == 350
    assert log.interruptions == {job_log.EVICTED: 1}
    # 300 of 350 s were saved; it starts again at 450 and needs 30 s and the other 700.
    assert (log.rows["lent"].lost_gpu_s, log.rows["lent"].end_s) == (50 * 4, 450 + 30 + 700)


def test_a_job_that_moves_for_another_goes_on_elsewhere_and_ends() -> None:
    queues = (study_file.StudyQueue(name="a", quota=8),)
    text = "p,0,50,2,a\nq,0,1000,2,a\nr,0,1000,2,a\nwhole,60,100,4,a\n"
    log = run(text, nodes=2, queues=queues, checkpoint_seconds=10)
    assert log.interruptions == {job_log.MOVED: 1}
    assert log.rows["whole"].first_start_s == 60
    assert {row.end_s for row in log.rows.values()} == {50, 160, 1000}


def test_the_pods_of_a_job_end_together_also_if_one_of_them_moved() -> None:
    # What can never start keeps the engine deciding; it would end a gang that lost a pod.
    text = "name,submit_s,duration_s,num_gpus,gpus_per_pod\n"
    text += "wide,0,50,6,3\npair,0,1000,2,1\nwhole,90,100,4,4\nhuge,95,10,80,4\n"
    jobs = job_list.read(text, file="jobs.csv")
    study = study_file.Study(checkpoint_seconds=10, restart_seconds=100)
    log = job_run.EngineRun(fleet(2), jobs, study=study).run()
    assert log.interruptions == {job_log.MOVED: 2}
    assert {row.name: row.end_s for row in log.rows.values()} == {
        "wide": 50,
        "pair": 1190,
        "whole": 190,
        "huge": None,
    }


def test_a_job_may_be_named_like_the_pod_of_another() -> None:
    log = run("a,0,100,1,\na-0,0,700,1,\n")
    assert {row.name: row.end_s for row in log.rows.values()} == {"a": 100, "a-0": 700}


def test_failures_and_lost_nodes_follow_from_the_seed() -> None:
    text = "".join(f"j{number},{number * 100},20000,2,\n" for number in range(6))
    loss = study_file.NodeLoss(mean_hours=4, repair_seconds=600)
    runs = [
        run(
            text,
            nodes=2,
            seed=seed,
            node_loss=loss,
            failure_mean_gpu_hours=10,
            checkpoint_seconds=60,
        )
        for seed in (1, 1, 2)
    ]
    ends = [[row.end_s for row in log.rows.values()] for log in runs]
    assert ends[0] == ends[1] != ends[2]
    assert set(runs[0].interruptions) == {job_log.FAILED, job_log.NODE_LOST}
    assert runs[0].ended == 6


SIX = "a,0,600,3,\nb,100,500,2,\nc,130,900,1,\nd,200,300,4,\ne,900,400,2,\nf,2500,100,1,\n"
WITH_QUEUES = (
    "a,0,600,3,x\nb,50,2000,2,x\nc,130,900,3,x\nd,300,400,4,y\ne,900,400,2,y\n"
    "f,1000,300,2,x\ng,1100,800,4,y\nh,2500,100,1,x\n"
)


@pytest.mark.parametrize(("text", "evictions"), [(SIX, 0), (WITH_QUEUES, 2)])
def test_the_live_loops_start_the_same_jobs_at_the_same_times(text: str, evictions: int) -> None:
    """But for the seconds that the live loops take to notice an end, and to let a victim go."""
    jobs = job_list.read(HEADER + text, file="jobs.csv")
    names = sorted({job.queue for job in jobs if job.queue})
    queues = tuple(study_file.StudyQueue(name=name, quota=4) for name in names)
    log = job_run.EngineRun(fleet(2), jobs, study=study_file.Study(queues=queues)).run()
    live = virtual_run.VirtualRun(
        fleet(2), objects=[study_objects.queue_tree(queue) for queue in queues], grace_seconds=1
    )
    works = [
        timed_jobs.Work(
            name=job.name,
            at=job.submit_seconds,
            seconds=job.duration_seconds,
            pods=job.pods,
            gpus=job.gpus_per_pod,
            queue=job.queue,
        )
        for job in jobs
    ]
    live_starts: dict[str, list[float]] = {}
    for entry in live.run(works, until=10_000).history:
        if entry.what == timed_jobs.BOUND:
            live_starts.setdefault(entry.work, []).append(entry.at)
    first = {name: float(starts[0]) for name, starts in live_starts.items()}
    starts = {name: log.rows[name].first_start_s for name in first}
    assert len(starts) == len(jobs)
    assert first == pytest.approx(starts, abs=20)
    again = {name: len(times) - 1 for name, times in live_starts.items()}
    assert again == {name: log.rows[name].interruptions for name in first}
    assert sum(again.values()) == evictions


def test_the_command_prints_the_figures(tmp_path: Path) -> None:
    jobs, fleet_file, rows = (tmp_path / name for name in ("jobs.csv", "fleet.yaml", "rows.csv"))
    jobs.write_text(HEADER + "a,0,600,4,\nb,60,100,2,\n")
    pool = "{name: node, count: 1, gpu: H100-SXM5-80GB, gpusPerNode: 4}"
    fleet_file.write_text(f"name: f\npools: [{pool}]\n")
    arguments = ["run", "--jobs", str(jobs), "--fleet", str(fleet_file), "--rows", str(rows)]
    result = CliRunner().invoke(sim_command.group, arguments)
    assert result.exit_code == 0, result.output
    assert "waiting: mean 270.0 s, median 0 s, p95 540 s" in result.output
    assert len(rows.read_text().splitlines()) == 3


def test_a_queue_that_the_study_lacks_is_refused(tmp_path: Path) -> None:
    jobs, fleet_file = tmp_path / "jobs.csv", tmp_path / "fleet.yaml"
    jobs.write_text(HEADER + "a,0,600,4,vision\n")
    fleet_file.write_text("name: f\npools: [{name: node, count: 1, gpu: H100-SXM5-80GB}]\n")
    arguments = ["run", "--jobs", str(jobs), "--fleet", str(fleet_file)]
    result = CliRunner().invoke(sim_command.group, arguments)
    assert 'job a: no queue "vision"' in str(result.exception)


def test_without_promises_later_work_delays_a_job_that_needs_more_room() -> None:
    text = "first,0,100,3,\nwide,1,100,4,\nlater,2,500,1,\n"
    held = run(text, predicts_runtimes=True)
    assert (held.rows["wide"].first_start_s or 0) < 200
    unheld = run(text, predicts_runtimes=True, promises=0)
    assert unheld.rows["wide"].first_start_s == 502

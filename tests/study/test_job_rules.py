"""Queue policies on small lists of jobs: who starts when, who is evicted, and never more GPUs than there are."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from dovetail import errors
from dovetail.cli.answers import sim_command
from dovetail.study.queueing import (
    job_list,
    job_log,
    job_rules,
    past_runtimes,
    philly_files,
    rule_run,
    study_file,
)

QUEUES = (study_file.StudyQueue(name="a", quota=4), study_file.StudyQueue(name="b", quota=4))


def job(name: str, at: int, seconds: int, gpus: int, queue: str = "a") -> job_list.Job:
    return job_list.Job(
        name=name, submit_seconds=at, duration_seconds=seconds, gpus=gpus, pods=1, queue=queue
    )


def run(policy: str, *jobs: job_list.Job, nodes: tuple[int, ...] = (4, 4)) -> job_log.Log:
    study = study_file.Study(queues=QUEUES, checkpoint_seconds=10)
    return rule_run.RuleRun(nodes, jobs, rule=job_rules.named(policy), study=study).run()


def starts(log: job_log.Log) -> dict[str, int | None]:
    return {row.name: row.first_start_s for row in log.rows.values()}


BLOCKED = (
    job("long", 0, 1000, 4),
    job("head", 1, 100, 4),
    job("wide", 2, 50, 4),
    job("s", 3, 9, 1),
)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("fifo", {"long": 0, "head": 1, "wide": 101, "s": 151}),
        ("pooled", {"long": 0, "head": 1, "wide": 101, "s": 151}),
        ("sjf", {"long": 0, "head": 1, "wide": 110, "s": 101}),
        ("partitions", {"long": 0, "head": 1000, "wide": 1100, "s": 1150}),
    ],
)
def test_each_order_starts_the_same_jobs_at_its_own_times(
    policy: str, expected: dict[str, int]
) -> None:
    assert starts(run(policy, *BLOCKED)) == expected


def test_a_strict_queue_leaves_free_gpus_unused_and_backfill_does_not() -> None:
    jobs = (job("first", 0, 100, 3), job("wide", 1, 100, 4), job("small", 2, 10, 1))
    assert starts(run("fifo", *jobs, nodes=(4,)))["small"] == 200
    assert starts(run("pooled", *jobs, nodes=(4,)))["small"] == 2


def test_a_reservation_keeps_long_jobs_from_delaying_the_first() -> None:
    # Without any past, jobs are expected to take an hour: a later one would outlast `first`.
    jobs = (job("first", 0, 100, 3), job("wide", 1, 100, 4), job("later", 2, 500, 1))
    assert starts(run("backfill", *jobs, nodes=(4,))) == {"first": 0, "wide": 100, "later": 200}
    assert starts(run("pooled", *jobs, nodes=(4,)))["wide"] == 502


@pytest.mark.parametrize("policy", ["kueue", "kai"])
def test_an_owner_takes_its_quota_back_and_the_borrower_goes_on_later(policy: str) -> None:
    jobs = (job("own", 0, 500, 4), job("lent", 1, 500, 4), job("owner", 61, 100, 4, "b"))
    log = run(policy, *jobs)
    assert starts(log)["owner"] == 61
    assert log.interruptions == {job_log.EVICTED: 1}
    # 60 of 500 s were saved.
    assert log.rows["lent"].end_s == 161 + 440
    assert starts(run("pooled", *jobs))["owner"] == 500


def test_a_job_beyond_its_quota_evicts_no_borrower() -> None:
    jobs = (job("own", 0, 500, 4), job("lent", 1, 500, 4), job("big", 61, 100, 8, "b"))
    wide = [*jobs[:2], msgspec.structs.replace(jobs[2], pods=2)]
    assert run("kueue", *wide).interruptions == {}


def test_little_service_evicts_long_service() -> None:
    served = job_rules.TIRESIAS_GPU_SECONDS // 4 + 1
    log = run("tiresias", job("old", 0, 90_000, 4), job("new", served, 60, 4), nodes=(4,))
    assert starts(log)["new"] == served
    assert log.rows["old"].interruptions == 1


def test_predictions_know_ended_jobs_only() -> None:
    past = past_runtimes.PastRuntimes()
    assert past.predict(job("x", 0, 7, 1)) == past_runtimes.UNKNOWN_SECONDS
    for number in range(past_runtimes.FEWEST):
        past.add(job(f"j{number}", 0, 100 + number, 1))
    assert past.predict(job("x", 0, 7, 1)) == 102
    assert past.predict(job("y", 0, 7, 2, "b")) == 102  # nothing of its size: all of them


SHAPES = st.tuples(
    st.integers(0, 200), st.integers(1, 99), st.integers(1, 4), st.sampled_from("ab")
)


@given(shapes=st.lists(SHAPES, min_size=1, max_size=25), policy=st.sampled_from([*job_rules.RULES]))
def test_no_rule_uses_more_gpus_than_there_are_and_all_jobs_end(
    shapes: list[tuple[int, int, int, str]], policy: str
) -> None:
    ordered = sorted(shapes)
    log = run(policy, *(job(f"j{number}", *shape) for number, shape in enumerate(ordered)))
    assert log.ended == len(shapes)
    changes = sorted(
        change for start, end, gpus, _ in log.runs for change in ((start, gpus), (end, -gpus))
    )
    used = 0
    for _, change in changes:
        used += change
        assert used <= 8


def test_a_wrong_policy_lists_all() -> None:
    with pytest.raises(errors.NotFound, match=r"there are: fifo, pooled.*dovetail"):
        job_rules.named("best")


def test_philly_runs_its_window_and_learns_from_what_ended_before(tmp_path: Path) -> None:
    _write(tmp_path / "philly_vc_nodes.csv.gz", ["vc,node num", "a,2", "b,1"])
    head = "vc,app_id,submit_s,num_gpus,service_gpu_s,model_name,scaling_ratio,est_duration_s,est_submit"
    before = [f"a,{number},0,1,0,m,1,{600 + number},2017-09-01 00:00:00" for number in range(5)]
    window = ["a,7,0,12,0,m,1,50,2017-10-01 00:01:00", "b,8,0,1,0,m,1,,2017-10-02 00:00:00"]
    _write(tmp_path / "philly_pcs.csv.gz", [head, *before, *window])
    trace = philly_files.read(tmp_path, scale=1)
    assert [(item.submit_seconds, item.gpus, item.pods) for item in trace.jobs] == [(60, 12, 2)]
    assert trace.left_out == 1
    assert [queue.quota for queue in trace.study.queues] == [16, 8]
    assert trace.past.predict(job("x", 0, 1, 1)) == 602
    arguments = ["run", "--trace", "philly", "--traces", str(tmp_path), "--policy", "kueue"]
    result = CliRunner().invoke(sim_command.group, arguments)
    assert "1 jobs on 24 GPUs, policy kueue" in result.output


def test_a_folder_without_the_trace_says_where_it_comes_from(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFound, match=r"philly_pcs.*TuftsNATLab/PCS.*DOVETAIL_TRACES"):
        philly_files.read(tmp_path, scale=1)


def _write(path: Path, lines: list[str]) -> None:
    with gzip.open(path, "wt", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows(line.split(",") for line in lines)

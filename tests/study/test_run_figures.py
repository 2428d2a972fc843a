"""Figures of runs of jobs on stories small enough to work out by hand, and bounds that no run may beat."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.sim.fleet import fleet_spec
from dovetail.study.queueing import (
    alone_times,
    job_list,
    job_log,
    job_rules,
    past_runtimes,
    quota_sweep,
    rule_run,
    run_figures,
    study_file,
    study_runs,
    usage_curve,
    waiting_bound,
)

QUOTAS = {"a": 4, "b": 4}
STUDY = study_file.Study(
    queues=tuple(study_file.StudyQueue(name=name, quota=quota) for name, quota in QUOTAS.items()),
    checkpoint_seconds=10,
)


def job(name: str, at: int, seconds: int, gpus: int, queue: str = "a") -> job_list.Job:
    return job_list.Job(
        name=name, submit_seconds=at, duration_seconds=seconds, gpus=gpus, pods=1, queue=queue
    )


def figures_of(policy: str, *jobs: job_list.Job) -> run_figures.Figures:
    rule = job_rules.named(policy)
    log = rule_run.RuleRun((4, 4), jobs, rule=rule, study=STUDY).run()
    alone = alone_times.alone(jobs, study=STUDY, quotas=QUOTAS, gpus_per_node=4)
    return run_figures.figures(log, gpus=8, quotas=QUOTAS, alone=alone)


LENT = (job("own", 0, 3600, 4), job("lent", 0, 3600, 4), job("owner", 600, 100, 2, "b"))


def test_a_queue_is_below_its_quota_while_lent_gpus_keep_fitting_work_waiting() -> None:
    figures = figures_of("pooled", *LENT)
    queue = figures.queues["b"]
    assert (queue.below_quota_hours, queue.below_quota_gpu_hours) == (0.83, 1.67)  # 3000 s, 2 GPUs
    assert figures.queues["a"].below_quota_gpu_hours == 0
    reclaimed = figures_of("kueue", *LENT)
    assert (reclaimed.below_quota_gpu_hours, reclaimed.evictions) == (0, 1)
    assert reclaimed.queues["a"].evictions == 1


def test_a_job_larger_than_the_rest_of_the_quota_does_not_count() -> None:
    runs = [job_log.Span(0, 100, 3, "a")]
    waits = [job_log.Span(0, 50, 2, "a"), job_log.Span(60, 70, 1, "a")]
    assert quota_sweep.shortfalls(runs, waits, {"a": 4})["a"] == (10, 10)


def test_time_alone_is_that_on_a_partition_of_the_quota() -> None:
    figures = figures_of("pooled", *LENT)
    # Alone the second of queue a would wait for the first: 3600 and 7200 instead of 3600 each.
    assert figures.queues["a"].finish_time_mean == pytest.approx(7200 / 10800, abs=1e-3)
    # And that of b would start at once, instead of after 3000 s.
    assert figures.queues["b"].finish_time_mean == 31
    assert figures.slower_than_alone_pct == 33.33


def test_idle_gpus_of_no_use_are_those_of_nodes_too_full_for_any_waiting_pod() -> None:
    rule, study = job_rules.named("pooled"), study_file.Study()
    jobs = (job("x", 0, 3600, 3), job("y", 0, 7200, 3), job("z", 0, 3600, 4))
    log = rule_run.RuleRun((4, 4), jobs, rule=rule, study=study).run()
    figures = run_figures.figures(log, gpus=8, quotas={})
    assert figures.unusable_gpu_hours == 2  # one GPU on each node while z waits for an hour
    assert figures.idle_while_waiting_gpu_hours == 2


def test_averages_of_parts_hold_the_integral_of_a_curve() -> None:
    curve = usage_curve.Curve()
    for second, used in ((0, 2), (30, 8), (70, 0), (100, 0)):
        curve.note(second, usage_curve.Level(used, 0, 0, 0))
    assert curve.averages(lambda level: level.used_gpus, until=100, parts=4) == [2, 6.8, 6.4, 0]
    assert curve.averages(lambda level: level.used_gpus, until=50, parts=1) == [4.4]


def test_the_bound_of_jobs_that_need_all_gpus_is_what_the_shortest_first_reaches() -> None:
    jobs = (job("long", 0, 100, 8), job("short", 0, 10, 8))
    # 10 and 110 seconds after submission: no schedule ends them earlier.
    assert waiting_bound.bound(jobs, 8) == (60, 5)


SHAPES = st.tuples(st.integers(0, 200), st.integers(1, 99), st.integers(1, 4), st.just("a"))


@given(
    shapes=st.lists(SHAPES, min_size=1, max_size=20),
    policy=st.sampled_from(["fifo", "sjf", "pooled", "tiresias"]),
)
def test_no_run_waits_less_than_the_bound(
    shapes: list[tuple[int, int, int, str]], policy: str
) -> None:
    jobs = [job(f"j{number}", *shape) for number, shape in enumerate(sorted(shapes))]
    log = rule_run.RuleRun((4,), jobs, rule=job_rules.named(policy), study=study_file.Study()).run()
    figures = run_figures.figures(log, gpus=4, quotas={})
    bound = waiting_bound.bound(jobs, 4)
    assert figures.waiting_mean_s is not None
    assert figures.jct_mean_s is not None
    assert figures.waiting_mean_s >= bound.waiting_s - 0.01
    assert figures.jct_mean_s >= bound.jct_s - 0.01


def test_policies_do_not_learn_from_each_others_runs() -> None:
    pool = fleet_spec.Pool(name="n", count=2, gpu="H100-SXM5-80GB", gpus_per_node=4)
    fleet = fleet_spec.Fleet(name="f", pools=(pool,))
    jobs = tuple(job(f"j{number}", number, 50 + number, 3) for number in range(20))
    study = study_runs.StudyInput("s", jobs, fleet, STUDY, past_runtimes.PastRuntimes())
    ends = [
        [row.end_s for row in study_runs.run(study, policy="qssf").rows.values()] for _ in range(2)
    ]
    assert ends[0] == ends[1]
    assert study.past.predict(jobs[0]) == past_runtimes.UNKNOWN_SECONDS

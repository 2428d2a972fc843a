"""Whose turn it is within a queue: the more important, then the older, and of those as old as counts the larger."""

from __future__ import annotations

import datetime
import itertools
import random

import pytest

from dovetail.model import gangs, policy
from dovetail.schedule.gang import jobs
from dovetail.schedule.queue import amounts, queue_order
from tests.batch import plan_checks, random_clusters, simulated_cluster
from tests.batch.simulated_cluster import Ask, Cluster
from tests.batch.test_long_runs import fits_alone
from tests.schedule import build

DAY = 86_400
ENDLESS = policy.Policy(batch=policy.Batch(age_saturation_seconds=0))
QUICK = policy.Policy(batch=policy.Batch(age_saturation_seconds=600))


def line(*, days: int, rules: policy.Policy = policy.DEFAULT, priority: int = 0) -> Cluster:
    """Four GPUs that are taken, a job that wants one of them, a day later one that wants them all; then days pass."""
    cluster = Cluster(rules=rules)
    cluster.put(
        build.node("n0"), build.gpu_slice("n0", 4), simulated_cluster.queue("lab", gpu=(4,))
    )
    cluster.submit(
        simulated_cluster.gang("holder", Ask(gpus=4), queue="lab", runtime=(days + 1) * DAY)
    )
    cluster.settle()
    cluster.advance(1)
    cluster.submit(
        simulated_cluster.gang("small", Ask(gpus=1), queue="lab", arrives=1, priority=priority)
    )
    cluster.advance(DAY)
    cluster.submit(simulated_cluster.gang("large", Ask(gpus=4), queue="lab", arrives=DAY))
    cluster.settle()
    cluster.advance((days + 1) * DAY)  # the holder ends
    return cluster


def test_the_older_job_goes_first_while_age_counts() -> None:
    cluster = line(days=5)
    cluster.settle()
    assert cluster.running("gang/small")
    assert not cluster.running("gang/large")


def test_of_two_that_are_as_old_as_counts_the_larger_goes_first() -> None:
    cluster = line(days=7)
    assert [placement.pod.name.partition("-")[0] for placement in cluster.decided().placements] == [
        "large"
    ]
    cluster.settle()
    assert not cluster.running("gang/small")


def test_a_gang_of_saturated_age_goes_before_a_larger_younger_one() -> None:
    cluster = line(days=6)  # the small one is seven days old by then, the large one six
    cluster.settle()
    assert cluster.running("gang/small")


def test_age_never_outweighs_priority() -> None:
    cluster = line(days=30, priority=1)
    cluster.settle()
    assert cluster.running("gang/small")


def test_age_without_an_end() -> None:
    cluster = line(days=30, rules=ENDLESS)
    cluster.settle()
    assert cluster.running("gang/small")


def test_refusals_are_in_that_order() -> None:
    cluster = line(days=7)
    cluster.submit(simulated_cluster.gang("huge", Ask(gpus=8), queue="lab", arrives=8 * DAY))
    messages = [refusal.pod.name.partition("-")[0] for refusal in cluster.decided().refusals]
    assert messages == ["small", "huge"]
    cluster.advance(20 * DAY)
    assert [refusal.pod.name.partition("-")[0] for refusal in cluster.decided().refusals] == [
        "huge",
        "small",
    ]


# In general


def random_job(rng: random.Random, number: int, *, now: int) -> jobs.Job:
    """A job of a single pod; its age, priority and size are often those of other jobs."""
    work = simulated_cluster.gang(
        f"j{number}",
        arrives=now - rng.choice((0, 60, 3599, 3600, 3601, 9000)),
        priority=rng.choice((0, 0, 5)),
    )
    key = f"uid-{number}"
    job = jobs.job_of(work.gang, {key: (build.pod(f"p{number}"), gangs.DEFAULT_GROUP)}, queue="lab")
    size = rng.choice((1000, 1000, 4000))
    job.prices = lambda _: {amounts.GPU: size}
    return job


@pytest.mark.parametrize("seed", range(20))
def test_the_order_is_total_and_no_turn_of_the_clock_puts_a_younger_one_ahead(seed: int) -> None:
    rng = random.Random(seed)
    known = [random_job(rng, number, now=10_000) for number in range(12)]
    for item in known:
        item.is_aged = item.created <= simulated_cluster.EPOCH + datetime.timedelta(
            seconds=10_000 - 3600
        )
    keys = [queue_order.job_key(item) for item in known]
    assert len(set(keys)) == len(keys)
    for item, other in itertools.permutations(known, 2):
        if item.priority == other.priority and item.is_aged and not other.is_aged:
            assert queue_order.job_key(item) < queue_order.job_key(other)
    first = sorted(known, key=queue_order.job_key)
    rng.shuffle(known)
    assert sorted(known, key=queue_order.job_key) == first


def stream(seed: int) -> Cluster:
    """A queue whose small jobs come for hours, more than there is room for, and a few that need every GPU at once."""
    rng = random.Random(seed)
    cluster = Cluster(rules=QUICK)
    for index in range(2):
        cluster.put(build.node(f"n{index}"), build.gpu_slice(f"n{index}", 4))
    cluster.put(simulated_cluster.queue("lab", gpu=(8,)))
    for number in range(50):
        arrives = rng.randrange(DAY // 3)
        seconds = rng.choice((300, 1800, 7200))
        small = simulated_cluster.gang(
            f"s{number:03d}",
            Ask(gpus=rng.choice((1, 2, 4))),
            queue="lab",
            arrives=arrives,
            runtime=seconds,
        )
        cluster.expect(small)
    for number in range(3):
        arrives = rng.randrange(DAY // 6)
        cluster.expect(
            simulated_cluster.gang(
                f"large{number}", *(Ask(gpus=4),) * 2, queue="lab", arrives=arrives, runtime=1800
            )
        )
    return cluster


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_as_long_as_work_runs_out_every_gang_starts_and_ends(seed: int) -> None:
    cluster = stream(seed)
    cluster.judge = plan_checks.faults
    cluster.live()
    assert len(cluster.ended) == 53


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_whatever_can_start_has_its_turn_where_age_soon_counts_no_more(seed: int) -> None:
    cluster = random_clusters.seeded(seed, random_clusters.LONG)
    cluster.policy = QUICK
    cluster.judge = plan_checks.faults
    cluster.live()
    left = cluster.works.keys() - cluster.ended.keys()
    assert not [name for name in sorted(left) if fits_alone(cluster, name)]

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
    found = Cluster(rules=rules)
    found.put(build.node("n0"), build.gpu_slice("n0", 4), simulated_cluster.queue("lab", gpu=(4,)))
    found.submit(
        simulated_cluster.gang("holder", Ask(gpus=4), queue="lab", runtime=(days + 1) * DAY)
    )
    found.settle()
    found.advance(1)
    found.submit(
        simulated_cluster.gang("small", Ask(gpus=1), queue="lab", arrives=1, priority=priority)
    )
    found.advance(DAY)
    found.submit(simulated_cluster.gang("large", Ask(gpus=4), queue="lab", arrives=DAY))
    found.settle()
    found.advance((days + 1) * DAY)  # the holder ends
    return found


def test_the_older_job_goes_first_while_age_counts() -> None:
    found = line(days=5)
    found.settle()
    assert found.running("gang/small")
    assert not found.running("gang/large")


def test_of_two_that_are_as_old_as_counts_the_larger_goes_first() -> None:
    found = line(days=7)
    assert [one.pod.name.partition("-")[0] for one in found.decided().placements] == ["large"]
    found.settle()
    assert not found.running("gang/small")


def test_a_gang_of_saturated_age_goes_before_a_larger_younger_one() -> None:
    found = line(days=6)  # the small one is seven days old by then, the large one six
    found.settle()
    assert found.running("gang/small")


def test_age_never_outweighs_priority() -> None:
    found = line(days=30, priority=1)
    found.settle()
    assert found.running("gang/small")


def test_age_without_an_end() -> None:
    found = line(days=30, rules=ENDLESS)
    found.settle()
    assert found.running("gang/small")


def test_refusals_are_in_that_order() -> None:
    found = line(days=7)
    found.submit(simulated_cluster.gang("huge", Ask(gpus=8), queue="lab", arrives=8 * DAY))
    told = [one.pod.name.partition("-")[0] for one in found.decided().refusals]
    assert told == ["small", "huge"]
    found.advance(20 * DAY)
    assert [one.pod.name.partition("-")[0] for one in found.decided().refusals] == ["huge", "small"]


# In general


def told(rng: random.Random, number: int, *, now: int) -> jobs.Job:
    """A job of a pod alone: its age, priority and size are often those of others."""
    work = simulated_cluster.gang(
        f"j{number}",
        arrives=now - rng.choice((0, 60, 3599, 3600, 3601, 9000)),
        priority=rng.choice((0, 0, 5)),
    )
    key = f"uid-{number}"
    made = jobs.job_of(
        work.gang, {key: (build.pod(f"p{number}"), gangs.DEFAULT_GROUP)}, queue="lab"
    )
    size = rng.choice((1000, 1000, 4000))
    made.prices = lambda _: {amounts.GPU: size}
    return made


@pytest.mark.parametrize("seed", range(20))
def test_the_order_is_total_and_no_turn_of_the_clock_puts_a_younger_one_ahead(seed: int) -> None:
    rng = random.Random(seed)
    known = [told(rng, number, now=10_000) for number in range(12)]
    for one in known:
        one.is_aged = one.created <= simulated_cluster.EPOCH + datetime.timedelta(
            seconds=10_000 - 3600
        )
    keys = [queue_order.job_key(one) for one in known]
    assert len(set(keys)) == len(keys)
    for one, other in itertools.permutations(known, 2):
        if one.priority == other.priority and one.is_aged and not other.is_aged:
            assert queue_order.job_key(one) < queue_order.job_key(other)
    first = sorted(known, key=queue_order.job_key)
    rng.shuffle(known)
    assert sorted(known, key=queue_order.job_key) == first


def stream(seed: int) -> Cluster:
    """A queue whose small jobs come for hours, more than there is room for, and a few that need every GPU at once."""
    rng = random.Random(seed)
    found = Cluster(rules=QUICK)
    for index in range(2):
        found.put(build.node(f"n{index}"), build.gpu_slice(f"n{index}", 4))
    found.put(simulated_cluster.queue("lab", gpu=(8,)))
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
        found.expect(small)
    for number in range(3):
        arrives = rng.randrange(DAY // 6)
        found.expect(
            simulated_cluster.gang(
                f"large{number}", *(Ask(gpus=4),) * 2, queue="lab", arrives=arrives, runtime=1800
            )
        )
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_as_long_as_work_runs_out_every_gang_starts_and_ends(seed: int) -> None:
    found = stream(seed)
    found.judge = plan_checks.faults
    found.live()
    assert len(found.ended) == 53


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_whatever_can_start_has_its_turn_where_age_soon_counts_no_more(seed: int) -> None:
    found = random_clusters.seeded(seed, random_clusters.LONG)
    found.policy = QUICK
    found.judge = plan_checks.faults
    found.live()
    left = found.works.keys() - found.ended.keys()
    assert not [name for name in sorted(left) if fits_alone(found, name)]

"""Caches between decisions, and for equal pods, never change a plan with queues."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import msgspec
import pytest

from dovetail.model import plan, policy
from dovetail.schedule import decide, session
from dovetail.schedule.gang import job_cache
from dovetail.schedule.gang.jobs import Job
from dovetail.schedule.queue import accounts, fair_share, queue_order
from dovetail.world.events import Changed, Deleted
from dovetail.world.world import World
from tests.batch import random_clusters, simulated_cluster
from tests.batch.simulated_cluster import Ask, Cluster
from tests.schedule import build


def without_caches(cluster: Cluster) -> plan.Plan:
    """The plan of a decision that uses no cache."""
    return decide.decide(
        cluster.world, msgspec.structs.replace(cluster.policy, memo=False), cluster.now
    )


def in_a_new_world(cluster: Cluster) -> plan.Plan:
    """What is decided about a cluster that is seen for the first time."""
    world = World()
    for fact in cluster.facts():
        world.apply(Changed(fact))
    world.budget_protection.put(cluster.budgets())
    return decide.decide(world, cluster.policy, cluster.now)


def disagreements(cluster: Cluster, done: plan.Plan) -> list[str]:
    """The ways of deciding that give another plan. A new World does not know of reserved room."""
    others = {"without caches": without_caches(cluster)} | (
        {} if cluster.is_keeping else {"in a new world": in_a_new_world(cluster)}
    )
    return [f"{who} at {cluster.second} s" for who, other in others.items() if other != done]


@pytest.mark.parametrize("seed", range(12))
def test_a_life_is_the_same_for_those_who_remember_nothing(seed: int) -> None:
    cluster = random_clusters.seeded(seed, random_clusters.LONG)
    cluster.judge = disagreements
    cluster.live()
    assert cluster.turn > 5


@pytest.mark.parametrize("seed", range(20))
def test_pods_in_a_row_go_where_each_would_go_alone(seed: int) -> None:
    """Kinds take turns in no order, on nodes that are filled unevenly, so that classes of nodes come and go."""
    rng = random.Random(seed)
    cluster = Cluster(
        [
            simulated_cluster.topology(
                random_clusters.TOPOLOGY, random_clusters.ZONE, random_clusters.RACK
            )
        ]
    )
    for index in range(rng.randint(2, 5)):
        name = f"n{index}"
        cluster.put(build.node(name, allocatable={"cpu": str(rng.choice((6, 16)))}))
        match rng.choice(("whole", "whole", "shared", "part")) if index else "whole":
            case "whole":
                cluster.put(build.gpu_slice(name, rng.choice((2, 4))))
            case "shared":
                cluster.put(simulated_cluster.shared_pool(name, 2))
            case _:
                cluster.put(*simulated_cluster.parted_pool(name))
    for age, name in enumerate("abc"):
        cluster.put(
            simulated_cluster.queue(
                name, age=age, gpu=(rng.choice((1, 4)), rng.choice((None, None, 6)))
            )
        )
    kinds = (Ask(gpus=1), Ask(gpus=1, cpu=2), Ask(share_gib=6), Ask(part=1), Ask(cpu=1))
    row = (kinds[0], *rng.sample(kinds, 2))
    for number in range(24):
        cluster.submit(
            simulated_cluster.gang(
                f"j{number:02d}", rng.choice(row), queue=rng.choice("abc"), arrives=number
            )
        )
    done = cluster.decided()
    assert len(done.placements) > 1
    assert without_caches(cluster) == done
    assert cluster.decided() == done


def test_jobs_are_the_same_objects_until_something_about_them_changes() -> None:
    cluster = Cluster([build.node("n0"), build.gpu_slice("n0", 4)])
    cluster.put(simulated_cluster.queue("a", gpu=(4,)))
    cluster.submit(
        *(simulated_cluster.gang(f"j{number}", Ask(gpus=1), queue="a") for number in range(3))
    )
    kept = job_cache.of(cluster.world, cluster.policy)
    first = dict(kept.jobs(cluster.world, ("a",)))
    cluster.decided()
    assert all(
        one is first[name] and not one.is_changed
        for name, one in kept.jobs(cluster.world, ("a",)).items()
    )
    (pod,) = cluster.members("gang/j1")
    cluster.world.apply(Changed(msgspec.structs.replace(pod)))
    again = kept.jobs(cluster.world, ("a",))
    assert [name for name in again if again[name] is not first[name]] == ["default/gang/j1"]


def test_a_queue_that_is_closed_is_closed_for_those_who_are_remembered() -> None:
    cluster = Cluster([build.node("n0"), build.gpu_slice("n0", 4)])
    queue = simulated_cluster.queue("a", gpu=(4,))
    cluster.put(queue, simulated_cluster.queue("b", gpu=(4,)))
    cluster.submit(simulated_cluster.gang("j", Ask(gpus=1), queue="a"))
    assert len(cluster.decided().placements) == 1
    cluster.world.apply(Deleted(queue))
    assert not cluster.decided().placements
    cluster.world.apply(Changed(queue))
    assert len(cluster.decided().placements) == 1


def test_what_is_remembered_of_a_world_goes_with_it() -> None:
    cluster = Cluster([build.node("n0"), build.gpu_slice("n0", 4)])
    cluster.put(simulated_cluster.queue("a", gpu=(4,)))
    cluster.submit(simulated_cluster.gang("j", Ask(gpus=1), queue="a"))
    cluster.decided()
    assert all(
        job.prices is None
        for job in job_cache.of(cluster.world, cluster.policy).jobs(cluster.world, ("a",)).values()
    )


def test_a_cached_job_is_priced_again() -> None:
    cluster = Cluster([build.node("n0")])
    cluster.put(simulated_cluster.queue("a", gpu=(4,)))
    cluster.submit(simulated_cluster.gang("j", Ask(gpus=1), queue="a"))
    (job,) = job_cache.of(cluster.world, cluster.policy).jobs(cluster.world, ("a",)).values()
    for price in (1000, 500):
        job.set_prices(lambda _, price=price: {"gpu": price})  # type: ignore[misc]
        assert job.next_cost() == {"gpu": price}


# Whose turn it is


def plainly(line: list[Job], back: dict[str, int]) -> Iterator[str]:
    """The jobs of one queue, each time the first of all that are left."""
    left = list(line)
    while left:
        job = min(left, key=queue_order.job_key)
        left.remove(job)
        yield job.id
        if back.get(job.id, 0):
            back[job.id] -= 1
            left.append(job)


@pytest.mark.parametrize("seed", range(20))
def test_a_line_is_in_order_however_often_jobs_come_back(seed: int) -> None:
    rng = random.Random(seed)
    cluster = Cluster([build.node("n0")])
    cluster.put(simulated_cluster.queue("a", gpu=(4,)))
    works = [
        simulated_cluster.gang(
            f"j{number:02d}",
            Ask(),
            queue="a",
            priority=rng.choice((0, 50)),
            arrives=rng.randint(0, 9),
        )
        for number in range(12)
    ]
    cluster.submit(*works)
    jobs = [*job_cache.of(cluster.world, cluster.policy).jobs(cluster.world, ("a",)).values()]
    for job in jobs:
        job.set_prices(lambda _: {"cpu": 1000})
    book = accounts.Accounts(cluster.world.queues, enforces=True, capacity={"cpu": 10**6})
    for account in book.by_name.values():
        account.fair = dict.fromkeys(book.resources, 0.0)
        account.allocatable = dict.fromkeys(book.resources, 1.0)
    back = {job.id: rng.randint(0, 2) for job in jobs}
    expected = [*plainly(jobs, dict(back))]
    line = queue_order.JobQueue(book, jobs)
    seen = []
    for job in line:
        seen.append(job.id)
        if back[job.id]:
            back[job.id] -= 1
            line.put_back(job)
    assert seen == expected


class Plain(queue_order.VictimOrder):
    """The same order, with every queue judged again each time."""

    def _last(self, siblings: Iterable[accounts.Account]) -> accounts.Account | None:
        judged = (self._keyed(sibling) for sibling in siblings)
        result = [(key, leaf) for key, leaf in judged if key is not None and leaf is not None]
        return max(result, key=lambda item: item[0])[1] if result else None


@pytest.mark.parametrize("seed", range(20))
def test_victims_come_in_the_order_of_their_queues(seed: int) -> None:
    cluster = random_clusters.seeded(seed, random_clusters.MEDIUM)
    with cluster.world.trial():
        scope = session.Scope()
        made = session.Session(cluster.world, cluster.policy, cluster.now, policy.UNLIMITED, scope)
        stage = made.transaction
        fair_share.divide(stage.accounts)
        quick, plain = (
            [
                (job.id, ids)
                for job, ids in kind(stage.accounts, stage.running_jobs(), cost=stage.cost_of)
            ]
            for kind in (queue_order.VictimOrder, Plain)
        )
    assert quick == plain
    assert quick

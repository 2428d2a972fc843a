"""What holds over time: no circular evictions, every gang gets its turn, quotas are met, and then it is quiet.

First on a plain World that is driven by hand, then on the live loops with their clock warped.
"""

from __future__ import annotations

import collections
import itertools
import random
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from dovetail.kubetypes.custom import queues
from dovetail.model import plan, policy
from dovetail.sim import timed_jobs, virtual_run
from dovetail.sim.fleet import fleet_spec
from tests.batch import plan_checks, random_clusters, simulated_cluster
from tests.batch.simulated_cluster import Ask, Cluster, Happened
from tests.schedule import build

DAY = 86_400.0
Relation = dict[str, set[str]]  # who made whom yield


def ranks(relation: Relation) -> dict[str, int]:
    """A number for every gang, higher than those of all gangs that yielded to it. Raises on a circle."""
    result: dict[str, int] = {}

    def rank(name: str, above: tuple[str, ...]) -> int:
        assert name not in above, f"they yield in a circle: {' > '.join((*above, name))}"
        if name not in result:
            lower = [rank(other, (*above, name)) for other in sorted(relation.get(name, ()))]
            result[name] = max(lower, default=-1) + 1
        return result[name]

    for name in sorted(relation):
        rank(name, ())
    return result


def yielding(evictions: Iterable[Happened]) -> Relation:
    """Who made whom lose its place; moving is not losing."""
    relation: Relation = collections.defaultdict(set)
    for eviction in evictions:
        if eviction.beneficiary and not eviction.is_move:
            relation[eviction.beneficiary].add(eviction.victim)
    return relation


def quiet_moments(cluster: Cluster) -> Iterator[tuple[int, collections.Counter[str]]]:
    """Whenever no pod is terminating or starting: how many evictions there were, and the waiting pods of each gang."""
    for _ in range(400):
        cluster.settle()
        if not cluster.is_leaving and not cluster.is_keeping:
            waiting = collections.Counter(
                cluster.seats[pod.metadata.uid][0] for pod in plan_checks.waiting(cluster)
            )
            yield len(cluster.evictions), waiting
        following = cluster.next_event()
        if following is None:
            return
        cluster.advance(following)
    raise AssertionError("it does not become quiet")


def potential(waiting: collections.Counter[str], rank: dict[str, int], base: int) -> int:
    """Falls with everything that starts, and with every eviction: who starts outweighs all that yielded to it."""
    return sum(count * base ** rank.get(name, 0) for name, count in waiting.items())


@pytest.mark.slow
@pytest.mark.parametrize("seed", [99, *range(100, 130)])
def test_while_nothing_comes_or_goes_evictions_run_out(seed: int) -> None:
    cluster = random_clusters.seeded(
        seed, random_clusters.MEDIUM if seed == 99 else random_clusters.SMALL
    )
    cluster.judge = plan_checks.faults
    moments = list(quiet_moments(cluster))
    rank = ranks(yielding(cluster.evictions))
    base = len(cluster.seats) + 1
    for (before, waited), (after, waits) in itertools.pairwise(moments):
        is_lower = potential(waits, rank, base) < potential(waited, rank, base)
        moved = all(
            eviction.is_move or not eviction.beneficiary
            for eviction in cluster.evictions[before:after]
        )
        assert is_lower or moved, cluster.evictions[before:after]


def fits_alone(cluster: Cluster, name: str) -> bool:
    """Whether work could ever start: it does where nothing else is."""
    alone = Cluster(cluster.facts_fixed())
    alone.submit(cluster.works[name]._replace(arrives=0))
    alone.world.budget_protection.put(cluster.budgets())
    alone.settle()
    return bool(alone.running(name))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [73, 238, *range(12)])
def test_whatever_can_start_has_its_turn_and_ends(seed: int) -> None:
    cluster = random_clusters.seeded(seed, random_clusters.LONG)
    cluster.judge = plan_checks.faults
    cluster.live()
    left = cluster.works.keys() - cluster.ended.keys()
    assert not [name for name in sorted(left) if fits_alone(cluster, name)]
    assert cluster.next_event() is None


# Quotas


def unmet(cluster: Cluster) -> Iterator[str]:
    """Single pods whose queue would stay within its quota, while other queues hold room beyond theirs.

    Only where queues are siblings and one resource counts, so that sums decide. And only pods that are next in their
    queue: a pod smaller than what its own queue starts first evicts no other.
    """
    held = plan_checks.charged(
        cluster, [pod.metadata.uid for name in cluster.works for pod in cluster.running(name)]
    )
    quota = {name: quota_of(queue) for name, queue in cluster.world.queues.items()}
    for name, work in cluster.works.items():
        queue, ask = work.gang.queue, work.asks[0][1]
        if len(work.asks) > 1 or name in cluster.ended or cluster.running(name) or not ask.gpus:
            continue
        if name != next_in(cluster, queue):
            continue
        if work.gang.topology is not None or work.gang.groups[0].topology is not None:
            continue
        if held.get(queue, 0) + plan_checks.price(ask) > quota[queue]:
            continue
        for node in cluster.world.nodes:
            if room(cluster, node, ask, held=held, quota=quota, queue=queue) >= ask.gpus:
                yield f"{name} of queue {queue} waits, though others hold {node} beyond their quotas"


def next_in(cluster: Cluster, queue: str) -> str:
    """The work of a queue that starts before all others that wait in it."""
    waiting = [
        n for n, one in cluster.works.items() if one.gang.queue == queue and n not in cluster.ended
    ]
    return min(
        (n for n in waiting if not cluster.running(n)),
        key=lambda n: (-(cluster.works[n].gang.priority or 0), n),
    )


def quota_of(queue: queues.Queue) -> float:
    share = queue.spec.resources["gpu"]
    if share.quota is None:
        return 0
    return (
        float("inf") if share.quota.nanos >= queues.UNLIMITED.nanos else share.quota.milli_value()
    )


def room(
    cluster: Cluster,
    node: str,
    ask: Ask,
    *,
    held: dict[str, int],
    quota: dict[str, float],
    queue: str,
) -> int:
    """GPUs of a node that are free, or held by lone preemptible pods of other queues as long as those exceed quota."""
    left = plan_checks.silicon(cluster, node) // plan_checks.MILLI
    cpu = cluster.world.nodes[node].status.allocatable["cpu"].milli_value() // plan_checks.MILLI
    spent = dict(held)
    for pod in cluster.world.pods.values():
        if pod.spec.node_name != node:
            continue
        work = cluster.works[cluster.seats[pod.metadata.uid][0]]
        other = plan_checks.ask_of(cluster, pod.metadata.uid)
        may_go = (
            len(work.asks) == 1 and not cluster.is_fixed(work.name) and work.gang.queue != queue
        )
        if may_go and other.gpus and spent.get(work.gang.queue, 0) > quota[work.gang.queue]:
            spent[work.gang.queue] -= plan_checks.price(other)
            continue
        left -= other.gpus
        cpu -= other.cpu
    return left if cpu >= ask.cpu else 0


def flat(seed: int, *, is_fixed: float = 0.0) -> Cluster:
    """Queues side by side with quotas for all GPUs, and pods alone that fill the cluster, most of them of one queue.

    So large a part of the pods cannot be made to yield: nothing makes them again, or a budget is over them.
    """
    rng = random.Random(seed)
    cluster = Cluster()
    gpus = 0
    for index in range(rng.randint(1, 4)):
        count = rng.choice((2, 4))
        gpus += count
        cluster.put(build.node(f"n{index}"), build.gpu_slice(f"n{index}", count))
    names = [f"q{index}" for index in range(rng.randint(2, 4))]
    for age, name in enumerate(names):
        cluster.put(
            simulated_cluster.queue(
                name, age=age, gpu=(gpus // len(names), None, rng.choice((0, 1, 2)))
            )
        )
    for number in range(2 * gpus):
        queue = names[0] if number < gpus else rng.choice(names)
        ask = Ask(gpus=rng.choice((1, 1, 2)))
        facts: dict[str, Any] = {"queue": queue, "priority": rng.choice((0, 50)), "arrives": number}
        work = simulated_cluster.gang(f"j{number:02d}", ask, **facts)
        if is_fixed and rng.random() < is_fixed:
            if rng.random() < 0.5:
                cluster.shield(work.name)
            else:
                work = simulated_cluster.gang(f"j{number:02d}", ask, is_recreated=False, **facts)
        cluster.submit(work)
        if number == gpus:
            cluster.settle()
    return cluster


@pytest.mark.parametrize("seed", range(12))
def test_no_queue_waits_below_its_quota_for_what_others_hold_beyond_theirs(seed: int) -> None:
    """Also where half of the pods are bare or under a budget: those start within their quota, and others give back."""
    cluster = flat(seed, is_fixed=0.5)
    cluster.judge = plan_checks.faults
    cluster.live()
    assert not [*unmet(cluster)]
    running = [pod.metadata.uid for name in cluster.works for pod in cluster.running(name)]
    fixed = plan_checks.charged(cluster, running, is_fixed=True)
    assert not [
        name for name, amount in fixed.items() if amount > quota_of(cluster.world.queues[name])
    ]


def full_of_one_queue() -> Cluster:
    """A node of three GPUs, all held by queue a; its quota is one GPU, as is that of queue b."""
    cluster = Cluster([build.node("n0"), build.gpu_slice("n0", 3)])
    cluster.put(simulated_cluster.queue("a", gpu=(1,)), simulated_cluster.queue("b", gpu=(1,)))
    names = ("a0", "a1", "a2")
    cluster.submit(*(simulated_cluster.gang(name, Ask(gpus=1), queue="a") for name in names))
    cluster.settle()
    assert all(cluster.running(f"gang/{name}") for name in names)
    return cluster


def test_the_judge_of_quotas_sees_one_that_is_not_met_until_the_scheduler_acts() -> None:
    cluster = full_of_one_queue()
    assert [*unmet(cluster)] == []  # queue b has no pods yet

    cluster.submit(simulated_cluster.gang("b0", Ask(gpus=1), queue="b"))
    assert [*unmet(cluster)] == [
        "gang/b0 of queue b waits, though others hold n0 beyond their quotas"
    ]

    cluster.live()
    assert cluster.running("gang/b0")
    assert [*unmet(cluster)] == []


@pytest.mark.parametrize(
    "arriving",
    [
        simulated_cluster.gang("b0", Ask(gpus=2), queue="b"),  # more than the quota of queue b
        simulated_cluster.gang(
            "b0", Ask(gpus=1), Ask(gpus=1), queue="b"
        ),  # a gang: the sums do not judge those
        simulated_cluster.gang("b0", Ask(cpu=1), queue="b"),  # no GPU
        simulated_cluster.gang("a9", Ask(gpus=1), queue="a"),  # queue a is beyond its quota itself
    ],
    ids=["beyond its quota", "a gang", "no GPU", "of the queue that holds all"],
)
def test_the_judge_of_quotas_sees_none_where_waiting_is_right(
    arriving: simulated_cluster.Work,
) -> None:
    cluster = full_of_one_queue()
    cluster.submit(arriving)
    assert [*unmet(cluster)] == []


@pytest.mark.parametrize("seed", range(40))
def test_once_quiet_no_queue_is_below_its_quota_for_the_sake_of_one_above(seed: int) -> None:
    cluster = flat(seed)
    cluster.judge = plan_checks.faults
    cluster.live()
    assert not [*unmet(cluster)]


# On the live loops


def trees(rng: random.Random, gpus: int) -> list[dict[str, object]]:
    return [
        {
            "apiVersion": simulated_cluster.API,
            "kind": "Queue",
            "metadata": {"name": f"q{index}"},
            "spec": {
                "resources": {"gpu": {"quota": gpus // 3, "weight": rng.choice((1, 2))}},
                "namespaceSelector": {},
            },
        }
        for index in range(3)
    ]


def jobs(rng: random.Random) -> list[timed_jobs.Work]:
    """Work of half a day, more than there is room for at once."""
    return [
        timed_jobs.Work(
            name=f"j{number:02d}",
            at=float(rng.randrange(0, 20_000)),
            seconds=float(rng.choice((300, 1200, 5000))),
            pods=(count := rng.choice((1, 1, 2, 4))),
            least=rng.choice((count, 1)),
            gpus=rng.choice((1, 2)) if count == 4 else rng.choice((1, 2, 4)),
            queue=f"q{rng.randrange(3)}",
            priority=rng.choice((0, 0, 100)),
        )
        for number in range(24)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_live_loops_give_every_gang_a_turn_and_no_device_twice(seed: int) -> None:
    rng = random.Random(seed)
    machines = fleet_spec.Fleet(
        name="small",
        pools=(fleet_spec.Pool(name="n", count=3, gpu="H100-SXM5-80GB", gpus_per_node=4),),
    )
    plans: list[plan.Plan] = []
    warp = virtual_run.VirtualRun(
        machines,
        objects=trees(rng, 12),
        policy_=policy.DEFAULT,
        decided=lambda _, made, __: plans.append(made),
        grace_seconds=30,
    )
    works = jobs(rng)
    done = warp.run(works, until=3 * DAY)
    assert done.is_done, done.left
    assert_never_overfull(done.history, {work.name: work for work in works}, gpus=4)
    for decision in plans:
        gaining = {nomination.gang for nomination in decision.nominations} | {
            placement.gang for placement in decision.placements if placement.gang is not None
        }
        gaining |= {
            plan.GangRef(placement.pod.namespace, f"pod/{placement.pod.name}")
            for placement in decision.placements
        }
        for gone in decision.evictions:
            assert gone.beneficiary is None or gone.beneficiary in gaining, gone


def assert_never_overfull(
    history: list[timed_jobs.Entry], known: dict[str, timed_jobs.Work], *, gpus: int
) -> None:
    """Counts GPUs from what happened to pods alone."""
    on: dict[str, tuple[str, int]] = {}
    used: collections.Counter[str] = collections.Counter()
    for entry in history:
        if entry.what == timed_jobs.BOUND:
            assert entry.pod not in on, f"{entry.pod} was bound twice"
            on[entry.pod] = (entry.node, known[entry.work].gpus)
            used[entry.node] += known[entry.work].gpus
            assert used[entry.node] <= gpus, entry
        elif (
            entry.what in (timed_jobs.ENDED, timed_jobs.FAILED, timed_jobs.LOST) and entry.pod in on
        ):
            node, held = on.pop(entry.pod)
            used[node] -= held
    assert not on

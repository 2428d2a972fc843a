"""Invariants of every plan on random clusters, and the smallest stories of past violations."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings

from dovetail.model import gangs, plan, policy
from dovetail.schedule import decide
from dovetail.world import dump
from dovetail.world.events import Changed
from dovetail.world.world import World
from tests.batch import plan_checks, random_clusters, simulated_cluster
from tests.batch.simulated_cluster import Ask, Cluster
from tests.schedule import build
from tests.support import hashing

FORGETFUL = policy.Policy(memo=False)
SEEDS = range(40)
BUSY = (12, 27, 34)  # of medium ones, where much was found


def lived(cluster: Cluster) -> Cluster:
    """The cluster once it is quiet; every plan on the way is judged."""
    cluster.judge = plan_checks.faults
    cluster.live(most=200)
    return cluster


@pytest.mark.parametrize("seed", SEEDS)
def test_no_plan_breaks_anything(seed: int) -> None:
    lived(random_clusters.seeded(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(6), *BUSY])
def test_no_plan_breaks_anything_where_many_wait(seed: int) -> None:
    lived(random_clusters.seeded(seed, random_clusters.MEDIUM))


@settings(
    max_examples=30,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(random_clusters.drawn())
def test_no_plan_breaks_anything_however_it_is_drawn(found: Cluster) -> None:
    lived(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_decision_leaves_no_trace_and_is_the_same_again(seed: int) -> None:
    cluster = random_clusters.seeded(seed)
    before = dump.dump(cluster.world)
    first = cluster.decided()
    assert dump.dump(cluster.world) == before
    assert cluster.decided() == first
    assert decide.decide(cluster.world, FORGETFUL, cluster.now) == first


@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_events_does_not_matter(seed: int) -> None:
    cluster = random_clusters.seeded(seed)
    facts = cluster.facts()
    random.Random(seed).shuffle(facts)
    other = World()
    for fact in facts:
        other.apply(Changed(fact))
    other.budget_protection.put(cluster.budgets())
    assert decide.decide(other, cluster.policy, cluster.now) == cluster.decided()


@pytest.mark.parametrize("seed", range(20))
def test_a_quiet_cluster_stays_quiet(seed: int) -> None:
    cluster = random_clusters.seeded(seed)
    cluster.live()
    cluster.advance(cluster.second + 10**6)  # whatever waited for its time
    cluster.live()
    last = cluster.decided()
    assert not last.placements
    assert not last.evictions
    cluster.advance(cluster.second + 10**6)
    again = cluster.decided()
    assert (again.placements, again.evictions, again.nominations) == ((), (), ())


@pytest.mark.slow
def test_two_hash_seeds_give_one_plan() -> None:
    code = (
        "from tests.batch import random_clusters, test_plan_invariants as t\nfrom tests.support import hashing\n"
        "for seed in range(25): print(hashing.as_text(random_clusters.seeded(seed).decided()))\n"
        "for seed in t.BUSY: print(hashing.as_text(random_clusters.seeded(seed, random_clusters.MEDIUM).decided()))"
    )
    names = hashing.printed(code)
    assert len(names) == 1
    assert '"evictions":[{' in names.pop()


# The judge itself


def test_the_judge_sees_what_is_wrong() -> None:
    cluster = Cluster([build.node("n0", allocatable={"cpu": "4"}), build.gpu_slice("n0", 1)])
    cluster.put(simulated_cluster.queue("q", gpu=(0, 1)))
    cluster.submit(
        simulated_cluster.gang("a", Ask(gpus=1), Ask(gpus=1), queue="q", is_preemptible=False)
    )
    cluster.submit(
        simulated_cluster.gang("b", Ask(cpu=3), queue="q"),
        simulated_cluster.gang("c", Ask(cpu=3), queue="q"),
    )
    ids = {uid: name for uid, (name, _) in cluster.seats.items()}
    starts = tuple(
        plan.Placement(pod=plan.pod_ref(cluster.world.pods[uid]), node="n0")
        for uid, name in ids.items()
        if name != "gang/b"
    )
    [eviction] = [
        plan.Eviction(
            pod=plan.pod_ref(cluster.world.pods[uid]),
            gang=plan.GangRef("default", name),
            rule=plan.Rule.RECLAIMED,
            beneficiary=plan.GangRef("default", "gang/b"),
        )
        for uid, name in ids.items()
        if uid.startswith("uid-of-a-00")
    ]
    messages = " | ".join(
        plan_checks.faults(cluster, plan.Plan(placements=starts[:1], evictions=(eviction,)))
    )
    assert "starts with 1 pods, fewer than it needs" in messages
    assert "must not be made to yield" in messages
    assert "who gets nothing" in messages
    messages = " | ".join(plan_checks.faults(cluster, plan.Plan(placements=starts)))
    assert "node n0 holds 5 of its 4 cpus now" in messages
    assert "2000 of its 1000 thousandths" in messages
    assert "queue q gets 2000 of its limit 1000" in messages
    assert "2000 of non-preemptible work" in messages


# What once went wrong


def test_what_is_beyond_the_minimum_does_not_outlive_it() -> None:
    """A reclaim took the minimum of an elastic gang and let the pod beyond it stay."""
    cluster = Cluster()
    for name, gpus in (("n0", 4), ("n1", 4)):
        cluster.put(build.node(name, allocatable={"cpu": "6"}), build.gpu_slice(name, gpus))
    cluster.put(simulated_cluster.queue("a", gpu=(0,)), simulated_cluster.queue("b", gpu=(4,)))
    wide = simulated_cluster.gang(
        "wide",
        Ask(cpu=2, gpus=1),
        Ask(gpus=4),
        Ask(cpu=2, gpus=1),
        Ask(cpu=2, gpus=1),
        least=3,
        queue="a",
    )
    cluster.submit(wide)
    cluster.settle()
    assert len(cluster.running("gang/wide")) == 4
    cluster.submit(simulated_cluster.gang("due", Ask(gpus=4), queue="b"))
    lived(cluster)
    assert len(cluster.running("gang/due")) == 1
    assert len(cluster.running("gang/wide")) in (0, 3, 4)


def test_a_pod_that_moved_does_not_move_back_into_what_was_freed() -> None:
    """The moved pod came back, found its old place free, and took it from the pod it had made room for."""
    cluster = Cluster()
    cluster.put(build.node("n0", allocatable={"cpu": "8"}), build.gpu_slice("n0", 4))
    cluster.put(build.node("n1", allocatable={"cpu": "16"}), build.gpu_slice("n1", 4))
    cluster.submit(simulated_cluster.gang("small", Ask(cpu=4, gpus=1)))
    cluster.submit(simulated_cluster.gang("other", Ask(cpu=1, gpus=1)))
    [small], [other] = cluster.members("gang/small"), cluster.members("gang/other")
    for pod, node in ((small, "n1"), (other, "n0")):
        [key] = cluster.world.claims_used(pod)
        cluster.bind(
            pod.metadata.uid, node, {key: simulated_cluster.result(node, [("gpu-0", None)])}
        )
    cluster.submit(simulated_cluster.gang("large", Ask(cpu=1, gpus=4)))
    lived(cluster)
    assert len(cluster.running("gang/large")) == 1
    assert len(cluster.evictions) == 1
    assert cluster.evictions[0].is_move


def test_a_pod_that_moved_does_not_go_back_to_the_rack_it_left() -> None:
    """Its gang requires a rack, and of two racks the one it had left was the tighter."""
    cluster = Cluster([simulated_cluster.topology("place", "rack")])
    cluster.put(
        build.node("n0", labels={"rack": "0"}, allocatable={"cpu": "8"}), build.gpu_slice("n0", 4)
    )
    cluster.put(
        build.node("n1", labels={"rack": "1"}, allocatable={"cpu": "4"}), build.gpu_slice("n1", 8)
    )
    cluster.submit(
        simulated_cluster.gang(
            "small", Ask(gpus=1), topology=gangs.TopologyRequest(topology="place", required="rack")
        )
    )
    cluster.settle()
    assert cluster.nodes_of("gang/small") == ["n0"]
    cluster.submit(simulated_cluster.gang("large", Ask(cpu=6, gpus=4)))
    lived(cluster)
    assert cluster.nodes_of("gang/small") == ["n1"]
    assert cluster.nodes_of("gang/large") == ["n0"]
    assert len(cluster.evictions) == 1


def test_a_gang_that_moved_in_part_is_not_reclaimed_in_part() -> None:
    """Of one gang a pod moved and the others were reclaimed, in one decision: the moved one was left alone."""
    cluster = Cluster()
    for name, cpu, gpus in (("n0", 3, 4), ("n1", 8, 4), ("n2", 3, 1)):
        cluster.put(build.node(name, allocatable={"cpu": str(cpu)}), build.gpu_slice(name, gpus))
    cluster.put(
        simulated_cluster.queue("over", gpu=(0,)),
        simulated_cluster.queue("due", gpu=(4,)),
        simulated_cluster.queue("other", gpu=(0,)),
    )

    # A gang of two: one pod in the way of a pod that fits n0 only, the other on the node a queue is due.
    cluster.submit(
        simulated_cluster.gang("pair", Ask(cpu=1, gpus=1), Ask(cpu=4, gpus=4), queue="over")
    )
    small, large = cluster.members("gang/pair")
    for pod, node, count in ((small, "n0", 1), (large, "n1", 4)):
        [key] = cluster.world.claims_used(pod)
        devices = [(f"gpu-{index}", None) for index in range(count)]
        cluster.bind(pod.metadata.uid, node, {key: simulated_cluster.result(node, devices)})
    cluster.submit(simulated_cluster.gang("consolidator", Ask(cpu=2, gpus=4), queue="other"))
    cluster.submit(simulated_cluster.gang("reclaimer", Ask(cpu=4, gpus=4), queue="due"))

    # Without the move the whole gang would yield to the reclaimer: it is a victim, not protected otherwise.
    only_reclaiming = decide.decide(
        cluster.world, policy.Policy(steps=(policy.Step.RECLAIM,)), cluster.now
    )
    assert {eviction.pod.name for eviction in only_reclaiming.evictions} == {
        small.metadata.name,
        large.metadata.name,
    }

    done = cluster.decided()
    assert not plan_checks.faults(cluster, done)
    assert [(eviction.pod.name, eviction.moves_to) for eviction in done.evictions] == [
        (small.metadata.name, "n2")
    ]
    assert [refusal.pod.name.partition("-")[0] for refusal in done.refusals] == ["reclaimer"]

    lived(cluster)  # the reclaimer's turn comes once the move is under way
    assert cluster.nodes_of("gang/consolidator") == ["n0"]
    assert cluster.nodes_of("gang/reclaimer") == ["n1"]
    assert cluster.running("gang/pair") == []


def test_a_gang_keeps_no_more_than_it_starts_with() -> None:
    """Extra pods of a gang whose minimum was only nominated started at once."""
    cluster = Cluster(
        [build.node("n0"), build.gpu_slice("n0", 2), build.node("n1"), build.gpu_slice("n1", 1)]
    )
    cluster.submit(simulated_cluster.gang("old", Ask(gpus=2), priority=0))
    cluster.settle()
    groups = (gangs.Group(name="default", min=1),)
    cluster.submit(
        simulated_cluster.gang("new", Ask(gpus=2), Ask(gpus=1), groups=groups, priority=100)
    )
    done = cluster.decided()
    assert not plan_checks.faults(cluster, done)
    assert not done.placements

"""A plan covers only the pods it was asked about: each pending one once, and no other pod."""

from __future__ import annotations

import datetime
import random
from collections import Counter

import pytest

from dovetail.model import gangs, plan, policy
from dovetail.schedule import decide, pod_order
from dovetail.world.events import pod_id
from dovetail.world.world import World
from tests.batch import random_clusters, simulated_cluster
from tests.schedule import build
from tests.schedule.test_properties import random_world

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def spoken(done: plan.Plan) -> Counter[str]:
    """Every pod the plan starts, nominates or refuses, as often as it does."""
    answers = (*done.placements, *done.nominations, *done.refusals)
    return Counter(answer.pod.uid for answer in answers)


def waiting(world: World) -> set[str]:
    return {pod_id(pod) for pod in pod_order.waiting(world.pending())}


def crowded(seed: int) -> World:
    """No queues: pods of several priorities, some run, some are gated, some are elastic gangs, few fit."""
    rng = random.Random(seed)
    world = build.world(nodes=rng.randint(1, 2), gpus=2)
    has_gangs = rng.random() < 0.5
    for number in range(rng.randint(2, 10)):
        metadata = {}
        if has_gangs and rng.random() < 0.5:
            least = str(rng.randint(1, 3))
            metadata = {"labels": {gangs.GANG_LABEL: rng.choice("ab"), gangs.MIN_LABEL: least}}
        spec = {"schedulingGates": [{"name": "later"}]} if rng.random() < 0.15 else {}
        cpu = rng.choice(("1", "2", "60", "9999"))
        pod = build.pod(
            f"p{number}", cpu=cpu, priority=rng.choice((0, 0, 10, 1000)), metadata=metadata, **spec
        )
        build.put(world, pod)
        if rng.random() < 0.4 and cpu != "9999" and not spec and not metadata:
            done = decide.decide(world, among=[pod_id(pod)])
            if done.placements:
                build.carry_out(world, done.placements[0])
    return world


def some_of(rng: random.Random, ids: set[str]) -> list[str]:
    return sorted(id_ for id_ in ids if rng.random() < rng.choice((0.2, 0.8)))


def check(world: World, rng: random.Random, now: datetime.datetime) -> None:
    there = waiting(world)
    asked = some_of(rng, there)
    spared = some_of(rng, {*world.running()})
    done = decide.decide(world, policy.DEFAULT, now, policy.UNLIMITED, among=asked, spared=spared)
    assert spoken(done) == Counter(asked)
    evicted = Counter(eviction.pod.uid for eviction in done.evictions)
    assert all(count == 1 for count in evicted.values())
    assert not evicted.keys() & {*spared}
    assert evicted.keys() <= {*world.running()}
    everything = decide.decide(world, policy.DEFAULT, now, policy.UNLIMITED)
    assert spoken(everything) == Counter(there)


@pytest.mark.parametrize("seed", range(60))
def test_pods_alone_and_gangs_without_queues(seed: int) -> None:
    check(crowded(seed), random.Random(seed), NOW)


@pytest.mark.parametrize("seed", range(20))
def test_worlds_with_claims_and_constraints(seed: int) -> None:
    check(random_world(seed), random.Random(seed), NOW)


@pytest.mark.parametrize("seed", range(40))
def test_queues_and_gangs(seed: int) -> None:
    cluster = random_clusters.seeded(seed)
    check(cluster.world, random.Random(seed), simulated_cluster.EPOCH)

"""Stories about gangs: all or nothing down to the devices, groups, growing and shrinking, and giving up."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from dovetail.model import gangs, plan
from tests.batch import simulated_cluster
from tests.batch.simulated_cluster import Ask, Cluster
from tests.schedule import build

NUMA = f"{build.DRIVER}/root"  # two GPUs each


def nodes(*gpus: int, cpu: str = "16") -> Cluster:
    """A node for each number of GPUs."""
    cluster = Cluster()
    for index, count in enumerate(gpus):
        cluster.put(
            build.node(f"n{index}", allocatable={"cpu": cpu}), build.gpu_slice(f"n{index}", count)
        )
    return cluster


def evicted(cluster: Cluster) -> list[tuple[str, plan.Rule]]:
    return [(eviction.victim, eviction.rule) for eviction in cluster.evictions]


def test_a_gang_starts_whole_or_not_at_all() -> None:
    cluster = nodes(2, 1)
    cluster.submit(simulated_cluster.gang("four", *[Ask(gpus=1)] * 4))
    cluster.settle()
    assert not cluster.running("gang/four")
    cluster.put(build.node("n2", allocatable={"cpu": "16"}), build.gpu_slice("n2", 1))
    cluster.settle()
    assert len(cluster.running("gang/four")) == 4


def test_a_gang_that_never_completes_holds_nothing() -> None:
    cluster = nodes(2)
    cluster.submit(simulated_cluster.gang("never", *[Ask(gpus=1)] * 3))
    cluster.settle()
    cluster.submit(simulated_cluster.gang("small", Ask(gpus=2)))
    cluster.settle()
    assert not cluster.running("gang/never")
    assert len(cluster.running("gang/small")) == 1


def test_members_of_different_shapes_are_fitted_around_each_other() -> None:
    """Small ones first would take what only the large one can use."""
    cluster = nodes(4, 2)
    cluster.submit(simulated_cluster.gang("mixed", Ask(gpus=1), Ask(gpus=1), Ask(gpus=4)))
    cluster.settle()
    assert cluster.nodes_of("gang/mixed") == ["n1", "n1", "n0"]


def test_a_member_that_needs_linked_devices_goes_before_one_that_does_not() -> None:
    """Both ask for two GPUs; only one of them needs two behind one root, and only one node has such two left."""
    cluster = nodes(2, 4)
    cluster.submit(simulated_cluster.gang("odd", Ask(gpus=1), Ask(gpus=1), is_preemptible=False))
    cluster.settle()
    spread = cluster.nodes_of("gang/odd")
    cluster.submit(simulated_cluster.gang("pair", Ask(gpus=2), Ask(gpus=2, same=NUMA)))
    cluster.settle()
    assert len(cluster.running("gang/pair")) == 2, spread


def test_what_fails_late_is_tried_first_the_next_time() -> None:
    """The cpu-hungry member fits on one node only, where its equals in GPUs go by themselves."""
    cluster = Cluster()
    cluster.put(build.node("big", allocatable={"cpu": "9"}), build.gpu_slice("big", 2))
    cluster.put(build.node("thin", allocatable={"cpu": "3"}), build.gpu_slice("thin", 2))
    cluster.submit(simulated_cluster.gang("mixed", *[Ask(gpus=1, cpu=1)] * 2, Ask(gpus=1, cpu=8)))
    cluster.settle()
    assert len(cluster.running("gang/mixed")) == 3
    assert cluster.nodes_of("gang/mixed")[2] == "big"


def test_a_group_without_its_minimum_holds_the_whole_gang_back() -> None:
    groups = (gangs.Group(name="driver", min=1), gangs.Group(name="workers", min=2))
    cluster = nodes(2)
    work = simulated_cluster.gang(
        "ray", Ask(), *[Ask(gpus=1)] * 3, groups=groups, seats=("driver", *("workers",) * 3)
    )
    cluster.submit(work)
    cluster.settle()
    assert len(cluster.running("gang/ray")) == 3  # the third worker is beyond the minimum
    tight = nodes(1)
    tight.submit(work)
    tight.settle()
    assert not tight.running("gang/ray")


def test_one_of_two_groups_may_be_enough() -> None:
    groups = (gangs.Group(name="left", min=2), gangs.Group(name="right", min=2))
    cluster = nodes(3)
    seats = ("left", "left", "right", "right")
    cluster.submit(
        simulated_cluster.gang(
            "either", *[Ask(gpus=1)] * 4, groups=groups, seats=seats, min_groups=1
        )
    )
    cluster.settle()
    # One group has its minimum; of the other no pod starts alone, since two are needed and one GPU is left.
    assert len(cluster.running("gang/either")) == 2


def test_an_elastic_gang_grows_into_what_is_idle() -> None:
    cluster = nodes(4)
    cluster.submit(simulated_cluster.gang("wide", *[Ask(gpus=1)] * 4, least=1))
    cluster.submit(simulated_cluster.gang("job", Ask(gpus=2), runtime=100))
    cluster.settle()
    assert len(cluster.running("gang/wide")) == 2
    cluster.live()
    assert cluster.ended == {"gang/job": 100}
    assert len(cluster.running("gang/wide")) == 4


def test_an_elastic_gang_shrinks_before_any_gang_is_evicted() -> None:
    cluster = nodes(4)
    cluster.put(simulated_cluster.queue("a", gpu=(1,)), simulated_cluster.queue("b", gpu=(3,)))
    cluster.submit(simulated_cluster.gang("wide", *[Ask(gpus=1)] * 4, least=1, queue="a"))
    cluster.settle()
    assert len(cluster.running("gang/wide")) == 4
    cluster.submit(simulated_cluster.gang("due", Ask(gpus=1), Ask(gpus=1), queue="b"))
    cluster.live()
    assert evicted(cluster) == [("gang/wide", plan.Rule.RECLAIMED)] * 2
    assert len(cluster.running("gang/wide")) == 2
    assert len(cluster.running("gang/due")) == 2


def test_what_is_beyond_a_minimum_starts_with_it_or_after_it() -> None:
    """A gang whose minimum waits for room does not start what is beyond it meanwhile."""
    cluster = nodes(2, 1)
    cluster.submit(simulated_cluster.gang("old", Ask(gpus=2), priority=0))
    cluster.settle()
    cluster.submit(
        simulated_cluster.gang("new", Ask(gpus=2), Ask(gpus=1), Ask(gpus=1), least=2, priority=100)
    )
    done = cluster.decided()
    assert not done.placements
    assert {nomination.gang.name for nomination in done.nominations} == {"gang/new"}
    cluster.live()
    assert len(cluster.running("gang/new")) == 2


def test_what_is_left_of_a_gang_below_its_minimum_is_taken_back() -> None:
    cluster = nodes(2, 2)
    cluster.submit(simulated_cluster.gang("four", *[Ask(gpus=1)] * 4))
    cluster.settle()
    lost = cluster.running("gang/four")[0]
    cluster.put(simulated_cluster.queue("q", gpu=(0,)))
    cluster.delete(lost.metadata.uid)
    cluster.submit(
        simulated_cluster.gang("thief", Ask(gpus=1), priority=1000, is_preemptible=False)
    )
    cluster.advance(simulated_cluster.GRACE)
    assert len(cluster.running("gang/four")) == 3
    cluster.live()
    assert len(cluster.running("gang/four")) in (0, 4)


def test_a_gang_that_lost_a_pod_is_whole_again_where_there_is_room() -> None:
    cluster = nodes(2, 3)
    cluster.submit(simulated_cluster.gang("four", *[Ask(gpus=1)] * 4))
    cluster.settle()
    cluster.delete(cluster.running("gang/four")[0].metadata.uid)
    cluster.live()
    assert len(cluster.running("gang/four")) == 4
    assert not cluster.evictions


def test_shares_and_partitions_are_ganged_as_whole_gpus_are() -> None:
    cluster = Cluster()
    cluster.put(build.node("shared"), simulated_cluster.shared_pool("shared", 1))
    cluster.put(build.node("parted"), *simulated_cluster.parted_pool("parted"))
    cluster.submit(
        simulated_cluster.gang(
            "mix", Ask(share_gib=12), Ask(share_gib=12), Ask(part=2), Ask(part=1), Ask(part=1)
        )
    )
    cluster.submit(simulated_cluster.gang("more", Ask(part=1)))
    cluster.settle()
    assert cluster.nodes_of("gang/mix") == ["shared", "shared", "parted", "parted", "parted"]
    assert not cluster.running("gang/more")


# Whatever can be fitted together is


def fits(gpus: int, cpu: int, asks: Sequence[Ask]) -> bool:
    """Whether a node holds these pods, every choice of devices tried."""
    if sum(ask.cpu for ask in asks) > cpu:
        return False

    def follow(at: int, free: tuple[int, ...]) -> bool:
        if at == len(asks):
            return True
        for chosen in itertools.combinations(free, asks[at].gpus):
            is_linked = len({device // 2 for device in chosen}) == 1
            if (is_linked or not asks[at].same) and follow(
                at + 1, tuple(count for count in free if count not in chosen)
            ):
                return True
        return False

    return follow(0, tuple(range(gpus)))


def can_start(machines: Sequence[tuple[int, int]], asks: Sequence[Ask]) -> bool:
    """Whether some way of giving nodes to pods holds them all."""
    for where in itertools.product(range(len(machines)), repeat=len(asks)):
        if all(
            fits(gpus, cpu, [ask for ask, at in zip(asks, where, strict=True) if at == index])
            for index, (gpus, cpu) in enumerate(machines)
        ):
            return True
    return False


@pytest.mark.parametrize("seed", [*range(60), 935])
def test_a_gang_starts_exactly_if_there_is_a_way(seed: int) -> None:
    rng = random.Random(seed)
    machines = [(rng.choice((2, 3, 4)), rng.choice((4, 6, 8))) for _ in range(rng.randint(2, 3))]
    asks = []
    for _ in range(rng.randint(2, 5)):
        ask = Ask(gpus=rng.choice((0, 1, 1, 2, 2, 3)), cpu=rng.choice((1, 1, 2, 3, 4)))
        asks.append(ask._replace(same=NUMA) if rng.random() < 0.3 and ask.gpus else ask)
    cluster = Cluster()
    for index, (gpus, cpu) in enumerate(machines):
        cluster.put(
            build.node(f"n{index}", allocatable={"cpu": str(cpu)}),
            build.gpu_slice(f"n{index}", gpus),
        )
    cluster.submit(simulated_cluster.gang("mixed", *asks))
    cluster.settle()
    assert bool(cluster.running("gang/mixed")) == can_start(machines, asks)

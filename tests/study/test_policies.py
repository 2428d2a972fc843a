"""Placement policies by name: which node and device each takes, and that a run never over-allocates."""

from __future__ import annotations

import random

import pytest

from dovetail import errors
from dovetail.model import pod_mix
from dovetail.study import mix_source, placement_run, policy_names, workload
from dovetail.study.placement import cluster_state, policies
from tests.study import build

MIX = build.mix(
    (build.share(470), 3),
    (build.share(320), 2),
    (build.whole(1), 4),
    (build.whole(2, models=("T4",), memory_mib=500), 1),
    (build.cpu_only(2_000), 2),
)


def chosen(
    policy: str, cluster: cluster_state.ClusterState, shape: pod_mix.Shape
) -> tuple[int, int]:
    setting = policies.Setting(cluster, mix_source.known(MIX), seed=1)
    return policies.POLICIES[policy](setting)(shape, cluster.feasible(shape))


def half_used() -> cluster_state.ClusterState:
    """An empty node, one with a device in use, and one with less CPU."""
    cluster = build.cluster(
        build.node("empty", gpus=4), build.node("used", gpus=4), build.node("little", gpus=2)
    )
    cluster.place(build.share(600), 1, 2)
    return cluster


def test_every_name_has_a_rule() -> None:
    assert set(policies.POLICIES) == set(policy_names.NAMES)


@pytest.mark.parametrize("spelling", ["best-fit", "bestfit", "BestFit", "best_fit"])
def test_names_may_be_written_without_hyphens(spelling: str) -> None:
    assert policy_names.named(spelling) == "best-fit"


def test_an_unknown_name_lists_the_choices() -> None:
    with pytest.raises(errors.NotFound, match="there are: random, first-fit"):
        policy_names.named("worst")


@pytest.mark.parametrize(
    ("policy", "shape", "expected"),
    [
        ("first-fit", build.share(300), (0, 0)),
        ("spread", build.share(300), (0, 0)),
        ("best-fit", build.whole(1), (2, -1)),
        ("dot-product", build.whole(1), (2, -1)),
        ("gpu-packing", build.share(300), (1, 2)),
        ("gpu-packing", build.whole(1), (1, -1)),
        ("gpu-packing", build.whole(4), (0, -1)),
        ("fgd", build.share(400), (1, 2)),
        ("dovetail", build.share(400), (1, 2)),
    ],
)
def test_each_rule_takes_the_node_it_is_meant_to(
    policy: str, shape: pod_mix.Shape, expected: tuple[int, int]
) -> None:
    assert chosen(policy, half_used(), shape) == expected


def test_gpu_clustering_returns_to_nodes_with_the_same_size_of_request() -> None:
    cluster = build.cluster(build.node("a"), build.node("b"), build.node("c"))
    choose = policies.POLICIES["gpu-clustering"](
        policies.Setting(cluster, mix_source.known(MIX), seed=1)
    )
    taken = []
    for shape in (build.share(300), build.whole(1), build.share(300), build.whole(1)):
        node, device = choose(shape, cluster.feasible(shape))
        cluster.place(shape, node, device)
        taken.append(node)
    assert taken == [0, 1, 0, 1]


def test_between_equals_power_aware_placement_takes_the_model_that_draws_less() -> None:
    cluster = build.cluster(build.node("a100", model="A100"), build.node("t4", model="T4"))
    shape = build.whole(1)
    setting = policies.Setting(cluster, mix_source.known(build.mix((shape, 1))), seed=1)
    feasible = cluster.feasible(shape)
    assert policies.POLICIES["fgd"](setting)(shape, feasible)[0] == 0
    assert policies.POLICIES["pwr"](setting)(shape, feasible)[0] == 1


def test_dovetail_keeps_a_scarce_model_for_those_who_insist_on_it() -> None:
    cluster = build.cluster(build.node("t4", gpus=2), build.node("a10", gpus=2, model="A10"))
    mix = build.mix((build.whole(1, models=("T4",)), 5), (build.whole(1), 1))
    setting = policies.Setting(cluster, mix_source.known(mix), seed=1)
    shape = build.whole(1)
    assert policies.POLICIES["dovetail"](setting)(shape, cluster.feasible(shape))[0] == 1


@pytest.mark.parametrize("policy", policy_names.NAMES)
@pytest.mark.parametrize("is_mix_known", [True, False])
def test_a_run_places_what_fits_and_never_more(policy: str, is_mix_known: bool) -> None:
    draw = random.Random(5)
    drawn = [shape for shape, count in MIX.counts for _ in range(count)]
    nodes = tuple(build.node(str(number), gpus=4, memory_mib=9_000) for number in range(4))
    work = workload.Workload(
        name="small",
        seed=3,
        nodes=nodes,
        arrivals=tuple(draw.choice(drawn) for _ in range(60)),
        mix=MIX,
        has_published_order=False,
    )
    result = placement_run.run(work, policy=policy, is_mix_known=is_mix_known)
    assert result.arrivals == 60
    assert 0 < result.failed_pods < 60  # the cluster fills up
    assert 0 < result.allocated_gpu_milli <= work.gpu_milli
    assert all(0 <= figure <= 100 for figure in result.allocation_pct.values())
    assert result == placement_run.run(work, policy=policy, is_mix_known=is_mix_known)


def test_taking_more_than_a_device_has_is_an_error() -> None:
    cluster = build.cluster(build.node("a"))
    cluster.place(build.share(600), 0, 0)
    with pytest.raises(AssertionError):
        cluster.place(build.share(600), 0, 0)


def test_a_learned_mix_counts_arrivals_at_growing_distances() -> None:
    source = mix_source.learned()
    sizes = []
    for arrived in range(1, 41):
        source.arrived(build.whole(1))
        sizes.append(sum(count for _, count in source.current.counts))
        assert sizes[-1] == pod_mix.last_count(arrived)
    assert sorted(set(sizes)) == [0, 5, 10, 15, 20, 26, 32, 38]


def test_the_typical_mix_is_cut_at_95_percent_of_the_pods() -> None:
    mix = build.mix((build.whole(1), 90), (build.share(500), 6), (build.share(300), 4))
    assert [count for _, count in pod_mix.typical(mix).counts] == [90, 6]

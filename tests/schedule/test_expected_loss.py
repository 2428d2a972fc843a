"""Expected loss in the engine: equal to the study's kernel, the same with memory and without, learned from pods."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.model import plan, pod_mix, policy
from dovetail.schedule import decide
from dovetail.schedule.node.score import arrived_mix, pod_shapes
from dovetail.study import engine_run, workload
from dovetail.study.placement import cluster_state, expected_loss
from dovetail.world import dump
from dovetail.world.events import Changed, Deleted
from dovetail.world.world import World
from tests.schedule import build
from tests.study import build as study

EXPECTED_LOSS = policy.Policy(placement=policy.Placement.EXPECTED_LOSS)
MODELS = ("t4", "a10")

node_shapes = st.builds(
    workload.Node,
    name=st.just("node"),
    cpu_milli=st.sampled_from((8_000, 32_000, 64_000)),
    memory_mib=st.sampled_from((32_000, 128_000)),
    gpus=st.integers(1, 4),
    model=st.sampled_from(MODELS),
)
models = st.sampled_from(((), (), ("t4",), ("a10",)))
cpus = st.sampled_from((500, 1_000, 4_000))
memory = st.sampled_from((1_000, 8_000))
shares = st.builds(
    study.share,
    st.sampled_from((160, 320, 470, 650, 810)),
    cpu_milli=cpus,
    models=models,
    memory_mib=memory,
)
whole_gpus = st.builds(
    study.whole, st.integers(1, 4), cpu_milli=cpus, models=models, memory_mib=memory
)
cpu_only = st.builds(study.cpu_only, cpus)
shapes = st.one_of(shares, whole_gpus, cpu_only)


def assert_chosen_alike(
    nodes: list[workload.Node], arrivals: list[pod_mix.Shape], mix: pod_mix.Mix
) -> int:
    """The engine takes the node and the device that the kernel takes, pod by pod; returns how many had room."""
    kernel_cluster = cluster_state.ClusterState(nodes)
    kernel = expected_loss.ExpectedLoss(kernel_cluster, mix)
    engine = engine_run.EngineCluster(nodes, mix=mix)
    placed = 0
    for shape in arrivals:
        placement = engine.place(shape)
        feasible = kernel_cluster.feasible(shape)
        if not feasible.any():
            assert placement is None
            continue
        node, device = kernel.choose(shape, feasible)
        assert placement is not None
        assert placement.node == node
        if shape.is_sharing:
            assert placement.devices == (device,)
        kernel_cluster.place(shape, node, device)
        placed += 1
    return placed


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(node_shapes, min_size=2, max_size=6), st.lists(shapes, min_size=4, max_size=25))
def test_engine_and_kernel_choose_alike(
    nodes: list[workload.Node], arrivals: list[pod_mix.Shape]
) -> None:
    mix = pod_mix.mix_of([*arrivals, study.whole(1)])
    assert_chosen_alike(nodes, arrivals, mix)


def half_used(policy_: policy.Policy) -> engine_run.EngineCluster:
    nodes = [study.node(f"n{number}", gpus=4, model="t4") for number in range(3)]
    cluster = engine_run.EngineCluster(nodes, policy_=policy_)
    for _ in range(4):
        for shape in (study.share(470), study.whole(2), study.share(320), study.cpu_only(1_000)):
            cluster.place(shape)
    return cluster


def test_a_share_goes_where_its_partner_is() -> None:
    nodes = [study.node("a", gpus=2, model="t4")]
    mix = study.mix((study.share(470), 6), (study.share(320), 6), (study.share(650), 1))
    cluster = engine_run.EngineCluster(nodes, mix=mix)
    assert cluster.place(study.share(320)) == engine_run.EnginePlacement(0, (0,))
    assert cluster.place(study.share(470)) == engine_run.EnginePlacement(0, (1,))
    assert cluster.place(study.share(470)) == engine_run.EnginePlacement(0, (1,))
    assert cluster.place(study.share(650)) == engine_run.EnginePlacement(0, (0,))


def test_work_that_takes_any_model_leaves_the_scarce_one_to_those_who_insist() -> None:
    nodes = [study.node("a", gpus=2, model="t4"), study.node("b", gpus=2, model="a10")]
    mix = study.mix((study.whole(1), 1), (study.whole(1, models=("t4",)), 3))
    cluster = engine_run.EngineCluster(nodes, mix=mix)
    placement = cluster.place(study.whole(1))
    assert placement is not None
    assert placement.node == 1


def test_the_plan_is_the_same_without_memory() -> None:
    with_memory = half_used(EXPECTED_LOSS)
    without = half_used(policy.Policy(placement=policy.Placement.EXPECTED_LOSS, memo=False))
    assert with_memory.world.mix_in_force is not None
    assert with_memory.world.mix_in_force.mix.total_gpu_milli > 0
    assert dump.dump(with_memory.world) == dump.dump(without.world)


def mixed_world(count: int) -> World:
    pods = [
        build.pod(f"p{number}", created=f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z",
                  containers=[{"name": "main", "resources": {
                      "requests": {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": str(1 + number % 2)},
                      "limits": {"nvidia.com/gpu": str(1 + number % 2)}}}])
        for number in range(count)
    ]  # fmt: skip
    nodes = [
        build.node(
            f"n{number}",
            allocatable={"nvidia.com/gpu": "8"},
            labels={"nvidia.com/gpu.product": "Tesla-T4"},
        )
        for number in range(12)
    ]
    return build.world(*nodes, *pods)


def test_too_few_pods_make_no_mix() -> None:
    assert arrived_mix.of(mixed_world(4)).counts == ()


def test_the_mix_counts_every_pod_once_at_growing_distances() -> None:
    world = mixed_world(12)
    mix = arrived_mix.of(world)
    assert sum(count for _, count in mix.counts) == pod_mix.last_count(12) == 10
    assert {(shape.gpus, count) for shape, count in mix.counts} == {(1, 5), (2, 5)}
    world.apply(Changed(world.pods["uid-of-p0"]))
    assert arrived_mix.of(world) is mix


def test_a_world_rebuilt_from_a_list_expects_the_same_mix() -> None:
    live = World()
    arriving = mixed_world(33)
    for fact in (*arriving.nodes.values(), *arriving.pods.values()):
        live.apply(Changed(fact))
        arrived_mix.of(live)
    rebuilt = World()
    for fact in (*reversed(arriving.pods.values()), *arriving.nodes.values()):
        rebuilt.apply(Changed(fact))
    assert arrived_mix.of(rebuilt) == arrived_mix.of(live)
    assert decide.decide(rebuilt, EXPECTED_LOSS) == decide.decide(live, EXPECTED_LOSS)


def test_deleted_pods_leave_the_mix_with_the_next_count() -> None:
    world = mixed_world(12)
    before = arrived_mix.of(world)
    two_gpus = [f"uid-of-p{number}" for number in (1, 3, 5, 7, 9)]
    for pod_id in two_gpus[:1]:
        world.apply(Deleted(world.pods[pod_id]))
    assert arrived_mix.of(world) is before
    for pod_id in two_gpus[1:]:
        world.apply(Deleted(world.pods[pod_id]))
    after = arrived_mix.of(world)
    assert sum(count for _, count in after.counts) == pod_mix.last_count(7)


def test_the_terms_of_the_chosen_node_are_named() -> None:
    world = mixed_world(12)
    placements = decide.decide(world, EXPECTED_LOSS).placements
    names = {term.name for placement in placements for term in placement.terms}
    assert names <= {"unusable GPU", "lost pattern", "scarce model", "scarce places", "cpu fit"}
    assert "scarce places" in names
    assert len(placements) == 12


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"nodeSelector": {"nvidia.com/gpu.product": "Tesla-T4"}}, ("tesla-t4",)),
        ({"metadata": {"annotations": {"nvidia.com/use-gputype": "a10"}}}, ("a10",)),
        ({}, ()),
    ],
)
def test_the_models_a_pod_accepts_are_part_of_its_shape(
    spec: dict[str, object], expected: tuple[str, ...]
) -> None:
    world = mixed_world(0)
    world.apply(Changed(build.node("a", labels={"nvidia.com/gpu.product": "A10"})))
    limits = {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    pod = build.pod("p", containers=[{"name": "main", "resources": limits}], **spec)
    assert pod_shapes.ShapeReader(world).of(pod).models == expected
    assert isinstance(pod.metadata.name, str)


def test_partitions_and_whole_devices_are_placed_as_well() -> None:
    world = build.world(nodes=2, gpus=4)
    for number in range(6):
        build.put(world, build.claim(f"c{number}"), build.pod(f"p{number}", uses=(f"c{number}",)))
    placements: tuple[plan.Placement, ...] = decide.decide(world, EXPECTED_LOSS).placements
    assert len(placements) == 6
    assert world.mix_in_force is not None
    assert world.mix_in_force.mix.counts[0][0].gpus == 1

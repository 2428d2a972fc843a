"""NVIDIA_REQUIRE_* of a pod against the drivers of nodes: off, a warning, or a refusal that a change lifts."""

from __future__ import annotations

import dataclasses
from typing import Any

import hypothesis
import msgspec
from hypothesis import strategies

from dovetail.gpus import host_properties
from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import nodes, pods
from dovetail.kubetypes.resource import slices
from dovetail.live.queue import queueing_hints
from dovetail.model import node_pools, plan, policy
from dovetail.model.policy import ImageRequirements
from dovetail.model.reasons import Change, ReasonCode
from dovetail.schedule.node import image_fit
from dovetail.world.world import World
from tests.schedule import build

GPU = "nvidia.com/gpu"
CUDA_13 = "cuda>=13.2 brand=tesla,driver>=570,driver<571"
REFUSE = policy.Policy(image_requirements=ImageRequirements.REFUSE)
WARN = policy.Policy(image_requirements=ImageRequirements.WARN)
OFF = policy.Policy(image_requirements=ImageRequirements.OFF)


def gpu_node(name: str, *, cuda: str = "", driver: str = "", gpus: int = 8) -> nodes.Node:
    """A node whose feature discovery says what the driver is; nothing where that is empty."""
    labels = {"nvidia.com/gpu.product": "Tesla-V100-SXM2-16GB"}
    if cuda:
        labels |= {f"{host_properties.RUNTIME}.full": cuda}
    if driver:
        labels |= {f"{host_properties.DRIVER}.full": driver}
    return build.node(name, labels=labels, allocatable={GPU: str(gpus)})


def trainer(name: str, *, gpus: int = 1, **environment: str) -> pods.Pod:
    variables = [{"name": key, "value": value} for key, value in environment.items()]
    resources: dict[str, Any] = {"requests": {"cpu": "1"}}
    if gpus:
        resources["limits"] = {GPU: str(gpus)}
    container = {"name": "main", "env": variables, "resources": resources}
    return build.pod(name, containers=[container])


def published(node: str, driver: str, cuda: str) -> slices.ResourceSlice:
    """The slice of NVIDIA's driver on a node."""
    attributes = {
        host_properties.DRIVER_VERSION: {"version": driver},
        host_properties.CUDA_DRIVER_VERSION: {"version": cuda},
        host_properties.BRAND: {"string": "Tesla"},
    }
    tree = codec.tree_of(build.gpu_slice(node, 2, **attributes))
    tree["spec"]["driver"] = node_pools.GPU_DRIVER
    return build.struct("ResourceSlice", tree)  # type: ignore[no-any-return]


def mixed_world(*more: Any) -> World:
    """The first node by name has the older driver."""
    return build.world(
        gpu_node("a", cuda="12.9", driver="575.57.08"),
        gpu_node("b", cuda="13.2", driver="595.71.05"),
        *more,
    )


def unwarned(done: plan.Plan) -> plan.Plan:
    placements = tuple(msgspec.structs.replace(each, warnings=()) for each in done.placements)
    return msgspec.structs.replace(done, placements=placements)


def test_a_node_with_too_old_a_driver_is_passed_over_where_the_policy_refuses() -> None:
    done = build.decided(mixed_world(trainer("t", NVIDIA_REQUIRE_CUDA=CUDA_13)), policy=REFUSE)
    assert build.nodes_of(done) == {"t": "b"}
    assert done.placements[0].warnings == ()


def test_the_refusal_names_what_is_needed_and_what_the_driver_is() -> None:
    world = build.world(
        gpu_node("a", cuda="12.9", driver="575.57.08"),
        trainer("t", NVIDIA_REQUIRE_CUDA=CUDA_13),
    )
    [refusal] = build.decided(world, policy=REFUSE).refusals
    [obstacle] = refusal.obstacles
    assert obstacle.reason.code is ReasonCode.IMAGE_REQUIREMENTS
    assert "needs cuda>=13.2" in refusal.summary
    assert "cuda 12.9, driver 575.57.8" in refusal.summary


def test_by_default_the_pod_starts_where_it_would_and_the_placement_carries_a_warning() -> None:
    world = mixed_world(trainer("t", NVIDIA_REQUIRE_CUDA=CUDA_13))
    done = build.decided(world)
    assert build.nodes_of(done) == {"t": "a"}
    [warning] = done.placements[0].warnings
    assert warning.code is ReasonCode.IMAGE_REQUIREMENTS
    assert unwarned(done) == build.decided(world, policy=OFF)


def test_a_listed_driver_branch_does_though_its_cuda_is_older() -> None:
    node = gpu_node("a", cuda="12.8", driver="570.211.01")
    done = build.decided(
        build.world(node, trainer("t", NVIDIA_REQUIRE_CUDA=CUDA_13)), policy=REFUSE
    )
    assert build.nodes_of(done) == {"t": "a"}


def test_disabling_the_check_in_the_container_lifts_it() -> None:
    world = build.world(
        gpu_node("a", cuda="12.9", driver="575.57.08"),
        trainer("t", NVIDIA_REQUIRE_CUDA=CUDA_13, NVIDIA_DISABLE_REQUIRE="true"),
    )
    assert build.nodes_of(build.decided(world, policy=REFUSE)) == {"t": "a"}


def test_a_container_without_gpus_requires_nothing_and_an_unknown_driver_rules_nothing_out() -> (
    None
):
    sidecar = trainer("t", gpus=0, NVIDIA_REQUIRE_CUDA=CUDA_13)
    assert image_fit.requirements_of(sidecar) == ()
    world = build.world(gpu_node("a"), trainer("u", NVIDIA_REQUIRE_CUDA=CUDA_13))
    done = build.decided(world, policy=REFUSE)
    assert build.nodes_of(done) == {"u": "a"}


def test_what_devices_publish_counts_more_than_labels() -> None:
    world = build.world(
        gpu_node("a", cuda="12.9", driver="575.57.08"), published("a", "595.71.5", "13.2.0")
    )
    build.put(world, trainer("t", NVIDIA_REQUIRE_CUDA=CUDA_13))
    assert build.nodes_of(build.decided(world, policy=REFUSE)) == {"t": "a"}


def test_another_driver_in_the_slice_changes_the_answer_of_a_node_that_is_the_same_object() -> None:
    world = build.world(gpu_node("a"), published("a", "575.57.8", "12.9.0"))
    build.put(world, trainer("t", NVIDIA_REQUIRE_CUDA=CUDA_13))
    assert build.decided(world, policy=REFUSE).refusals
    build.put(world, published("a", "595.71.5", "13.2.0"))
    done = build.decided(world, policy=REFUSE)
    assert build.nodes_of(done) == {"t": "a"}
    build.put(world, published("a", "575.57.8", "12.9.0"))
    assert build.decided(world, policy=REFUSE).refusals


def test_a_change_of_the_drivers_label_or_slice_wakes_the_pod() -> None:
    old, new = gpu_node("a", cuda="12.9"), gpu_node("a", cuda="13.2")
    node_news = queueing_hints.of_object(registry.NODE, old, new, is_there=True)
    slice_ = published("a", "595.71.5", "13.2.0")
    slice_news = queueing_hints.of_object(registry.SLICE, slice_, slice_, is_there=True)
    for news in (*node_news, *slice_news):
        assert queueing_hints.HINTS[news] in ReasonCode.IMAGE_REQUIREMENTS.helped_by
    assert Change.ITSELF in ReasonCode.IMAGE_REQUIREMENTS.helped_by


@dataclasses.dataclass
class Cluster:
    """Drawn: the drivers of nodes and what pods require."""

    drivers: list[tuple[str, str]]
    requirements: list[str]

    def world(self, *, with_variables: bool = True) -> World:
        world = build.world()
        for index, (cuda, driver) in enumerate(self.drivers):
            build.put(world, gpu_node(f"n{index}", cuda=cuda, driver=driver, gpus=2))
        for index, text in enumerate(self.requirements):
            pod = trainer(f"p{index}", NVIDIA_REQUIRE_CUDA=text)
            build.put(world, pod if with_variables and text else trainer(f"p{index}"))
        return world


DRIVERS = [("", ""), ("12.8", "570.124.06"), ("12.9", "575.57.08"), ("13.2", "595.71.05")]
TEXTS = [
    "",
    "cuda>=12.9",
    CUDA_13,
    "cuda>=13.2",
    "driver<580",
    "brand=geforce",
    "nonsense",
    "cuda>",
]
CLUSTERS = strategies.builds(
    Cluster,
    drivers=strategies.lists(strategies.sampled_from(DRIVERS), min_size=1, max_size=5),
    requirements=strategies.lists(strategies.sampled_from(TEXTS), min_size=1, max_size=8),
)


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(CLUSTERS)
def test_the_memo_never_changes_the_plan_with_requirements(cluster: Cluster) -> None:
    forgetful = msgspec.structs.replace(REFUSE, memo=False)
    world = cluster.world()
    assert build.decided(world, policy=REFUSE) == build.decided(world, policy=forgetful)
    assert build.decided(world) == build.decided(world, policy=policy.Policy(memo=False))


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(CLUSTERS)
def test_off_is_as_if_no_pod_had_variables_and_a_warning_moves_no_pod(cluster: Cluster) -> None:
    bare = build.decided(cluster.world(with_variables=False))
    assert build.decided(cluster.world(), policy=OFF) == bare
    assert unwarned(build.decided(cluster.world(), policy=WARN)) == bare

"""Node preferences: preferred affinity, soft taints, images, features."""

from __future__ import annotations

from typing import Any

from dovetail.kubetypes.core import nodes
from tests.schedule import build
from tests.schedule.build import decided, nodes_of, summary_of


def preferring(name: str, *wanted: tuple[int, str, str]) -> Any:
    listed = [
        {
            "weight": weight,
            "preference": {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]},
        }
        for weight, key, value in wanted
    ]
    return build.pod(
        name, affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": listed}}
    )


def holding(name: str, image: str, size: int) -> nodes.Node:
    """A node with an image."""
    made = build.node(name)
    status = build.replaced(
        made.status, images=(nodes.ContainerImage(names=(image,), size_bytes=size),)
    )
    return build.replaced(made, status=status)  # type: ignore[no-any-return]


def test_a_stated_preference_outranks_packing() -> None:
    given = [
        build.node("a"),
        build.node("b", labels={"disk": "fast"}),
        build.pod("filler", nodeName="a", cpu="30"),
    ]
    assert nodes_of(decided(build.world(*given, build.pod("new"))))["new"] == "a"
    assert (
        nodes_of(decided(build.world(*given, preferring("new", (1, "disk", "fast")))))["new"] == "b"
    )


def test_the_heavier_preference_wins() -> None:
    given = [build.node("a", labels={"disk": "fast"}), build.node("b", labels={"zone": "b"})]
    expected = preferring("new", (10, "disk", "fast"), (20, "zone", "b"))
    done = decided(build.world(*given, expected))
    assert nodes_of(done) == {"new": "b"}
    assert [
        (term.name, term.milli_gpu)
        for term in done.placements[0].terms
        if term.name == "preferred nodes"
    ] == [("preferred nodes", 1000.0)]


def test_a_node_that_asks_to_be_avoided_comes_last() -> None:
    taint = {"key": "spot", "value": "yes", "effect": "PreferNoSchedule"}
    given = [
        build.node("a", taints=[taint]),
        build.node("b"),
        build.pod("filler", nodeName="a", cpu="30"),
    ]
    assert nodes_of(decided(build.world(*given, build.pod("new"))))["new"] == "b"
    tolerant = build.pod("new", tolerations=[{"key": "spot", "operator": "Exists"}])
    assert nodes_of(decided(build.world(*given, tolerant)))["new"] == "a"


def test_a_node_with_the_image_is_liked_better_than_a_tight_fit() -> None:
    given = [
        build.node("a"),
        holding("b", "train:latest", 20 << 30),
        build.pod("filler", nodeName="a", cpu="30"),
    ]
    for image, node in (("train", "b"), ("train:latest", "b"), ("train:v2", "a")):
        world = build.world(*given, build.pod("new", containers=[{"name": "main", "image": image}]))
        assert nodes_of(decided(world))["new"] == node, image


def test_a_node_that_pulls_an_image_later_counts_from_then_on() -> None:
    world = build.world(
        build.node("a"), build.node("b"), build.pod("filler", nodeName="a", cpu="30")
    )
    pods = [build.pod(f"p{i}", containers=[{"name": "main", "image": "train"}]) for i in range(2)]
    build.put(world, pods[0])
    assert nodes_of(decided(world)) == {"p0": "a"}
    build.put(world, holding("b", "train:latest", 20 << 30), pods[1])
    assert set(nodes_of(decided(world)).values()) == {"b"}


def test_a_pod_that_needs_a_feature_goes_where_it_is_declared() -> None:
    made = build.node("b")
    able = build.replaced(
        made,
        status=build.replaced(
            made.status, declared_features=("RestartAllContainersOnContainerExits",)
        ),
    )
    rules = [{"action": "RestartAllContainers"}]
    needy = build.pod("new", containers=[{"name": "main", "restartPolicyRules": rules}])
    done = decided(build.world(build.node("a"), needy))
    assert "lacks feature RestartAllContainersOnContainerExits" in summary_of(done, "new")
    assert nodes_of(decided(build.world(build.node("a"), able, needy))) == {"new": "b"}

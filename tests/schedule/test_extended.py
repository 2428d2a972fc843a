"""Extended resources that devices serve: which claim is made, where, for whom, and what becomes of one made before."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.kubetypes.core import pods
from dovetail.model import plan, pod_requests
from dovetail.model.reasons import ReasonCode
from dovetail.schedule.node import extended_resources
from dovetail.world.world import World
from tests.schedule import build

GPU = "example.com/gpu"
NIC = "example.com/nic"
BACKED = ((GPU, "gpu"), (NIC, "nic"))


def container(name: str = "main", **amounts: str) -> dict[str, Any]:
    named = {"gpu": GPU, "nic": NIC}
    expected = {named.get(key, key): amount for key, amount in amounts.items()}
    limits = {key: amount for key, amount in expected.items() if "/" in key}
    return {"name": name, "resources": {"requests": expected, "limits": limits}}


def sidecar(name: str, **amounts: str) -> dict[str, Any]:
    return container(name, **amounts) | {"restartPolicy": "Always"}


def wanting(name: str = "p", gpus: int = 1, **more: Any) -> pods.Pod:
    return build.pod(name, containers=[container(cpu="1", gpu=str(gpus))], **more)


def cluster(*given: Any, nodes: int = 2, gpus: int = 4) -> World:
    """Nodes whose GPUs a class offers under a resource's name."""
    return build.put(
        build.world(nodes=nodes, gpus=gpus), build.gpu_class(extendedResourceName=GPU), *given
    )


def asked(pod: pods.Pod, *names: str) -> dict[str, tuple[str, int]]:
    """Requests of the claim: name -> class and count."""
    requests = extended_resources.requests_for(pod, BACKED, names or (GPU, NIC)).requests
    return {
        request.name: (request.exactly.device_class_name, request.exactly.count)
        for request in requests
        if request.exactly
    }


def mapped(pod: pods.Pod) -> set[tuple[str, str, str]]:
    """Container, resource and request."""
    mappings = extended_resources.requests_for(pod, BACKED, (GPU, NIC)).mappings
    return {
        (mapping.container_name, mapping.resource_name, mapping.request_name)
        for mapping in mappings
    }


# What a claim asks for: cases after those of kube-scheduler's own tests.


def test_requests_are_named_after_the_container_and_the_place_of_the_name_among_all_its_resources() -> (
    None
):
    pod = build.pod(
        "p", containers=[container("a", cpu="1", gpu="2"), container("b", gpu="1", nic="3")]
    )
    assert asked(pod) == {
        "container-0-request-1": ("gpu", 2),  # "cpu" sorts before
        "container-1-request-0": ("gpu", 1),
        "container-1-request-1": ("nic", 3),
    }
    assert mapped(pod) == {
        ("a", GPU, "container-0-request-1"),
        ("b", GPU, "container-1-request-0"),
        ("b", NIC, "container-1-request-1"),
    }


def test_only_resources_that_devices_serve_are_asked_for() -> None:
    pod = build.pod("p", containers=[container("a", gpu="2", nic="1")])
    assert asked(pod, NIC) == {"container-0-request-1": ("nic", 1)}


def test_init_containers_count_before_the_others() -> None:
    pod = build.pod(
        "p", containers=[container("main", gpu="1")], initContainers=[container("init", nic="2")]
    )
    assert asked(pod) == {"container-0-request-0": ("nic", 2), "container-1-request-0": ("gpu", 1)}
    assert mapped(pod) == {
        ("init", NIC, "container-0-request-0"),
        ("main", GPU, "container-1-request-0"),
    }


def test_init_containers_share_the_request_of_the_hungriest() -> None:
    pod = build.pod(
        "p",
        containers=[container("main", nic="1")],
        initContainers=[container("a", gpu="1"), container("b", gpu="2")],
    )
    assert asked(pod) == {"container-1-request-0": ("gpu", 2), "container-2-request-0": ("nic", 1)}
    assert mapped(pod) == {
        ("a", GPU, "container-1-request-0"),
        ("b", GPU, "container-1-request-0"),
        ("main", NIC, "container-2-request-0"),
    }


def test_an_init_container_uses_what_later_containers_will_use() -> None:
    pod = build.pod(
        "p",
        containers=[container("a", gpu="1"), container("b", gpu="1")],
        initContainers=[container("i", gpu="2")],
    )
    assert asked(pod) == {"container-1-request-0": ("gpu", 1), "container-2-request-0": ("gpu", 1)}
    assert {item for item in mapped(pod) if item[0] == "i"} == {
        ("i", GPU, "container-1-request-0"),
        ("i", GPU, "container-2-request-0"),
    }


def test_what_later_containers_lack_an_init_container_asks_for_itself() -> None:
    pod = build.pod(
        "p", containers=[container("a", gpu="1")], initContainers=[container("i", gpu="3")]
    )
    assert asked(pod) == {"container-0-request-0": ("gpu", 2), "container-1-request-0": ("gpu", 1)}
    assert {item[2] for item in mapped(pod) if item[0] == "i"} == {
        "container-0-request-0",
        "container-1-request-0",
    }


def test_a_sidecar_keeps_its_devices_and_only_earlier_init_containers_may_use_them() -> None:
    pod = build.pod(
        "p",
        containers=[container("main", nic="1")],
        initContainers=[container("a", gpu="1"), sidecar("s", gpu="1"), container("b", gpu="2")],
    )
    assert asked(pod) == {
        "container-1-request-0": ("gpu", 1),
        "container-2-request-0": ("gpu", 2),
        "container-3-request-0": ("nic", 1),
    }
    assert mapped(pod) == {
        ("a", GPU, "container-1-request-0"),
        ("s", GPU, "container-1-request-0"),
        ("b", GPU, "container-2-request-0"),
        ("main", NIC, "container-3-request-0"),
    }


def test_a_limit_stands_for_the_request_an_api_server_would_write() -> None:
    only_limits = [{"name": "a", "resources": {"limits": {GPU: "2"}, "requests": {"cpu": "1"}}}]
    assert asked(build.pod("p", containers=only_limits)) == {"container-0-request-1": ("gpu", 2)}


def test_the_newest_class_stands_behind_a_resource_then_the_first_by_name() -> None:
    def behind(**created: str) -> str:
        known = {
            name: build.gpu_class(
                name,
                extendedResourceName=GPU,
                metadata={"creationTimestamp": f"2026-01-{day}T00:00:00Z"},
            )
            for name, day in created.items()
        }
        return extended_resources.classes_by_resource(known)[GPU]

    assert behind(a="01", b="02") == "b"
    assert behind(a="02", b="01") == "a"
    assert behind(b="01", a="01") == "a"


def test_every_class_stands_behind_the_resource_of_its_own_name() -> None:
    result = extended_resources.classes_by_resource({"gpu": build.gpu_class()})
    assert result == {"deviceclass.resource.kubernetes.io/gpu": "gpu"}


# Where the pod goes, and what the plan says


def test_a_pod_gets_devices_through_a_claim_made_for_it() -> None:
    [placement] = build.decided(cluster(wanting(gpus=2))).placements
    made = placement.made
    assert made is not None
    assert (made.existing, placement.allocations, placement.reservations) == (None, (), ())
    metadata = made.claim.metadata
    assert (metadata.name, metadata.generate_name, metadata.namespace) == (
        "",
        "p-extended-resources-",
        "default",
    )
    assert metadata.uid == ""
    assert metadata.annotations == {extended_resources.ANNOTATION: "true"}
    [owner] = metadata.owner_references
    assert (owner.api_version, owner.kind, owner.name, owner.uid, owner.controller) == (
        "v1", "Pod", "p", "uid-of-p", True,
    )  # fmt: skip
    assert {(result.pool, result.request) for result in made.result.devices.results} == {
        ("n0", "container-0-request-1")
    }
    assert len(made.result.devices.results) == 2
    assert [(mapping.container_name, mapping.resource_name) for mapping in made.mappings] == [
        ("main", GPU)
    ]


def test_a_class_is_asked_for_by_its_own_name_too() -> None:
    named = container() | {
        "resources": {"requests": {"deviceclass.resource.kubernetes.io/gpu": "1"}}
    }
    [placement] = build.decided(build.world(build.pod("p", containers=[named]), nodes=1)).placements
    assert placement.made is not None
    assert placement.made.mappings[0].resource_name == "deviceclass.resource.kubernetes.io/gpu"


def test_where_a_device_plugin_offers_the_resource_it_is_counted_and_no_claim_is_made() -> None:
    world = cluster(build.node("n0", allocatable={GPU: "2"}), nodes=1)
    build.put(world, wanting("a", 2), wanting("b", 1))
    plan_ = build.decided(world)
    assert build.nodes_of(plan_) == {"a": "n0"}
    assert plan_.placements[0].made is None
    assert build.summary_of(plan_, "b") == f"1 node: 1 lacks {GPU} (needs 1, at most 0 free)"


def test_a_plugin_that_has_given_everything_away_is_not_helped_out_by_devices() -> None:
    """By its free amounts alone, the node looks like one without a plugin."""
    world = cluster(build.node("n0", allocatable={GPU: "1"}), nodes=2, gpus=1)
    build.put(world, wanting("a"), wanting("b"), wanting("c"))
    plan_ = build.decided(world)
    made = {placement.node: placement.made is not None for placement in plan_.placements}
    assert made == {"n0": False, "n1": True}
    assert len(plan_.refusals) == 1
    assert build.decided(build.carried_out(world, plan_)).placements == ()


def test_on_each_node_devices_serve_what_its_plugins_do_not() -> None:
    world = cluster(nodes=0)
    nic = build.gpu_class(
        "nic", when='device.driver == "net.example.com"', extendedResourceName=NIC
    )
    build.put(world, nic, build.node("n0", allocatable={NIC: "1"}), build.gpu_slice("n0", 2))
    build.put(world, build.pod("p", containers=[container(gpu="1", nic="1")]))
    [placement] = build.decided(world).placements
    assert placement.made is not None
    assert {mapping.resource_name for mapping in placement.made.mappings} == {GPU}


def test_devices_of_made_claims_are_given_once() -> None:
    world = cluster(*(wanting(f"p{index}") for index in range(5)), nodes=2, gpus=2)
    plan_ = build.decided(world)
    taken = [
        (result.pool, result.device)
        for placement in plan_.placements
        if placement.made is not None
        for result in placement.made.result.devices.results
    ]
    assert len(taken) == len(set(taken)) == 4
    assert build.summary_of(plan_, "p4") == (
        f"2 nodes: 2 cannot serve resource {GPU}: 2 tolerated -> 0 free (needs 1)"
    )


def test_a_claim_of_its_own_and_an_extended_resource_do_not_get_the_same_device() -> None:
    world = cluster(build.claim("c"), wanting(uses=("c",)), nodes=1, gpus=2)
    [placement] = build.decided(world).placements
    assert placement.made is not None
    devices = [result.device for result in placement.made.result.devices.results]
    assert sorted(devices + [name.partition("/")[2] for name in build.devices_of(build.decided(world), "p")]) == [
        "gpu-0", "gpu-1",
    ]  # fmt: skip


def test_a_resource_no_node_has_is_lacking() -> None:
    world = build.world(wanting(), nodes=1)
    assert (
        build.summary_of(build.decided(world), "p")
        == f"1 node: 1 lacks {GPU} (needs 1, at most 0 free)"
    )


def test_shares_for_two_pods_have_ids_of_their_own() -> None:
    memory = {"value": "24Gi", "requestPolicy": {"default": "6Gi"}}
    shared = [{"name": "gpu-0", "allowMultipleAllocations": True, "capacity": {"memory": memory}}]
    world = build.put(
        cluster(nodes=0), build.node("n0"), build.gpu_pool("n0", shared), wanting("a"), wanting("b")
    )
    mades = [placement.made for placement in build.decided(world).placements]
    ids = [made.result.devices.results[0].share_id for made in mades if made is not None]
    assert len(set(ids)) == 2
    assert None not in ids


# What the node is charged


def test_a_resource_that_devices_serve_is_not_taken_of_the_node() -> None:
    world = cluster(wanting(gpus=3))
    [placement] = build.decided(world).placements
    build.assume(world, placement)
    assert world.free("n0").scalars == ()
    build.carry_out(world, placement)
    assert world.free("n0").scalars == ()
    assert world.free("n0").milli_cpu == 63_000
    assert world.assumed == {}
    assert world.view("n0").pools[0].used.bit_count() == 3


def test_a_pod_served_by_a_plugin_is_taken_of_the_node() -> None:
    world = cluster(build.node("n0", allocatable={GPU: "2"}), wanting(gpus=2), nodes=1)
    [placement] = build.decided(world).placements
    build.assume(world, placement)
    assert world.free("n0").scalars == ()
    assert pod_requests.pod_request(world.pods["uid-of-p"]).scalars == ((GPU, 2),)


# Claims made before a crash


def interrupted(*given: Any, with_devices: bool, gpus: int = 1) -> tuple[World, plan.Placement]:
    """A world in which the claim was written, but not the binding."""
    world = cluster(wanting(gpus=gpus), *given)
    [placement] = build.decided(world).placements
    assert placement.made is not None
    if with_devices:
        build.write_claims(world, placement)
    else:
        build.create_claim(world, placement.made)
    return world, placement


def test_a_claim_without_devices_that_was_made_before_is_used() -> None:
    world, _ = interrupted(with_devices=False)
    [again] = build.decided(world).placements
    assert again.made is not None
    assert again.made.existing is not None
    assert again.made.claim == world.claims["default", again.made.existing.name]
    assert len(again.made.result.devices.results) == 1
    build.carry_out(world, again)
    assert len(world.claims) == 1


def test_a_claim_with_devices_that_was_made_before_is_followed() -> None:
    world, before = interrupted(build.node("z"), build.gpu_slice("z", 1), with_devices=True)
    assert before.node == "z"
    build.put(world, build.node("a"), build.gpu_slice("a", 1))  # would be chosen now
    [again] = build.decided(world).placements
    assert before.made is not None
    assert again.made is not None
    assert (again.node, again.made.result) == (before.node, before.made.result)
    assert again.made.existing is not None
    assert again.made.mappings == before.made.mappings
    build.assume(world, again)
    assert world.users(build.DRIVER, "z", "gpu-0") == (("default", again.made.existing.name),)
    assert world.overlaps() == ()


def test_a_claim_that_asks_for_something_else_is_left_alone_and_a_new_one_made() -> None:
    world, before = interrupted(with_devices=False)
    build.put(
        world,
        build.gpu_class(
            "newer",
            extendedResourceName=GPU,
            metadata={"creationTimestamp": "2026-02-01T00:00:00Z"},
        ),
    )
    [again] = build.decided(world).placements
    assert again.made is not None
    assert again.made.existing is None
    assert again.made.claim.spec != before.made.claim.spec  # type: ignore[union-attr]


@pytest.mark.parametrize("field", ["annotations", "owner_references"])
def test_only_a_claim_marked_and_owned_is_the_pods(field: str) -> None:
    world, _ = interrupted(with_devices=False)
    [claim] = world.claims.values()
    other = msgspec.structs.replace(
        claim.metadata, **{field: type(getattr(claim.metadata, field))()}
    )
    build.put(world, msgspec.structs.replace(claim, metadata=other))
    [again] = build.decided(world).placements
    assert again.made is not None
    assert again.made.existing is None


def test_devices_where_the_pod_cannot_start_are_named_as_holding_it_back() -> None:
    world, placement = interrupted(with_devices=True)
    build.put(world, build.node(placement.node, unschedulable=True))
    [refusal] = build.decided(world).refusals
    assert [ref.name for ref in refusal.holding] == [next(iter(world.claims))[1]]
    codes = {obstacle.reason.code for obstacle in refusal.obstacles}
    assert codes == {ReasonCode.CORDONED, ReasonCode.CLAIM_ELSEWHERE}

"""Owners applied to a cluster in memory: nobody makes their pods, but those that are there start together."""

from __future__ import annotations

import datetime
from typing import Any

from dovetail import timestamps
from dovetail.kubetypes import codec
from dovetail.model import plan
from dovetail.sim.fleet import fleet_objects, fleet_spec
from dovetail.sim.local import control, local_cluster, local_evictions, local_gangs
from dovetail.world.world import World
from tests.sim.applying import NOW, applied
from tests.sim.test_control import of_kind

GROUP = {
    "apiVersion": "scheduling.k8s.io/v1beta1",
    "kind": "PodGroup",
    "metadata": {"name": "pg", "namespace": "default"},
    "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}},
}
KEY = ("default", "podgroup/pg")


def told(world: World) -> int:
    found = world.gangs.declared(KEY)
    return 0 if found is None else found.groups[0].min


def test_a_group_is_read_when_it_comes_differs_and_goes() -> None:
    world = World()
    seen = local_gangs.Owners(world)
    seen.seen(codec.decode(GROUP))
    assert told(world) == 3
    smaller: dict[str, Any] = GROUP | {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    seen.seen(codec.decode(smaller | {"apiVersion": "scheduling.k8s.io/v1alpha2"}))
    assert told(world) == 2
    seen.gone(codec.decode(GROUP))
    assert told(world) == 0


def test_what_cannot_be_read_is_passed_over() -> None:
    world = World()
    seen = local_gangs.Owners(world)
    seen.seen(codec.decode(GROUP))
    seen.seen(codec.decode(GROUP | {"spec": {"priority": "high"}}))
    assert told(world) == 0
    seen.seen(
        codec.decode(GROUP | {"apiVersion": "example.com/v1"})
    )  # another's kind of the same name
    assert told(world) == 0


def test_pods_of_an_applied_group_start_when_enough_are_there() -> None:
    def pod(name: str) -> dict[str, Any]:
        spec = {
            "schedulingGroup": {"podGroupName": "pg"},
            "containers": [{"name": "main", "image": "x"}],
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": spec,
        }

    def running(found: local_cluster.Cluster) -> int:
        return sum(one.status.phase == "Running" for one in of_kind(found, "Pod"))

    pool = fleet_spec.Pool(name="n", count=1, gpu="L4")
    nodes = fleet_objects.objects_of(fleet_spec.Fleet(name="f", pools=(pool,)))
    empty = applied(local_cluster.Cluster("f"), *nodes, GROUP)
    two = control.turn(applied(empty, pod("a"), pod("b")), now=NOW)
    assert running(two) == 0
    assert (
        running(control.turn(applied(two, pod("c")), now=NOW + datetime.timedelta(minutes=5))) == 3
    )


SHARED = {"name": "gpu", "resourceClaimTemplateName": "two"}
TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "two", "namespace": "default"},
    "spec": {
        "spec": {
            "devices": {
                "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]
            }
        }
    },
}


def sharing(name: str, *, of: str = "pg") -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {
        "schedulingGroup": {"podGroupName": of},
        "containers": [container],
        "resourceClaims": [SHARED],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def test_pods_of_an_applied_group_share_its_claim_until_all_have_gone() -> None:
    pool = fleet_spec.Pool(name="n", count=1, gpu="L4")
    nodes = fleet_objects.objects_of(fleet_spec.Fleet(name="f", pools=(pool,)))
    group = GROUP | {
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, "resourceClaims": [SHARED]}
    }
    empty = applied(local_cluster.Cluster("f"), *nodes, TEMPLATE, group)
    made = control.turn(applied(empty, sharing("a"), sharing("b")), now=NOW)
    (claim,) = of_kind(made, "ResourceClaim")
    assert [(one.resource, one.name) for one in claim.status.reserved_for] == [("podgroups", "pg")]
    assert {one.status.phase for one in of_kind(made, "Pod")} == {"Running"}
    assert control.turn(made, now=NOW) == made
    ref = [plan.pod_ref(one) for one in of_kind(made, "Pod")]
    first, second = (
        plan.Eviction(
            pod=one, gang=plan.GangRef("default", "podgroup/pg"), rule=plan.Rule.PREEMPTED
        )
        for one in ref
    )
    half = local_evictions.evicted(made, [first], now=timestamps.to_text(NOW))
    assert of_kind(half, "ResourceClaim")[0].status.allocation is not None
    (free,) = of_kind(
        local_evictions.evicted(half, [second], now=timestamps.to_text(NOW)), "ResourceClaim"
    )
    assert (free.status.allocation, free.status.reserved_for) == (None, ())


def test_an_applied_tree_of_groups_starts_as_a_whole() -> None:
    def below(name: str) -> dict[str, Any]:
        spec = {"parentCompositePodGroupName": "all", "schedulingPolicy": {"gang": {"minCount": 1}}}
        return GROUP | {"metadata": {"name": name, "namespace": "default"}, "spec": spec}

    root = {
        "apiVersion": "scheduling.k8s.io/v1alpha3",
        "kind": "CompositePodGroup",
        "metadata": {"name": "all", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minGroupCount": 2}}},
    }
    pool = fleet_spec.Pool(name="n", count=1, gpu="L4", gpus_per_node=1)
    nodes = fleet_objects.objects_of(fleet_spec.Fleet(name="f", pools=(pool,)))
    empty = applied(local_cluster.Cluster("f"), *nodes, TEMPLATE, below("left"), below("right"))
    pair = applied(empty, sharing("a", of="left"), sharing("b", of="right"))
    assert {one.status.phase for one in of_kind(control.turn(pair, now=NOW), "Pod")} == {
        "Pending"
    }  # no parent
    tied = control.turn(applied(pair, root), now=NOW)
    assert {one.status.phase for one in of_kind(tied, "Pod")} == {"Pending"}  # one GPU for two
    loose = root | {"spec": {"schedulingPolicy": {"basic": {}}}}
    parted = control.turn(applied(pair, loose), now=NOW)
    assert sorted(one.status.phase for one in of_kind(parted, "Pod")) == ["Pending", "Running"]

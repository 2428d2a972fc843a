"""Owners applied to a cluster in memory: nobody makes their pods, but those that are there start together."""

from __future__ import annotations

import datetime
from typing import Any

from dovetail.model import objects
from dovetail.sim import cluster as clusters
from dovetail.sim import control, fleet, inventory, owners
from dovetail.world.world import World
from tests.sim.test_control import NOW, applied, of_kind

GROUP = {
    "apiVersion": "scheduling.k8s.io/v1beta1",
    "kind": "PodGroup",
    "metadata": {"name": "pg", "namespace": "default"},
    "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}},
}
KEY = ("default", "podgroup/pg")


def told(world: World) -> int:
    found = world.gangs.told(KEY)
    return 0 if found is None else found.groups[0].min


def test_a_group_is_read_when_it_comes_differs_and_goes() -> None:
    world = World()
    seen = owners.Owners(world)
    seen.seen(objects.decode(GROUP))
    assert told(world) == 3
    smaller: dict[str, Any] = GROUP | {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    seen.seen(objects.decode(smaller | {"apiVersion": "scheduling.k8s.io/v1alpha2"}))
    assert told(world) == 2
    seen.gone(objects.decode(GROUP))
    assert told(world) == 0


def test_what_cannot_be_read_is_passed_over() -> None:
    world = World()
    seen = owners.Owners(world)
    seen.seen(objects.decode(GROUP))
    seen.seen(objects.decode(GROUP | {"spec": {"priority": "high"}}))
    assert told(world) == 0
    seen.seen(objects.decode(GROUP | {"apiVersion": "example.com/v1"}))  # another's kind of the same name
    assert told(world) == 0


def test_pods_of_an_applied_group_start_when_enough_are_there() -> None:
    def pod(name: str) -> dict[str, Any]:
        spec = {"schedulingGroup": {"podGroupName": "pg"}, "containers": [{"name": "main", "image": "x"}]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}

    def running(found: clusters.Cluster) -> int:
        return sum(one.status.phase == "Running" for one in of_kind(found, "Pod"))

    pool = fleet.Pool(name="n", count=1, gpu="L4")
    nodes = inventory.objects_of(fleet.Fleet(name="f", pools=(pool,)))
    empty = applied(clusters.Cluster("f"), *nodes, GROUP)
    two = control.turn(applied(empty, pod("a"), pod("b")), now=NOW)
    assert running(two) == 0
    assert running(control.turn(applied(two, pod("c")), now=NOW + datetime.timedelta(minutes=5))) == 3

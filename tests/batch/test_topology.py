"""Stories about where gangs stand: the tightest domain, wider ones, lots, spreading, and cliques of NVLink."""

from __future__ import annotations

import collections
from typing import Any

from dovetail.model import gangs
from dovetail.world.events import Object
from tests.batch import simulated_cluster
from tests.batch.simulated_cluster import Ask, Cluster
from tests.schedule import build

ZONE, RACK = "zone", "rack"
CLIQUE = "nvidia.com/gpu.clique"
WHOLE = Ask(gpus=1)


def rack(zone: str, name: str, *, nodes: int, gpus: int = 2) -> list[Object]:
    """Nodes of one rack, each with GPUs."""
    objects: list[Object] = []
    for index in range(nodes):
        node = f"{zone}{name}{index}"
        objects += [build.node(node, labels={ZONE: zone, RACK: name}), build.gpu_slice(node, gpus)]
    return objects


def place(**wish: Any) -> gangs.TopologyRequest:
    return gangs.TopologyRequest(**{"topology": "place", **wish})


def cluster(*racks: list[Object]) -> Cluster:
    return Cluster(
        [
            simulated_cluster.topology("place", ZONE, RACK),
            *(item for part in racks for item in part),
        ]
    )


def racks_of(result: Cluster, name: str) -> list[str]:
    """The racks its pods run in, pod by pod."""
    return [node[:2] for node in result.nodes_of(f"gang/{name}")]


def test_the_tightest_rack_that_fits_is_taken() -> None:
    result = cluster(rack("a", "1", nodes=4), rack("a", "2", nodes=2), rack("a", "3", nodes=1))
    result.submit(simulated_cluster.gang("train", *[WHOLE] * 4, topology=place(required=RACK)))
    result.settle()
    assert racks_of(result, "train") == ["a2"] * 4


def test_a_required_rack_is_required() -> None:
    result = cluster(rack("a", "1", nodes=1), rack("a", "2", nodes=1))
    result.submit(simulated_cluster.gang("train", *[WHOLE] * 4, topology=place(required=RACK)))
    result.settle()
    assert not result.running("gang/train")
    [why, *_] = result.decided().refusals
    assert "none of 2 domains of topology place down to rack has room for it" in why.summary


def test_a_preferred_rack_gives_way_to_the_zone_and_then_to_anywhere() -> None:
    wide = cluster(rack("a", "1", nodes=1), rack("a", "2", nodes=1), rack("b", "1", nodes=1))
    wide.submit(simulated_cluster.gang("train", *[WHOLE] * 4, topology=place(preferred=RACK)))
    wide.settle()
    assert sorted(racks_of(wide, "train")) == ["a1", "a1", "a2", "a2"]
    apart = cluster(rack("a", "1", nodes=1), rack("b", "1", nodes=1))
    apart.submit(simulated_cluster.gang("train", *[WHOLE] * 4, topology=place(preferred=RACK)))
    apart.settle()
    assert sorted(racks_of(apart, "train")) == ["a1", "a1", "b1", "b1"]


def test_what_is_required_for_ten_minutes_is_preferred_afterwards() -> None:
    result = cluster(rack("a", "1", nodes=1), rack("a", "2", nodes=1))
    result.submit(
        simulated_cluster.gang(
            "train", *[WHOLE] * 4, topology=place(required=RACK, relax_after_seconds=600)
        )
    )
    result.settle()
    assert not result.running("gang/train")
    assert result.decided().wake_at == result.now.replace(minute=10)
    result.advance(599)
    result.settle()
    assert not result.running("gang/train")
    result.advance(600)
    result.settle()
    assert sorted(racks_of(result, "train")) == ["a1", "a1", "a2", "a2"]


def test_a_gang_that_grows_stays_where_it_has_to_be() -> None:
    result = cluster(rack("a", "1", nodes=2), rack("a", "2", nodes=3))
    result.submit(
        simulated_cluster.gang(
            "small", *[WHOLE] * 3, topology=place(required=RACK), is_preemptible=False
        )
    )
    result.settle()
    result.submit(
        simulated_cluster.gang("wide", *[WHOLE] * 4, least=1, topology=place(required=RACK))
    )
    result.settle()
    assert racks_of(result, "small") == ["a1"] * 3
    assert racks_of(result, "wide") == ["a1"]  # where one was left; the free rack is another one


def test_groups_have_domains_of_their_own_inside_that_of_the_gang() -> None:
    result = cluster(
        rack("a", "1", nodes=1),
        rack("a", "2", nodes=1),
        rack("b", "1", nodes=1),
        rack("b", "2", nodes=4),
    )
    groups = tuple(
        gangs.Group(name=name, min=2, topology=place(required=RACK)) for name in ("left", "right")
    )
    seats = ("left", "left", "right", "right")
    result.submit(
        simulated_cluster.gang(
            "set", *[WHOLE] * 4, groups=groups, seats=seats, topology=place(required=ZONE)
        )
    )
    result.settle()
    assert racks_of(result, "set") in (["a1", "a1", "a2", "a2"], ["a2", "a2", "a1", "a1"])


# Lots


def test_a_gang_in_lots_of_four_has_each_lot_in_one_rack() -> None:
    result = cluster(rack("a", "1", nodes=2), rack("a", "2", nodes=2), rack("b", "1", nodes=3))
    result.submit(
        simulated_cluster.gang("train", *[WHOLE] * 12, topology=place(required=RACK, segment=4))
    )
    result.settle()
    racks = racks_of(result, "train")
    assert [len({*racks[start : start + 4]}) for start in (0, 4, 8)] == [1, 1, 1]
    assert collections.Counter(racks) == {"a1": 4, "a2": 4, "b1": 4}


def test_lots_are_all_or_nothing_together() -> None:
    result = cluster(rack("a", "1", nodes=2), rack("a", "2", nodes=1), rack("b", "1", nodes=1))
    result.submit(
        simulated_cluster.gang("train", *[WHOLE] * 8, topology=place(required=RACK, segment=4))
    )
    result.settle()
    assert not result.running("gang/train")
    assert "a lot of 4 pods" in result.decided().refusals[0].summary


def test_lots_prefer_to_be_near_each_other() -> None:
    far = [
        rack("a", "1", nodes=1),
        rack("a", "2", nodes=3),
        rack("b", "1", nodes=1),
        rack("b", "2", nodes=1),
    ]
    result = cluster(*far)
    result.submit(
        simulated_cluster.gang(
            "train", *[WHOLE] * 4, topology=place(required=RACK, preferred=ZONE, segment=2)
        )
    )
    result.settle()
    assert collections.Counter(racks_of(result, "train")) == {"b1": 2, "b2": 2}


def test_a_lost_pod_comes_back_to_its_lot() -> None:
    result = cluster(rack("a", "1", nodes=2), rack("a", "2", nodes=3))
    result.submit(
        simulated_cluster.gang("train", *[WHOLE] * 8, topology=place(required=RACK, segment=4))
    )
    result.settle()
    lost = result.running("gang/train")[1]
    result.delete(lost.metadata.uid)
    result.advance(simulated_cluster.GRACE)
    result.settle()
    assert collections.Counter(racks_of(result, "train")) == {"a1": 4, "a2": 4}


# Spreading


def test_pods_that_are_spread_go_to_as_many_racks_as_there_are() -> None:
    result = cluster(rack("a", "1", nodes=4), rack("a", "2", nodes=2), rack("b", "1", nodes=1))
    result.submit(
        simulated_cluster.gang("serve", *[WHOLE] * 3, topology=place(preferred=RACK, spread=True))
    )
    result.settle()
    assert sorted(racks_of(result, "serve")) == ["a1", "a2", "b1"]
    result.submit(
        simulated_cluster.gang("more", *[WHOLE] * 6, topology=place(preferred=RACK, spread=True))
    )
    result.settle()
    assert collections.Counter(racks_of(result, "more")) == {"a1": 3, "a2": 2, "b1": 1}


def test_pods_that_are_spread_stay_in_the_zone_they_have_to_be_in() -> None:
    result = cluster(rack("a", "1", nodes=1), rack("b", "1", nodes=1), rack("b", "2", nodes=1))
    result.submit(
        simulated_cluster.gang(
            "serve", *[WHOLE] * 3, topology=place(required=ZONE, preferred=RACK, spread=True)
        )
    )
    result.settle()
    assert collections.Counter(racks_of(result, "serve")) in (
        {"b1": 2, "b2": 1},
        {"b1": 1, "b2": 2},
    )


# Levels without a named Topology


def test_without_the_name_of_a_topology_any_that_has_the_level_is_meant() -> None:
    result = cluster(rack("a", "1", nodes=1), rack("b", "1", nodes=2))
    result.submit(
        simulated_cluster.gang("train", *[WHOLE] * 4, topology=place(topology="", required=RACK))
    )
    result.settle()
    assert racks_of(result, "train") == ["b1"] * 4  # rack 1 of zone a is another rack


def test_a_label_no_topology_has_is_a_level_of_its_own() -> None:
    result = Cluster([*rack("a", "1", nodes=1), *rack("b", "1", nodes=1), *rack("b", "2", nodes=1)])
    result.submit(
        simulated_cluster.gang("train", *[WHOLE] * 4, topology=place(topology="", required=RACK))
    )
    result.settle()
    assert sorted(racks_of(result, "train")) == ["a1", "a1", "b1", "b1"]
    result.submit(
        simulated_cluster.gang("lost", WHOLE, topology=place(topology="", required="row"))
    )
    result.settle()
    assert (
        "no Topology has a level row, and no node that label"
        in result.decided().refusals[0].summary
    )


# GB200 NVL72: 18 nodes of four GPUs are one NVLink clique


def nvl72(clique: str, *, nodes: int = 18) -> list[Object]:
    objects: list[Object] = []
    for index in range(nodes):
        name = f"{clique}-{index:02d}"
        devices = [
            {
                "name": f"gpu-{at}",
                "attributes": {
                    "model": {"string": "H100"},
                    "cliqueID": {"string": clique},
                    "numa": {"int": at // 2},
                    "pcieRoot": {"string": f"root-{at}"},
                },
            }
            for at in range(4)
        ]
        objects += [build.node(name, labels={CLIQUE: clique}), build.gpu_pool(name, devices)]
    return objects


def clique() -> gangs.TopologyRequest:
    return gangs.TopologyRequest(topology="", required=CLIQUE)


def test_seventy_two_gpus_are_one_island_and_seventy_three_are_none() -> None:
    result = Cluster([*nvl72("left"), *nvl72("right")])
    result.submit(simulated_cluster.gang("whole", *[Ask(gpus=4)] * 18, topology=clique()))
    result.submit(simulated_cluster.gang("more", *[Ask(gpus=4)] * 19, topology=clique()))
    result.settle()
    assert len({node.rpartition("-")[0] for node in result.nodes_of("gang/whole")}) == 1
    assert len(result.running("gang/whole")) == 18
    assert not result.running("gang/more")


def test_two_gangs_share_an_island_before_another_is_broken_into() -> None:
    result = Cluster([*nvl72("left"), *nvl72("right")])
    for name in ("a", "b", "c"):
        result.submit(simulated_cluster.gang(name, *[Ask(gpus=4)] * 6, topology=clique()))
        result.settle()
    islands = {
        node.rpartition("-")[0]
        for name in ("a", "b", "c")
        for node in result.nodes_of(f"gang/{name}")
    }
    assert len(islands) == 1


def test_below_the_node_devices_say_what_is_linked() -> None:
    attribute = f"{build.DRIVER}/numa"
    outcome = Cluster(nvl72("left", nodes=1))
    outcome.submit(simulated_cluster.gang("first", WHOLE))
    outcome.settle()
    outcome.submit(simulated_cluster.gang("pair", Ask(gpus=2, same=attribute), topology=clique()))
    outcome.submit(simulated_cluster.gang("third", Ask(gpus=2, same=attribute), topology=clique()))
    outcome.settle()
    assert len(outcome.running("gang/pair")) == 1
    assert not outcome.running("gang/third")  # one GPU is left
    [held] = [
        one.status.allocation
        for key, one in outcome.world.claims.items()
        if key[1].startswith("pair") and one.status.allocation is not None
    ]
    assert {result.device for result in held.devices.results} in (
        {"gpu-0", "gpu-1"},
        {"gpu-2", "gpu-3"},
    )

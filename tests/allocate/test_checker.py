"""The validity checker accepts every recorded allocation and notices each rule being broken."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.allocate import checker, checker_pools, recorded
from tests.support import shared

Tree = dict[str, Any]
DRIVER = "gpu.example.com"
NODE: Tree = {"metadata": {"name": "a", "labels": {"zone": "z1"}}}
FILES = ("probes", "fuzz_a")


@pytest.mark.parametrize("file", FILES)
def test_recorded_allocations_are_valid(file: str) -> None:
    judged = 0
    for world in shared.lines(f"conformance/dra/{file}.jsonl.gz"):
        nodes = {node["metadata"]["name"]: node for node in world["nodes"]}
        for name, answer in world["answers"].items():
            if answer["outcome"] != "allocated":
                continue
            violations = checker.violations(
                world,
                nodes[name],
                results=answer["results"],
                matches=recorded.verdicts(world),
                are_shares_distinct=False,  # recorded share ids are all the same
            )
            assert not violations, (world["id"], name, violations)
            judged += 1
    assert judged > 40


def test_use_by_claims_and_by_listing_is_the_same() -> None:
    for world in shared.lines("conformance/dra/fuzz_a.jsonl.gz"):
        by_listing = checker_pools.use_of(world)
        by_claims = checker_pools.use_of({**world, "inUse": None})
        assert by_listing.exclusive == by_claims.exclusive, world["id"]
        held = {key: value for key, value in by_claims.capacity.items() if value}
        assert held == {key: value for key, value in by_listing.capacity.items() if value}, world[
            "id"
        ]


HERE: Tree = {
    "nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
    ]
}
GPU: Tree = {"attributes": {"numa": {"int": 0}}, "capacity": {"memory": {"value": "40Gi"}}}


def base() -> tuple[Tree, list[Tree]]:
    """A world with one of everything, and a valid allocation of its two claims."""
    selector = {"cel": {"expression": "not other"}}
    world = {
        "deviceClasses": [
            {
                "metadata": {"name": "gpu"},
                "spec": {"selectors": [selector], "config": [{"opaque": opaque(x=1)}]},
            },
            {"metadata": {"name": "any"}, "spec": {}},
        ],
        "resourceSlices": [*local_slices(), *other_slices()],
        "inUse": {
            "devices": [f"{DRIVER}/p/busy"],
            "shared": [f"{DRIVER}/p/shared/old"],
            "capacity": {f"{DRIVER}/p/shared": {"memory": "25Gi"}},
        },
        "claims": [
            claim(
                "pair",
                [request("two", count=2)],
                constraints=[{"matchAttribute": f"{DRIVER}/numa"}],
            ),
            claim(
                "share",
                [
                    request("part", class_name="any", memory="7Gi"),
                    alternatives("either"),
                    request("net", class_name="any"),
                ],
                constraints=[{"requests": ["part"], "distinctAttribute": f"{DRIVER}/numa"}],
                config=[{"requests": ["net"], "opaque": opaque()}],
            ),
        ],
    }
    return world, valid_results()


def local_slices() -> list[Tree]:
    """The pool of the node: devices in one slice, their counters in another."""
    drawn = [{"counterSet": "g", "counters": {"slices": {"value": "2"}}}]
    policy = {"default": "5Gi", "validRange": {"min": "5Gi", "step": "5Gi"}}
    devices = [
        {"name": "half-0", **GPU, "consumesCounters": drawn},
        {"name": "half-1", **GPU, "consumesCounters": drawn},
        {"name": "half-2", **GPU, "consumesCounters": drawn},
        {"name": "far", **GPU, "attributes": {"numa": {"int": 1}}},
        {"name": "tainted", **GPU, "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
        {"name": "busy", **GPU},
        {"name": "small", **GPU, "capacity": {"memory": {"value": "1Gi"}}},
        {"name": "other-kind", **GPU},
        {
            "name": "shared",
            "allowMultipleAllocations": True,
            "attributes": {"numa": {"int": 1}},
            "capacity": {"memory": {"value": "40Gi", "requestPolicy": policy}},
        },
    ]
    counters = [{"name": "g", "counters": {"slices": {"value": "4"}}}]
    spec = {
        "driver": DRIVER,
        "nodeName": "a",
        "pool": {"name": "p", "generation": 2, "resourceSliceCount": 2},
    }
    return [
        {"metadata": {"name": "s0"}, "spec": {**spec, "devices": devices}},
        {"metadata": {"name": "s1"}, "spec": {**spec, "sharedCounters": counters}},
    ]


def other_slices() -> list[Tree]:
    """A pool of another node, and one whose devices choose their nodes."""
    zone = {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z1"]}]}
        ]
    }
    devices = [
        {"name": "near", **GPU, "nodeSelector": zone},
        {"name": "not-here", **GPU, "nodeName": "b"},
    ]
    theirs = {"nodeName": "b", "devices": [{"name": "theirs", **GPU}]}
    network = {"perDeviceNodeSelection": True, "devices": devices}
    return [
        {
            "metadata": {"name": name},
            "spec": {
                "driver": DRIVER,
                "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
                **spec,
            },
        }
        for name, pool, spec in (("s2", "q", theirs), ("s3", "net", network))
    ]


def valid_results() -> list[Tree]:
    """One allocation per claim of the base."""
    part = result("part", "shared", shareID="new", consumedCapacity={"memory": "10Gi"})
    either = result("either/second", "tainted", tolerations=[{"key": "k", "operator": "Exists"}])
    of_class = {"source": "FromClass", "opaque": opaque(x=1)}
    of_claim = {"source": "FromClaim", "requests": ["net"], "opaque": opaque()}
    first = {"results": [result("two", "half-0"), result("two", "half-1")], "config": [of_class]}
    second = {
        "results": [part, either, result("net", "near", pool="net")],
        "config": [{**of_class, "requests": ["either/second"]}, of_claim],
    }
    return [{"devices": first, "nodeSelector": HERE}, {"devices": second, "nodeSelector": HERE}]


def opaque(**parameters: int) -> Tree:
    return {"driver": DRIVER, "parameters": parameters}


def claim(name: str, requests: list[Tree], **more: Any) -> Tree:
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": requests, **more}}}


def request(name: str, *, class_name: str = "gpu", count: int = 1, memory: str = "") -> Tree:
    tree: Tree = {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": count}
    if memory:
        tree["capacity"] = {"requests": {"memory": memory}}
    return {"name": name, "exactly": tree}


def alternatives(name: str) -> Tree:
    first = {"name": "first", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 9}
    tolerations = [{"key": "k", "operator": "Exists"}]
    second = {**first, "name": "second", "count": 1, "tolerations": tolerations}
    return {"name": name, "firstAvailable": [first, second]}


def result(name: str, device: str, *, pool: str = "p", **more: Any) -> Tree:
    return {"request": name, "driver": DRIVER, "pool": pool, "device": device, **more}


def judged(world: Tree, results: list[Tree]) -> set[int]:
    def matches(expression: str, place: checker_pools.Place) -> bool:
        assert expression == "not other"
        return bool(place.device["name"] != "other-kind")

    return {rule for rule, _ in checker.violations(world, NODE, results=results, matches=matches)}


def entries(results: list[Tree], claim: int) -> list[Tree]:
    listed: list[Tree] = results[claim]["devices"]["results"]
    return listed


def spec_of(world: Tree, index: int) -> Tree:
    spec: Tree = world["resourceSlices"][index]["spec"]
    return spec


def test_the_base_is_valid() -> None:
    assert judged(*base()) == set()


def use_all_of_a_class(world: Tree, results: list[Tree]) -> None:
    """All gpus, while one of them is busy: the request got three of them."""
    world["claims"][0]["spec"]["devices"]["requests"][0]["exactly"] = {
        "deviceClassName": "gpu",
        "allocationMode": "All",
    }


def swap_options(world: Tree, results: list[Tree]) -> None:
    """One request served by two of its options."""
    entries(results, 1).insert(1, result("either/first", "far"))


Change = Callable[[Tree, list[Tree]], Any]
MUTATIONS: dict[str, tuple[int, Change]] = {
    "a slice of another node": (1, lambda w, r: entries(r, 0)[0].update(device="theirs", pool="q")),
    "a device that does not exist": (1, lambda w, r: entries(r, 0)[0].update(device="nothing")),
    "an incomplete pool": (1, lambda w, r: spec_of(w, 0)["pool"].update(resourceSliceCount=3)),
    "an old generation": (1, lambda w, r: spec_of(w, 0)["pool"].update(generation=1)),
    "a pool being replaced elsewhere": (
        1,
        lambda w, r: (
            w["resourceSlices"].append(
                {
                    "metadata": {"name": "s9"},
                    "spec": {**spec_of(w, 2), "pool": {"name": "p", "generation": 3}},
                }
            )
            or spec_of(w, 0)["pool"].update(resourceSliceCount=3)
        ),
    ),
    "a device name twice": (2, lambda w, r: spec_of(w, 0)["devices"].append({"name": "far"})),
    "an unknown counter set": (
        2,
        lambda w, r: spec_of(w, 0)["devices"][3].update(
            consumesCounters=[{"counterSet": "x", "counters": {}}]
        ),
    ),
    "an unknown counter": (
        2,
        lambda w, r: spec_of(w, 0)["devices"][3].update(
            consumesCounters=[{"counterSet": "g", "counters": {"x": {"value": "1"}}}]
        ),
    ),
    "a counter set twice": (
        2,
        lambda w, r: spec_of(w, 1)["sharedCounters"].append({"name": "g", "counters": {}}),
    ),
    "a device meant for another node": (2, lambda w, r: entries(r, 1)[2].update(device="not-here")),
    "a selector of the class": (3, lambda w, r: entries(r, 0)[0].update(device="other-kind")),
    "an unknown class": (3, lambda w, r: w["deviceClasses"][0]["metadata"].update(name="renamed")),
    "an unknown request": (4, lambda w, r: entries(r, 1)[2].update(request="net/x")),
    "one device too few": (4, lambda w, r: entries(r, 0).pop()),
    "one device too many": (4, lambda w, r: entries(r, 1).append(result("net", "far"))),
    "the same device twice": (4, lambda w, r: entries(r, 0)[1].update(device="half-0")),
    "not all devices": (4, use_all_of_a_class),
    "two options at once": (4, swap_options),
    "a device in use": (5, lambda w, r: entries(r, 0)[1].update(device="busy")),
    "an exclusive device for two claims": (
        5,
        lambda w, r: entries(r, 1)[2].update(device="half-0", pool="p"),
    ),
    "a taint": (6, lambda w, r: entries(r, 0)[1].update(device="tainted")),
    "a taint of an administrator": (
        6,
        lambda w, r: w.update(
            deviceTaintRules=[
                {
                    "spec": {
                        "deviceSelector": {"device": "near"},
                        "taint": {"key": "x", "effect": "NoExecute"},
                    }
                }
            ]
        ),
    ),
    "a counter overdrawn by the pod": (
        7,
        lambda w, r: entries(r, 1)[2].update(device="half-2", pool="p"),
    ),
    "a counter overdrawn with what is in use": (
        7,
        lambda w, r: w["inUse"]["devices"].append(f"{DRIVER}/p/half-2"),
    ),
    "a capacity the device lacks": (
        8,
        lambda w, r: w["claims"][1]["spec"]["devices"]["requests"][2]["exactly"].update(
            capacity={"requests": {"cores": "1"}}
        ),
    ),
    "more than the device has": (
        8,
        lambda w, r: w["claims"][1]["spec"]["devices"]["requests"][2]["exactly"].update(
            capacity={"requests": {"memory": "41Gi"}}
        ),
    ),
    "a share not rounded up": (
        8,
        lambda w, r: entries(r, 1)[0].update(consumedCapacity={"memory": "7Gi"}),
    ),
    "shares beyond the device": (
        8,
        lambda w, r: w["inUse"]["capacity"][f"{DRIVER}/p/shared"].update(memory="31Gi"),
    ),
    "a share id that is taken": (8, lambda w, r: entries(r, 1)[0].update(shareID="old")),
    "consumption of an exclusive device": (
        8,
        lambda w, r: entries(r, 0)[0].update(consumedCapacity={"memory": "1"}),
    ),
    "unlike values": (9, lambda w, r: entries(r, 0)[1].update(device="far")),
    "a missing attribute": (9, lambda w, r: spec_of(w, 0)["devices"][0].update(attributes={})),
    "equal values": (
        9,
        lambda w, r: w["claims"][0]["spec"]["devices"].update(
            constraints=[{"distinctAttribute": f"{DRIVER}/numa"}]
        ),
    ),
    "another node": (
        10,
        lambda w, r: r[0].update(
            nodeSelector={
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}
                ]
            }
        ),
    ),
    "no node": (10, lambda w, r: r[0].pop("nodeSelector")),
    "no share id": (10, lambda w, r: entries(r, 1)[0].pop("shareID")),
    "a share id without a share": (10, lambda w, r: entries(r, 0)[0].update(shareID="x")),
    "admin access that was not requested": (
        10,
        lambda w, r: entries(r, 0)[0].update(adminAccess=True),
    ),
    "tolerations left out": (10, lambda w, r: entries(r, 1)[1].pop("tolerations")),
    "binding conditions left out": (
        10,
        lambda w, r: spec_of(w, 0)["devices"][0].update(bindingConditions=["c"]),
    ),
    "config left out": (10, lambda w, r: r[0]["devices"].pop("config")),
    "config in another order": (10, lambda w, r: r[1]["devices"]["config"].reverse()),
    "config for all requests names them": (
        10,
        lambda w, r: r[0]["devices"]["config"][0].update(requests=["two"]),
    ),
    "requests out of order": (10, lambda w, r: entries(r, 1).reverse()),
    "a result too few": (10, lambda w, r: r.pop()),
    "an unknown field": (10, lambda w, r: entries(r, 0)[0].update(colour="red")),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    rule, change = MUTATIONS[name]
    world, results = json.loads(json.dumps(base()))  # so that no two places share a part
    change(world, results)
    assert rule in judged(world, results), name


def test_every_rule_has_a_mutation() -> None:
    assert {rule for rule, _ in MUTATIONS.values()} == set(range(1, 11))


def test_a_claim_of_33_devices_is_noticed() -> None:
    devices = [{"name": f"d{at}"} for at in range(33)]
    spec = {
        "driver": DRIVER,
        "nodeName": "a",
        "pool": {"name": "p", "resourceSliceCount": 1},
        "devices": devices,
    }
    world = {
        "deviceClasses": [{"metadata": {"name": "any"}, "spec": {}}],
        "resourceSlices": [{"metadata": {"name": "s"}, "spec": spec}],
        "claims": [claim("c", [request("r", class_name="any", count=33)])],
    }
    chosen = [
        {
            "devices": {"results": [result("r", device["name"]) for device in devices]},
            "nodeSelector": HERE,
        }
    ]
    assert judged(world, chosen) == {4}


def test_administrators_may_look_at_a_device_in_use_and_charge_no_counters() -> None:
    world, results = base()
    world["inUse"]["devices"].append(f"{DRIVER}/p/half-0")
    assert 5 in judged(world, results)
    world["claims"][0]["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = True
    for entry in entries(results, 0):
        entry["adminAccess"] = True
    assert judged(world, results) == set()

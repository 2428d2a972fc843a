"""Random small clusters: nodes, slices, classes, claims in use and claims to place, in the schema of the probes.

All objects are valid and fully defaulted, since the allocator takes them as they are. Given a `random.Random`.
"""

from __future__ import annotations

import random
from typing import Any, Final

from tests.generators import slices

DRIVER: Final = "gpu.example.com"
NODES: Final = ("node-a", "node-b", "node-c")
_SHARE: Final = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
_CLASSES: Final = {
    "gpu": [f'device.driver == "{DRIVER}"'],
    "any": [],
    "full": [
        f'device.driver == "{DRIVER}"',
        f'device.attributes["{DRIVER}"].?type.orValue("") == "full"',
    ],
    "mig": [f'device.attributes["{DRIVER}"].?type.orValue("") == "mig"'],
    "shared": ["device.allowMultipleAllocations"],
}
_SELECTORS: Final = (
    f'device.attributes["{DRIVER}"].?model.orValue("") == "h100"',
    f'device.attributes["{DRIVER}"].?numa.orValue(0) < 1',
    f'"memory" in device.capacity["{DRIVER}"] && device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("20Gi"))',
    f'device.attributes["{DRIVER}"].?fw.orValue(semver("0.0.0")).isGreaterThan(semver("1.5.0"))',
)


def world(rng: random.Random) -> dict[str, Any]:
    """One cluster and the claims of one pod."""
    names = NODES[: rng.choice((1, 2, 3))]
    kind = rng.choice(("plain", "plain", "mig", "shared", "network", "taints"))
    published = [_slice(name, kind, rng) for name in names]
    if kind == "mig":
        published = [each for item in published for each in (item, _counters(item))]
    taken = _taken(published, rng)
    return {
        "profile": kind,
        "nodes": [_node(name, rng) for name in names],
        "deviceClasses": [_class(name, rules) for name, rules in _CLASSES.items()],
        "resourceSlices": published,
        "allocatedClaims": taken,
        "claims": [_claim(f"claim-{at}", rng) for at in range(rng.choice((1, 1, 2)))],
    }


def question(tree: dict[str, Any]) -> dict[str, Any]:
    """The world as the oracle's `allocate` takes it."""
    return {
        key: tree[key]
        for key in ("nodes", "deviceClasses", "resourceSlices", "allocatedClaims", "claims")
    }


def _node(name: str, rng: random.Random) -> dict[str, Any]:
    labels = {
        "kubernetes.io/hostname": name,
        "zone": rng.choice(("z1", "z2")),
        "gpus": rng.choice(("0", "8")),
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def _class(name: str, rules: list[str]) -> dict[str, Any]:
    spec: dict[str, Any] = (
        {"selectors": [{"cel": {"expression": rule}} for rule in rules]} if rules else {}
    )
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": spec,
    }


def _slice(node: str, kind: str, rng: random.Random) -> dict[str, Any]:
    count = 2 if kind == "mig" else 1
    if rng.random() < 0.05:
        count += 1  # a slice is missing: the pool is incomplete
    spec: dict[str, Any] = {
        "driver": DRIVER,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": count},
    }
    if kind == "network":
        spec["nodeSelector"] = {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z1"]}]}
            ]
        }
    else:
        spec["nodeName"] = node
    spec["devices"] = [_device(at, kind, rng) for at in range(rng.choice((1, 2, 4, 6)))]
    return _object("ResourceSlice", f"{node}-devices", spec)


def _counters(beside: dict[str, Any]) -> dict[str, Any]:
    """The slice with the counters that the devices of another one draw on."""
    spec = {key: value for key, value in beside["spec"].items() if key != "devices"}
    counters = {"memory": {"value": "80Gi"}, **{f"slice-{at}": {"value": "1"} for at in range(4)}}
    spec["sharedCounters"] = [{"name": f"gpu-{at}", "counters": counters} for at in range(2)]
    return _object("ResourceSlice", beside["metadata"]["name"].replace("devices", "counters"), spec)


def _device(at: int, kind: str, rng: random.Random) -> dict[str, Any]:
    attributes = {
        "model": {"string": rng.choice(("h100", "a100"))},
        "numa": {"int": rng.randint(0, 2)},
        "fw": {"version": rng.choice(("1.2.3", "1.10.0", "2.0.0-rc.1"))},
        "type": {"string": "mig" if kind == "mig" else "full"},
        "resource.kubernetes.io/pcieRoot": {"string": rng.choice(("pci0000:00", "pci0000:80"))},
    }
    tree: dict[str, Any] = {
        "name": f"dev-{at}",
        "attributes": {name: value for name, value in attributes.items() if rng.random() < 0.9},
        "capacity": {"memory": {"value": rng.choice(("10Gi", "40Gi", "80Gi"))}},
    }
    if kind == "shared" and rng.random() < 0.7:
        tree["allowMultipleAllocations"] = True
        tree["capacity"]["memory"]["requestPolicy"] = {
            "default": "5Gi",
            "validRange": {"min": "1Gi", "step": "1Gi"},
        }
    if kind == "taints" and rng.random() < 0.5:
        tree["taints"] = [slices.taint(rng)]
    if kind == "mig":
        first = rng.randint(0, 3)
        counters = {"memory": {"value": "20Gi"}, f"slice-{first}": {"value": "1"}}
        tree["consumesCounters"] = [
            {"counterSet": f"gpu-{rng.randint(0, 1)}", "counters": counters}
        ]
    return tree


def _taken(published: list[dict[str, Any]], rng: random.Random) -> list[dict[str, Any]]:
    """Claims that hold about a fifth of the devices."""
    result = []
    for each in published:
        for device in each["spec"].get("devices", ()):
            if rng.random() < 0.2:
                result.append(_holder(f"held-{len(result)}", each["spec"]["pool"]["name"], device))
    return result


def _holder(name: str, pool: str, device: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {
        "request": "r",
        "driver": DRIVER,
        "pool": pool,
        "device": device["name"],
    }
    if device.get("allowMultipleAllocations"):
        result |= {"shareID": _SHARE, "consumedCapacity": {"memory": "5Gi"}}
    request = {
        "name": "r",
        "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1},
    }
    tree = _object("ResourceClaim", name, {"devices": {"requests": [request]}})
    tree["metadata"]["namespace"] = "default"
    tree["status"] = {"allocation": {"devices": {"results": [result]}}}
    return tree


def _claim(name: str, rng: random.Random) -> dict[str, Any]:
    requests = [_request(f"r{at}", rng) for at in range(rng.choice((1, 1, 2)))]
    devices: dict[str, Any] = {"requests": requests}
    if rng.random() < 0.25:
        kind = rng.choice(("matchAttribute", "distinctAttribute"))
        devices["constraints"] = [
            {kind: rng.choice(("resource.kubernetes.io/pcieRoot", f"{DRIVER}/model"))}
        ]
    tree = _object("ResourceClaim", name, {"devices": devices})
    tree["metadata"]["namespace"] = "default"
    return tree


def _request(name: str, rng: random.Random) -> dict[str, Any]:
    if rng.random() < 0.8:
        return {"name": name, "exactly": _wanted(rng)}
    return {"name": name, "firstAvailable": [{"name": f"s{at}", **_wanted(rng)} for at in range(2)]}


def _wanted(rng: random.Random) -> dict[str, Any]:
    tree: dict[str, Any] = {
        "deviceClassName": rng.choice(("gpu", "gpu", "any", "full", "mig", "shared"))
    }
    if rng.random() < 0.3:
        tree["selectors"] = [{"cel": {"expression": rng.choice(_SELECTORS)}}]
    if rng.random() < 0.15:
        tree["allocationMode"] = "All"
    else:
        tree |= {"allocationMode": "ExactCount", "count": rng.choice((1, 1, 2, 4))}
    if rng.random() < 0.2:
        tree["tolerations"] = [{"operator": "Exists"}]
    if rng.random() < 0.2:
        tree["capacity"] = {"requests": {"memory": rng.choice(("5Gi", "30Gi"))}}
    return tree


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }

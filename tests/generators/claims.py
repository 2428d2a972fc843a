"""Random ResourceClaims, templates and DeviceClasses that an API server takes; statuses with allocations too."""

from __future__ import annotations

import copy
import random
from typing import Any

from tests.generators import slices

UID = "11111111-1111-1111-1111-111111111111"
SELECTORS = (
    'device.driver == "gpu.example.com"',
    'device.attributes["gpu.example.com"].model == "H100"',
    'device.attributes["gpu.example.com"].?index.orValue(0) > 3',
    'device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0',
    "device.allowMultipleAllocations",
    "true",
)


def claim(rng: random.Random) -> dict[str, Any]:
    """A claim without a status."""
    metadata: dict[str, Any] = {"name": "claim-1", "namespace": "default"}
    if rng.random() < 0.3:
        metadata |= {
            "labels": {"app": "train", "example.com/x": ""},
            "annotations": {"note": "any text"},
        }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": spec(rng),
    }


def template(rng: random.Random) -> dict[str, Any]:
    """A template with perhaps labels for its claims."""
    inner: dict[str, Any] = {"spec": spec(rng)}
    if rng.random() < 0.4:
        inner["metadata"] = {"labels": {"a": "b"}, "annotations": {"c": "d"}}
    metadata = {"name": "template-1", "namespace": "default"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": metadata,
        "spec": inner,
    }


def device_class(rng: random.Random) -> dict[str, Any]:
    """A class with selectors and configuration."""
    tree: dict[str, Any] = {}
    if rng.random() < 0.8:
        tree["selectors"] = selectors(rng)
    if rng.random() < 0.4:
        tree["config"] = [{"opaque": opaque(rng)}]
    if rng.random() < 0.3:
        tree["extendedResourceName"] = "example.com/gpu"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu.example.com"},
        "spec": tree,
    }


def spec(rng: random.Random) -> dict[str, Any]:
    """What a claim asks for."""
    requests = [request(f"r{at}", rng) for at in range(rng.choice((1, 1, 2, 3)))]
    tree: dict[str, Any] = {"requests": requests}
    names = [each["name"] for each in requests]
    if rng.random() < 0.4:
        tree["constraints"] = [constraint(names, rng) for _ in range(rng.choice((1, 2)))]
    if rng.random() < 0.3:
        tree["config"] = [
            {"requests": rng.sample(names, rng.randint(0, len(names))), "opaque": opaque(rng)}
        ]
    return {"devices": tree}


def request(name: str, rng: random.Random) -> dict[str, Any]:
    """One request, exact or with alternatives."""
    if rng.random() < 0.7:
        tree = _wanted(rng)
        if rng.random() < 0.1:
            tree["adminAccess"] = True
        return {"name": name, "exactly": tree}
    return {
        "name": name,
        "firstAvailable": [
            {"name": f"s{at}", **_wanted(rng)} for at in range(rng.choice((1, 2, 8)))
        ],
    }


def constraint(names: list[str], rng: random.Random) -> dict[str, Any]:
    """Something the devices share."""
    kind = rng.choice(("matchAttribute", "distinctAttribute"))
    tree: dict[str, Any] = {
        kind: rng.choice(("gpu.example.com/model", "resource.kubernetes.io/pcieRoot"))
    }
    if rng.random() < 0.6:
        tree["requests"] = rng.sample(names, rng.randint(1, len(names)))
    return tree


def selectors(rng: random.Random) -> list[dict[str, Any]]:
    """A few selectors."""
    return [{"cel": {"expression": text}} for text in rng.sample(SELECTORS, rng.choice((1, 1, 2)))]


def opaque(rng: random.Random) -> dict[str, Any]:
    """Configuration for a driver."""
    return {
        "driver": "gpu.example.com",
        "parameters": rng.choice(({}, {"sharing": "mps"}, {"a": [1, 2, {"b": None}]})),
    }


def allocated(tree: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The claim with a status: devices, perhaps users and reports."""
    done = copy.deepcopy(tree)
    results = []
    for each in done["spec"]["devices"]["requests"]:
        name = (
            each["name"]
            if "exactly" in each
            else f"{each['name']}/{each['firstAvailable'][0]['name']}"
        )
        result = {
            "request": name,
            "driver": "gpu.example.com",
            "pool": "node-1",
            "device": f"dev-{len(results)}",
        }
        if each.get("exactly", {}).get("adminAccess"):
            result["adminAccess"] = True
        results.append(result)
    allocation: dict[str, Any] = {"devices": {"results": results}}
    if rng.random() < 0.6:
        allocation["nodeSelector"] = slices.node_selector(rng)
    if rng.random() < 0.3:
        allocation["devices"]["config"] = [
            {"source": rng.choice(("FromClass", "FromClaim")), "opaque": opaque(rng)}
        ]
    status: dict[str, Any] = {"allocation": allocation}
    if rng.random() < 0.6:
        status["reservedFor"] = [
            {
                "resource": "pods",
                "name": f"pod-{at}",
                "uid": f"22222222-2222-2222-2222-22222222222{at}",
            }
            for at in range(rng.choice((1, 2)))
        ]
    if rng.random() < 0.4:
        status["devices"] = [_report(result, rng) for result in results[:1]]
    done["status"] = status
    return done


def stored(tree: dict[str, Any]) -> dict[str, Any]:
    """The object as it is read back: with an identity and a version."""
    done = copy.deepcopy(tree)
    done["metadata"] |= {"uid": UID, "resourceVersion": "1"}
    return done


def _wanted(rng: random.Random) -> dict[str, Any]:
    tree: dict[str, Any] = {"deviceClassName": "gpu.example.com"}
    if rng.random() < 0.4:
        tree["selectors"] = selectors(rng)
    mode = rng.choice(("", "", "ExactCount", "All"))
    if mode:
        tree["allocationMode"] = mode
    if mode != "All" and rng.random() < 0.5:
        tree["count"] = rng.randint(1, 4)
    if rng.random() < 0.25:
        tree["tolerations"] = [toleration(rng) for _ in range(rng.choice((1, 2)))]
    if rng.random() < 0.25:
        tree["capacity"] = {"requests": {"memory": rng.choice(("1Gi", "10", "0"))}}
    return tree


def toleration(rng: random.Random) -> dict[str, Any]:
    """A toleration of either operator."""
    tree: dict[str, Any] = rng.choice(
        (
            {"key": "example.com/maint", "operator": "Exists"},
            {"key": "example.com/maint", "operator": "Equal", "value": "a"},
            {"operator": "Exists"},
            {"key": "example.com/maint", "value": "a"},
        )
    ).copy()
    if rng.random() < 0.5:
        tree["effect"] = rng.choice(slices.EFFECTS[:2])
    if tree.get("effect") == "NoExecute" and rng.random() < 0.5:
        tree["tolerationSeconds"] = 30
    return tree


def _report(result: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    tree: dict[str, Any] = {key: result[key] for key in ("driver", "pool", "device")}
    if rng.random() < 0.6:
        tree["conditions"] = [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Up",
                "message": "fine",
                "lastTransitionTime": slices.SINCE,
            }
        ]
    if rng.random() < 0.5:
        tree["networkData"] = {
            "interfaceName": "eth0",
            "ips": ["10.0.0.1/24", "2001:db8::1/64"],
            "hardwareAddress": "ab:cd",
        }
    if rng.random() < 0.3:
        tree["data"] = {"a": 1}
    return tree

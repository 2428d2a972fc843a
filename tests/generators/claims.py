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
    made: dict[str, Any] = {}
    if rng.random() < 0.8:
        made["selectors"] = selectors(rng)
    if rng.random() < 0.4:
        made["config"] = [{"opaque": opaque(rng)}]
    if rng.random() < 0.3:
        made["extendedResourceName"] = "example.com/gpu"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu.example.com"},
        "spec": made,
    }


def spec(rng: random.Random) -> dict[str, Any]:
    """What a claim asks for."""
    requests = [request(f"r{at}", rng) for at in range(rng.choice((1, 1, 2, 3)))]
    made: dict[str, Any] = {"requests": requests}
    names = [each["name"] for each in requests]
    if rng.random() < 0.4:
        made["constraints"] = [constraint(names, rng) for _ in range(rng.choice((1, 2)))]
    if rng.random() < 0.3:
        made["config"] = [
            {"requests": rng.sample(names, rng.randint(0, len(names))), "opaque": opaque(rng)}
        ]
    return {"devices": made}


def request(name: str, rng: random.Random) -> dict[str, Any]:
    """One request, exact or with alternatives."""
    if rng.random() < 0.7:
        wanted = _wanted(rng)
        if rng.random() < 0.1:
            wanted["adminAccess"] = True
        return {"name": name, "exactly": wanted}
    return {
        "name": name,
        "firstAvailable": [
            {"name": f"s{at}", **_wanted(rng)} for at in range(rng.choice((1, 2, 8)))
        ],
    }


def constraint(names: list[str], rng: random.Random) -> dict[str, Any]:
    """Something the devices share."""
    kind = rng.choice(("matchAttribute", "distinctAttribute"))
    made: dict[str, Any] = {
        kind: rng.choice(("gpu.example.com/model", "resource.kubernetes.io/pcieRoot"))
    }
    if rng.random() < 0.6:
        made["requests"] = rng.sample(names, rng.randint(1, len(names)))
    return made


def selectors(rng: random.Random) -> list[dict[str, Any]]:
    """A few selectors."""
    return [{"cel": {"expression": text}} for text in rng.sample(SELECTORS, rng.choice((1, 1, 2)))]


def opaque(rng: random.Random) -> dict[str, Any]:
    """Configuration for a driver."""
    return {
        "driver": "gpu.example.com",
        "parameters": rng.choice(({}, {"sharing": "mps"}, {"a": [1, 2, {"b": None}]})),
    }


def allocated(made: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The claim with a status: devices, perhaps users and reports."""
    done = copy.deepcopy(made)
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


def stored(made: dict[str, Any]) -> dict[str, Any]:
    """The object as it is read back: with an identity and a version."""
    done = copy.deepcopy(made)
    done["metadata"] |= {"uid": UID, "resourceVersion": "1"}
    return done


def _wanted(rng: random.Random) -> dict[str, Any]:
    made: dict[str, Any] = {"deviceClassName": "gpu.example.com"}
    if rng.random() < 0.4:
        made["selectors"] = selectors(rng)
    mode = rng.choice(("", "", "ExactCount", "All"))
    if mode:
        made["allocationMode"] = mode
    if mode != "All" and rng.random() < 0.5:
        made["count"] = rng.randint(1, 4)
    if rng.random() < 0.25:
        made["tolerations"] = [toleration(rng) for _ in range(rng.choice((1, 2)))]
    if rng.random() < 0.25:
        made["capacity"] = {"requests": {"memory": rng.choice(("1Gi", "10", "0"))}}
    return made


def toleration(rng: random.Random) -> dict[str, Any]:
    """A toleration of either operator."""
    made: dict[str, Any] = rng.choice(
        (
            {"key": "example.com/maint", "operator": "Exists"},
            {"key": "example.com/maint", "operator": "Equal", "value": "a"},
            {"operator": "Exists"},
            {"key": "example.com/maint", "value": "a"},
        )
    ).copy()
    if rng.random() < 0.5:
        made["effect"] = rng.choice(slices.EFFECTS[:2])
    if made.get("effect") == "NoExecute" and rng.random() < 0.5:
        made["tolerationSeconds"] = 30
    return made


def _report(result: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    made: dict[str, Any] = {key: result[key] for key in ("driver", "pool", "device")}
    if rng.random() < 0.6:
        made["conditions"] = [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Up",
                "message": "fine",
                "lastTransitionTime": slices.SINCE,
            }
        ]
    if rng.random() < 0.5:
        made["networkData"] = {
            "interfaceName": "eth0",
            "ips": ["10.0.0.1/24", "2001:db8::1/64"],
            "hardwareAddress": "ab:cd",
        }
    if rng.random() < 0.3:
        made["data"] = {"a": 1}
    return made

"""Random ResourceSlices and DeviceTaintRules that an API server takes, with most fields of the API in use."""

from __future__ import annotations

import random
from typing import Any

from tests.generators import devices, versions

SINCE = "2026-01-01T00:00:00Z"
EFFECTS = ("NoSchedule", "NoExecute", "None")


def resource_slice(rng: random.Random) -> dict[str, Any]:
    """A slice with devices, or with the counters they draw on."""
    spec: dict[str, Any] = {
        "driver": rng.choice(devices.DRIVERS),
        "pool": {
            "name": rng.choice(("node-1", "pool/a.b/c", "p")),
            "generation": rng.randint(0, 3),
            "resourceSliceCount": 1,
        },
    }
    place = rng.choice(
        ("nodeName", "nodeName", "allNodes", "nodeSelector", "perDeviceNodeSelection")
    )
    spec[place] = {"nodeName": "node-1", "nodeSelector": node_selector(rng)}.get(place, True)
    if place != "perDeviceNodeSelection" and rng.random() < 0.2:
        spec["sharedCounters"] = [
            counter_set(f"set-{at}", rng) for at in range(rng.choice((1, 2, 8)))
        ]
    elif rng.random() < 0.95:
        is_placed = place == "perDeviceNodeSelection"
        spec["devices"] = [
            device(f"dev-{at}", rng, is_placed=is_placed)
            for at in range(rng.choice((1, 2, 3, 3, 12)))
        ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "slice-1"},
        "spec": spec,
    }


def taint_rule(rng: random.Random) -> dict[str, Any]:
    """A rule that taints some devices."""
    selector = {"driver": "gpu.example.com", "pool": "node-1", "device": "dev-0"}
    chosen = {key: value for key, value in selector.items() if rng.random() < 0.6}
    spec: dict[str, Any] = {"taint": taint(rng)}
    if rng.random() < 0.8:
        spec["deviceSelector"] = chosen
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "rule-1"},
        "spec": spec,
    }


def device(name: str, rng: random.Random, *, is_placed: bool) -> dict[str, Any]:
    """A device with valid attributes, capacities, taints and the rest."""
    tree: dict[str, Any] = {"name": name}
    attributes = {
        key: _attribute(kind, rng)
        for key, kind in devices.ATTRIBUTES.items()
        if kind in _SCALAR and rng.random() < 0.4
    }
    if rng.random() < 0.2:
        attributes["resource.kubernetes.io/pcieRoot"] = {"string": "pci0000:01"}
    if attributes:
        tree["attributes"] = attributes
    tree["allowMultipleAllocations"] = rng.random() < 0.4
    if rng.random() < 0.6:
        shared = tree["allowMultipleAllocations"]
        tree["capacity"] = {
            key: capacity(rng, is_shared=shared) for key in devices.CAPACITIES if rng.random() < 0.5
        }
    if not tree["allowMultipleAllocations"] and rng.random() < 0.7:
        del tree["allowMultipleAllocations"]
    if is_placed:
        place = rng.choice(("nodeName", "allNodes", "nodeSelector"))
        tree[place] = {"nodeName": "node-2", "nodeSelector": node_selector(rng), "allNodes": True}[
            place
        ]
    if rng.random() < 0.25:
        tree["taints"] = [
            taint(rng, key=f"example.com/t{at}") for at in range(rng.choice((1, 2, 4)))
        ]
    if rng.random() < 0.25:
        counters = {"memory": {"value": "1Gi"}, "slices": {"value": "2"}}
        tree["consumesCounters"] = [
            {"counterSet": f"set-{at}", "counters": counters} for at in range(rng.choice((1, 2)))
        ]
    if rng.random() < 0.15:
        tree |= {
            "bindsToNode": True,
            "bindingConditions": ["example.com/Up"],
            "bindingFailureConditions": ["example.com/Down"],
        }
    return tree


def capacity(rng: random.Random, *, is_shared: bool) -> dict[str, Any]:
    """A capacity, on shared devices perhaps with a policy."""
    tree: dict[str, Any] = {"value": rng.choice(("80Gi", "100", "16", "1Ti"))}
    if is_shared and rng.random() < 0.6:
        tree["requestPolicy"] = rng.choice(
            (
                {"default": "4", "validValues": ["1", "2", "4"]},
                {"default": "2", "validRange": {"min": "1", "max": "10", "step": "1"}},
                {"default": "1", "validRange": {"min": "1"}},
                {"default": "1"},
            )
        )
    return tree


def counter_set(name: str, rng: random.Random) -> dict[str, Any]:
    """A named set of amounts."""
    names = rng.sample(("memory", "slices", "engines", "slice-0", "slice-1"), rng.randint(1, 4))
    return {
        "name": name,
        "counters": {key: {"value": rng.choice(("40Gi", "7", "1"))} for key in names},
    }


def taint(rng: random.Random, *, key: str = "example.com/maint") -> dict[str, Any]:
    """A taint with a time."""
    made = {"key": key, "effect": rng.choice(EFFECTS), "timeAdded": SINCE}
    if rng.random() < 0.5:
        made["value"] = rng.choice(("a", "yes", "x.y_z-1"))
    return made


def node_selector(rng: random.Random) -> dict[str, Any]:
    """One term with a few requirements, as slices allow."""
    requirements = [
        {"key": "zone", "operator": "In", "values": ["z1", "z2"]},
        {"key": "gpu.example.com/present", "operator": "Exists"},
        {"key": "rack", "operator": "NotIn", "values": ["r1"]},
        {"key": "gpus", "operator": "Gt", "values": ["4"]},
        {"key": "broken", "operator": "DoesNotExist"},
    ]
    term: dict[str, Any] = {"matchExpressions": rng.sample(requirements, rng.randint(1, 3))}
    if rng.random() < 0.3:
        term["matchFields"] = [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]
    return {"nodeSelectorTerms": [term]}


_SCALAR = ("string", "int", "bool", "version")


def _attribute(kind: str, rng: random.Random) -> dict[str, Any]:
    match kind:
        case "string":
            return {"string": rng.choice(("", "H100", "GPU-1", "x" * 64))}
        case "version":
            return {"version": versions.valid(rng)}
    return {kind: devices.value(kind, rng)}

"""Random small clusters with everything allocation knows: broken pools, counters across nodes, shares, rules, claims.

In the schema of the conformance worlds; given a `random.Random`. Objects are defaulted, and valid but for what a
broken cluster may hold: pools that are incomplete, outdated or contradict themselves, classes that do not exist.
"""

from __future__ import annotations

import random
from typing import Any, Final

Tree = dict[str, Any]

DRIVERS: Final = ("gpu.example.com", "nic.example.com")
GPU: Final = DRIVERS[0]
ROOT: Final = "resource.kubernetes.io/pcieRoot"
ATTRIBUTES: Final = (
    f"{GPU}/model",
    f"{GPU}/numa",
    ROOT,
    f"{GPU}/fw",
    f"{GPU}/mixed",
    "other.example.com/numa",
)
SAFE: Final = (
    f'device.attributes["{GPU}"].?model.orValue("") == "h100"',
    f'device.attributes["{GPU}"].?numa.orValue(0) < 1',
    f'device.attributes["{GPU}"].?numa.orValue(1) != 0',
    "device.allowMultipleAllocations",
    f'"memory" in device.capacity["{GPU}"] && device.capacity["{GPU}"].memory.isGreaterThan(quantity("20Gi"))',
)
FRAGILE: Final = (
    f'device.attributes["{GPU}"].model == "h100"',
    f'device.attributes["{GPU}"].numa == 0',
)
CLASSES: Final[dict[str, list[str]]] = {
    "any": [],
    "gpu": [f'device.driver == "{GPU}"'],
    "nic": [f'device.driver == "{DRIVERS[1]}"'],
    "h100": [f'device.driver == "{GPU}"', SAFE[0]],
}
PROFILES: Final = (
    "plain",
    "same",
    "counters",
    "shares",
    "network",
    "taints",
    "admin",
    "broken",
    "mixed",
    "tight",
)


def world(rng: random.Random, number: int = 0) -> Tree:
    """One cluster and the claims of one pod."""
    profile = rng.choice(PROFILES)
    names = [f"node-{letter}" for letter in "abcd"[: rng.choice((1, 1, 2, 3))]]
    published = [part for name in names for part in _pool(name, profile, rng)]
    if profile in ("network", "mixed", "broken") or rng.random() < 0.2:
        published += _network(names, profile, rng)
    if profile == "broken":
        _break(published, rng)
    rng.shuffle(published)
    for at, part in enumerate(published):
        part["metadata"]["name"] = f"slice-{at}-{part['metadata']['name']}"
    made = {
        "id": number,
        "profile": profile,
        "nodes": [_node(name, rng) for name in names],
        "deviceClasses": [_class(name, rules, rng) for name, rules in CLASSES.items()],
        "resourceSlices": published,
        "claims": [
            _claim(f"claim-{at}", profile, rng) for at in range(rng.choice((1, 1, 1, 2, 3)))
        ],
        "inUse": _in_use(published, rng),
    }
    if profile in ("taints", "mixed"):
        made["deviceTaintRules"] = [_rule(at, names, rng) for at in range(rng.randint(0, 2))]
    return made


def _node(name: str, rng: random.Random) -> Tree:
    labels = {
        "kubernetes.io/hostname": name,
        "zone": rng.choice(("z1", "z2")),
        "gpus": rng.choice(("0", "8")),
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def _class(name: str, rules: list[str], rng: random.Random) -> Tree:
    spec: Tree = {"selectors": [{"cel": {"expression": rule}} for rule in rules]} if rules else {}
    if rng.random() < 0.2:
        spec["config"] = [_config(f"class-{at}") for at in range(rng.choice((1, 2)))]
    return _object("DeviceClass", name, spec)


def _config(mark: str) -> Tree:
    return {
        "opaque": {
            "driver": GPU,
            "parameters": {"apiVersion": "v1", "kind": "Config", "mark": mark},
        }
    }


def _pool(node: str, profile: str, rng: random.Random) -> list[Tree]:
    """The pools of one node: devices in one or two slices, counters in one more."""
    count = rng.choice((2, 3, 4, 6, 8)) if profile != "tight" else rng.choice((4, 5, 6, 7, 8))
    devices = [_device(at, profile, rng) for at in range(count)]
    if profile in ("same", "tight"):
        devices = [{**devices[0], "name": item["name"]} for item in devices]
    has_counters = profile in ("counters", "mixed") and rng.random() < 0.9
    groups = [devices] if rng.random() < 0.7 else [devices[::2], devices[1::2]]
    groups = [group for group in groups if group]
    pool = {"name": rng.choice((node, node, f"{node}/inner")), "generation": 1}
    pool["resourceSliceCount"] = len(groups) + has_counters
    spec = {"driver": rng.choice((GPU, GPU, GPU, DRIVERS[1])), "pool": pool, "nodeName": node}
    parts = [{**spec, "pool": dict(pool), "devices": group} for group in groups]
    if has_counters:
        for device in devices:
            _draw(device, rng)
        parts.append({**spec, "pool": dict(pool), "sharedCounters": _counter_sets(rng)})
    return [_object("ResourceSlice", node, part) for part in parts]


def _network(names: list[str], profile: str, rng: random.Random) -> list[Tree]:
    """A pool that several nodes see, in slices of different reach, perhaps with counters of its own."""
    has_counters = rng.random() < 0.5
    count = rng.choice((1, 2, 3))
    pool = {"name": "net", "generation": 1, "resourceSliceCount": count + has_counters}
    driver = rng.choice(DRIVERS)
    parts = []
    for at in range(count):
        spec: Tree = {"driver": driver, "pool": dict(pool)}
        reach = rng.choice(("allNodes", "nodeSelector", "perDeviceNodeSelection", "nodeName"))
        spec[reach] = {"nodeSelector": _selector(rng), "nodeName": rng.choice(names)}.get(
            reach, True
        )
        spec["devices"] = [
            _device(at * 3 + place, profile, rng) for place in range(rng.choice((1, 2, 3)))
        ]
        for device in spec["devices"]:
            if reach == "perDeviceNodeSelection":
                own = rng.choice(("allNodes", "nodeSelector", "nodeName"))
                device[own] = {"nodeSelector": _selector(rng), "nodeName": rng.choice(names)}.get(
                    own, True
                )
            if has_counters:
                _draw(device, rng)
            if rng.random() < 0.15:
                device["bindsToNode"] = True
        parts.append(spec)
    if has_counters:
        reach = rng.choice(("allNodes", "nodeName"))
        spec = {"driver": driver, "pool": dict(pool), "sharedCounters": _counter_sets(rng)}
        spec[reach] = True if reach == "allNodes" else rng.choice(names)
        parts.append(spec)
    return [_object("ResourceSlice", "net", part) for part in parts]


def _selector(rng: random.Random) -> Tree:
    tests = [
        {"key": "zone", "operator": "In", "values": ["z1"]},
        {"key": "zone", "operator": "NotIn", "values": ["z1"]},
        {"key": "gpus", "operator": "Gt", "values": ["4"]},
        {"key": "zone", "operator": "Exists"},
    ]
    return {"nodeSelectorTerms": [{"matchExpressions": rng.sample(tests, rng.choice((1, 1, 2)))}]}


def _counter_sets(rng: random.Random) -> list[Tree]:
    counters = {
        "memory": {"value": rng.choice(("40Gi", "80Gi", "160Gi"))},
        "slices": {"value": rng.choice("4678")},
    }
    return [{"name": f"set-{at}", "counters": counters} for at in range(2)]


def _draw(device: Tree, rng: random.Random) -> None:
    """The device consumes counters of one set, sometimes of both or of none."""
    sets = rng.choice((["set-0"], ["set-0"], ["set-1"], ["set-0", "set-1"], []))
    counters = {
        "memory": {"value": rng.choice(("10Gi", "20Gi", "40Gi"))},
        "slices": {"value": rng.choice("1234")},
    }
    kept = counters if rng.random() < 0.7 else {"slices": counters["slices"]}
    if sets:
        device["consumesCounters"] = [{"counterSet": name, "counters": kept} for name in sets]


def _device(at: int, profile: str, rng: random.Random) -> Tree:
    attributes: Tree = {
        "model": {"string": rng.choice(("h100", "a100"))},
        "numa": {"int": rng.randint(0, 1)},
        "fw": {"version": rng.choice(("1.2.3", "1.2.3+build", "2.0.0"))},
        "mixed": rng.choice(({"int": 1}, {"string": "1"}, {"bool": True})),
        ROOT: {"string": rng.choice(("pci0000:00", "pci0000:80"))},
    }
    if rng.random() < 0.1:
        attributes[f"{GPU}/numa"] = attributes.pop("numa")
    tree: Tree = {
        "name": f"dev-{at}",
        "attributes": {name: value for name, value in attributes.items() if rng.random() < 0.85},
        "capacity": {"memory": {"value": rng.choice(("10Gi", "40Gi", "80Gi"))}},
    }
    if rng.random() < 0.1:
        del tree["capacity"]
    if rng.random() < {"shares": 0.8, "mixed": 0.4, "admin": 0.2}.get(profile, 0):
        tree |= {"allowMultipleAllocations": True, "capacity": _shared_capacity(rng)}
    if rng.random() < {"taints": 0.5, "mixed": 0.2}.get(profile, 0):
        tree["taints"] = [_taint(rng)]
    if rng.random() < 0.05:
        tree |= {
            "bindingConditions": ["example.com/Up"],
            "bindingFailureConditions": ["example.com/Down"],
        }
    return tree


def _shared_capacity(rng: random.Random) -> Tree:
    policies: list[Tree | None] = [
        {"default": "5Gi", "validRange": {"min": "5Gi", "step": "5Gi"}},
        {"default": "10Gi", "validRange": {"min": "2Gi", "max": "20Gi"}},
        {"default": "10Gi", "validValues": ["5Gi", "10Gi", "30Gi"]},
        {"default": "8Gi"},
        None,
    ]
    memory: Tree = {"value": rng.choice(("20Gi", "40Gi"))}
    if (policy := rng.choice(policies)) is not None:
        memory["requestPolicy"] = policy
    result = {"memory": memory}
    if rng.random() < 0.3:
        result["cores"] = {
            "value": "4",
            "requestPolicy": {"default": "1", "validRange": {"min": "500m", "step": "250m"}},
        }
    return result


def _taint(rng: random.Random) -> Tree:
    effect = rng.choice(("NoSchedule", "NoExecute", "None"))
    return {"key": rng.choice(("k1", "k2")), "value": rng.choice(("", "v")), "effect": effect}


def _rule(at: int, names: list[str], rng: random.Random) -> Tree:
    chosen = {
        "driver": rng.choice(DRIVERS),
        "pool": rng.choice([*names, "net"]),
        "device": f"dev-{rng.randint(0, 3)}",
    }
    spec: Tree = {"taint": {**_taint(rng), "timeAdded": "2026-01-01T00:00:00Z"}}
    if rng.random() < 0.9:
        spec["deviceSelector"] = {key: value for key, value in chosen.items() if rng.random() < 0.5}
    return _object("DeviceTaintRule", f"rule-{at}", spec)


def _break(published: list[Tree], rng: random.Random) -> None:
    """Makes some pool incomplete, outdated or contradictory."""
    for part in rng.sample(published, rng.randint(1, min(2, len(published)))):
        spec = part["spec"]
        match rng.randrange(7):
            case 0:
                _recount(published, spec, rng.choice((-1, 1)))
            case 1:
                spec["pool"]["generation"] = rng.choice((0, 2))
            case 2 if spec.get("devices"):
                spec["devices"].append(dict(spec["devices"][0]))
            case 3 if spec.get("devices"):
                spec["devices"][0]["consumesCounters"] = [
                    {"counterSet": "nowhere", "counters": {"x": {"value": "1"}}}
                ]
            case 4 if spec.get("sharedCounters"):
                spec["sharedCounters"].append(spec["sharedCounters"][0])
            case 5:
                copied = {
                    **part,
                    "metadata": {"name": "copy"},
                    "spec": {**spec, "pool": {**spec["pool"], "generation": 2}},
                }
                published.append(copied)
            case _:
                published.remove(part)
                if not published:
                    published.append(part)


def _recount(published: list[Tree], spec: Tree, more: int) -> None:
    """All slices of the pool claim another number: where they contradict each other, upstream's answer is chance."""
    for other in published:
        if (other["spec"]["driver"], other["spec"]["pool"]["name"]) == (
            spec["driver"],
            spec["pool"]["name"],
        ):
            other["spec"]["pool"]["resourceSliceCount"] += more


def _in_use(published: list[Tree], rng: random.Random) -> Tree:
    """About a fifth of the devices, without regard to counters."""
    busy: Tree = {"devices": [], "shared": [], "capacity": {}}
    density = rng.choice((0, 0.1, 0.3))
    for part in published:
        spec = part["spec"]
        for device in spec.get("devices") or ():
            path = f"{spec['driver']}/{spec['pool']['name']}/{device['name']}"
            if rng.random() >= density:
                continue
            if not device.get("allowMultipleAllocations"):
                busy["devices"].append(path)
                continue
            busy["shared"].append(f"{path}/share-1")
            if device.get("capacity"):
                busy["capacity"][path] = {name: rng.choice(("5Gi", "10Gi")) for name in ("memory",)}
    busy["devices"] = sorted(set(busy["devices"]))
    return busy


def _claim(name: str, profile: str, rng: random.Random) -> Tree:
    requests = [_request(f"r{at}", profile, rng) for at in range(rng.choice((1, 1, 2, 3)))]
    devices: Tree = {"requests": requests}
    if rng.random() < 0.3:
        devices["constraints"] = [_constraint(requests, rng) for _ in range(rng.choice((1, 1, 2)))]
    if rng.random() < 0.2:
        named = rng.choice(([], _names(requests)[:1], [request["name"] for request in requests]))
        devices["config"] = [{**_config("claim"), **({"requests": named} if named else {})}]
    tree = _object("ResourceClaim", name, {"devices": devices})
    tree["metadata"] |= {
        "namespace": "default",
        "uid": f"00000000-0000-4000-8000-{rng.getrandbits(40):012d}",
    }
    return tree


def _constraint(requests: list[Tree], rng: random.Random) -> Tree:
    tree: Tree = {
        rng.choice(("matchAttribute", "matchAttribute", "distinctAttribute")): rng.choice(
            ATTRIBUTES
        )
    }
    if rng.random() < 0.4:
        names = _names(requests)
        tree["requests"] = rng.sample(names, rng.randint(1, len(names)))
    return tree


def _names(requests: list[Tree]) -> list[str]:
    subs = [
        f"{request['name']}/{sub['name']}"
        for request in requests
        for sub in request.get("firstAvailable") or ()
    ]
    return [request["name"] for request in requests] + subs


def _request(name: str, profile: str, rng: random.Random) -> Tree:
    if rng.random() < 0.8:
        tree = _wanted(profile, rng)
        if profile in ("admin", "mixed") and rng.random() < 0.5:
            tree["adminAccess"] = True
        return {"name": name, "exactly": tree}
    return {
        "name": name,
        "firstAvailable": [
            {"name": f"s{at}", **_wanted(profile, rng)} for at in range(rng.choice((2, 3)))
        ],
    }


def _wanted(profile: str, rng: random.Random) -> Tree:
    missing = profile == "broken" and rng.random() < 0.03
    tree: Tree = {
        "deviceClassName": "nowhere"
        if missing
        else rng.choice(("any", "any", "any", "gpu", "gpu", "gpu", "h100", "nic"))
    }
    if rng.random() < 0.2:
        tree["selectors"] = [
            {"cel": {"expression": rng.choice(SAFE if rng.random() < 0.95 else FRAGILE)}}
        ]
    if profile == "tight":
        tree["deviceClassName"] = "any"
    if rng.random() < 0.12:
        tree["allocationMode"] = "All"
    else:
        counts = (1, 2, 2, 3, 4) if profile == "tight" else (1, 1, 1, 1, 1, 2, 2, 3)
        tree |= {"allocationMode": "ExactCount", "count": rng.choice(counts)}
    if rng.random() < {"taints": 0.5, "mixed": 0.3}.get(profile, 0.05):
        tree["tolerations"] = [_toleration(rng)]
    if rng.random() < {"shares": 0.5, "mixed": 0.3}.get(profile, 0.1):
        key = "memory" if rng.random() < 0.9 else rng.choice(("cores", f"{GPU}/memory"))
        tree["capacity"] = {
            "requests": {key: rng.choice(("1Gi", "5Gi", "7Gi", "12Gi", "30Gi", "0", "1"))}
        }
    return tree


def _toleration(rng: random.Random) -> Tree:
    tree: Tree = {"operator": rng.choice(("Exists", "Equal"))}
    if tree["operator"] == "Equal" or rng.random() < 0.7:
        tree["key"] = rng.choice(("k1", "k2"))
    if tree["operator"] == "Equal":
        tree["value"] = rng.choice(("", "v"))
    if rng.random() < 0.3:
        tree["effect"] = rng.choice(("NoSchedule", "NoExecute"))
    return tree


def _object(kind: str, name: str, spec: Tree) -> Tree:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }

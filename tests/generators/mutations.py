"""Objects bent out of shape: wrong names, limits passed by one, duplicates, things missing, two where one may be."""

from __future__ import annotations

import copy
import random
from typing import Any, Final

STRINGS: Final = (
    "", "A", "a-", "-a", "a.b", "a/b", "a/b/c", "/a", "a/", "x" * 32, "x" * 33, "x" * 63, "x" * 64, "x" * 65,
    "x" * 253, "x" * 254, "x" * 300,
    "Foo.Example.com/name", "foo.example.com/na-me", "é", "a_b", "1.2.3", "01.2.3", "1.2", "None", "NoSchedule",
    "PreferNoSchedule", "Exists",
    "Equal", "In", "Gt", "All", "ExactCount", "FromClass", "a\n", "K", "11111111-1111-1111-1111-111111111111",
    "11111111-1111-1111-1111-11111111111G",
    "1Gi", "-5", "0", "0.5", "1500m", "2n", "9223372036854775808", "1e3", "abc", "10.0.0.1/24", "10.0.0.1",
    "2001:db8::1/64", "2001:DB8::1/64",
    "gpu.example.com", "node-1", "example.com/" + "y" * 32, "example.com/" + "y" * 33, "y" * 63 + "/a",
    "y" * 64 + "/a", "kubernetes.io/x", "r0", "r0/s0",
    "r1", "s0", "dev-0", "set-0", "true", "device.driver", "device.attributes[", "true && true",
    "2026-01-01T00:00:00Z", "not a time", "_a", "a..b", "9a",
)  # fmt: skip
INTS: Final = (0, 1, -1, 2, 3, 32, 33, 300, 2**31, 2**63 - 1, -(2**63))
COUNTS: Final = (1, 1, 1, 2, 4, 8, 16, 17, 31, 32, 33, 63, 64, 65, 128, 129)
# Fields that a kind of object may have beside the ones it has; the value says what it looks like.
EXTRA: Final[dict[str, Any]] = {
    "nodeName": "node-1", "allNodes": True, "perDeviceNodeSelection": True,
    "nodeSelector": {"nodeSelectorTerms": []}, "matchAttribute": "a.b/c",
    "distinctAttribute": "a.b/c", "count": 1, "allocationMode": "All", "adminAccess": True, "int": 1,
    "bool": True, "string": "s", "version": "1.0.0",
    "ints": [1], "strings": ["a"], "requestPolicy": {"default": "1"}, "validValues": ["1"],
    "validRange": {"min": "1"}, "max": "5", "step": "2",
    "exactly": {"deviceClassName": "a"}, "sharedCounters": [{"name": "set-0",
    "counters": {"m": {"value": "1"}}}], "bindsToNode": True,
    "bindingConditions": ["a", "b"], "shareID": "11111111-1111-1111-1111-111111111111",
    "consumedCapacity": {"memory": "1Gi"}, "devices": [],
    "tolerationSeconds": 5, "value": "v", "operator": "Exists", "generateName": "x-", "labels": {"a b": "c"},
    "annotations": {"": ""}, "finalizers": ["x"],
    "effect": "NoExecute", "opaque": {"driver": "d", "parameters": {}}, "unknownField": 1, "config": [{}],
    "selectors": [{}], "matchFields": [],
    "extendedResourceName": "a/b", "timeAdded": "2026-01-01T00:00:00Z", "allowMultipleAllocations": True,
}  # fmt: skip
Path = tuple[str | int, ...]


def mutated(tree: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The object with one to three things changed. Kind, apiVersion and namespace stay."""
    done = copy.deepcopy(tree)
    for _ in range(rng.choice((1, 1, 1, 1, 2, 2, 3))):
        places = [
            path
            for path in paths(done)
            if path[0] not in ("apiVersion", "kind") and path[-1] not in ("namespace", "metadata")
        ]
        if places:
            change(done, rng.choice(places), rng)
    return done


def paths(node: Any, above: Path = ()) -> list[Path]:
    """Every place in the object."""
    result: list[Path] = []
    entries = (
        node.items()
        if isinstance(node, dict)
        else enumerate(node[:12])
        if isinstance(node, list)
        else ()
    )
    for key, value in entries:
        result.append((*above, key))
        result += paths(value, (*above, key))
    return result


def change(done: dict[str, Any], path: Path, rng: random.Random) -> None:
    """Changes one place for the worse."""
    holder: Any = done
    for key in path[:-1]:
        holder = holder[key]
    key, value = path[-1], holder[path[-1]]
    roll = rng.random()
    if roll < 0.12:
        del holder[key]
    elif roll < 0.16:
        holder[key] = None
    elif roll < 0.30 and isinstance(holder, list):
        _repeat(holder, value, rng)
    elif roll < 0.42 and isinstance(holder, dict):
        extra = rng.choice(tuple(EXTRA))
        holder[extra] = copy.deepcopy(EXTRA[extra])
    else:
        _replace(holder, key, rng)


def without(tree: dict[str, Any], path: Path) -> dict[str, Any]:
    """The object with one place removed; to make a case smaller."""
    done = copy.deepcopy(tree)
    holder: Any = done
    for key in path[:-1]:
        holder = holder[key]
    del holder[path[-1]]
    return done


def _repeat(holder: list[Any], value: Any, rng: random.Random) -> None:
    count = rng.choice(COUNTS)
    is_unique = rng.random() < 0.6
    for at in range(count):
        another = copy.deepcopy(value)
        if is_unique:
            if isinstance(another, str):
                another = f"{another}{at}"
            elif isinstance(another, dict):
                for name in ("name", "counterSet", "key", "device", "uid", "type"):
                    if isinstance(another.get(name), str):
                        another[name] = f"{another[name]}{at}"
        holder.append(another)


def _replace(holder: Any, key: Any, rng: random.Random) -> None:
    value = holder[key]
    match value:
        case bool():
            holder[key] = not value
        case int():
            holder[key] = rng.choice((*INTS, value + 1, value - 1))
        case str():
            holder[key] = rng.choice(
                (*STRINGS, value + "x", value.upper(), value + "-", value * 3, "x." + value)
            )
        case list():
            holder[key] = [] if rng.random() < 0.4 else [*value, *copy.deepcopy(value)]
        case dict() if value and rng.random() < 0.7:
            name = rng.choice(tuple(value))
            if rng.random() < 0.3:
                for at in range(rng.choice(COUNTS)):
                    value[f"{name}{at}"] = copy.deepcopy(value[name])
            else:
                value[rng.choice(STRINGS)] = copy.deepcopy(value[name])
        case _:
            holder[key] = {}

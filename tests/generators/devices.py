"""Random devices as ResourceSlices carry them, over a small world of names that expressions know too."""

from __future__ import annotations

import random
from typing import Any, Final

from tests.generators import quantities, versions

DRIVERS: Final = ("gpu.example.com", "nic.example.com", "a.b")
DOMAINS: Final = (*DRIVERS, "resource.kubernetes.io", "missing.example.com")
# Which kind of value an attribute usually has; one in twelve has another.
ATTRIBUTES: Final = {
    "model": "string",
    "uuid": "string",
    "text": "string",
    "type": "string",
    "index": "int",
    "count": "int",
    "edge": "int",
    "healthy": "bool",
    "ecc": "bool",
    "driverVersion": "version",
    "fw": "version",
    "ints": "ints",
    "strings": "strings",
    "bools": "bools",
    "versions": "versions",
}
CAPACITIES: Final = ("memory", "cores", "slots", "odd")
STRINGS: Final = (
    "", "a", "H100", "h100-80gb", "NVIDIA A100-SXM4-40GB", "GPU-18db0e85-99e9-c746-8531-ffeb86328b39", "true",
    "1", "1.5",
    "10.0.0.1", "2001:db8::1", "10.0.0.0/8", "https://example.com:8080/a%20b?x=1&x=2", "1Gi", "1.2.3", "v1.2",
    "2024-02-29T12:30:45Z", "1h30m", "äöü", "日本", "\U0001f600", "e\u0301", "a,b,,c", " padded ",
    "Tab\tNew\nLine", "a\\b\"c'd",
    "x" * 64, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaa!", "gpu.example.com", "memory", "%s %d", "\u0000", "\u007f\u0080",
    "ǅ", "ß",
)  # fmt: skip
# What validation would not let in, but an evaluation may still meet.
ODD_NAMES: Final = (
    "odd",
    "a/b/c",
    "gpu.example.com/",
    "/odd",
    "",
    "UPPER.example.com/x",
    "with space",
    "ä",
)
ODD_ATTRIBUTES: Final[tuple[dict[str, Any], ...]] = (
    {}, {"int": 1, "string": "a"}, {"strings": []}, {"ints": []}, {"bools": [], "int": 3}, {"versions": []},
    {"version": "bad"},
    {"versions": ["1.0.0", "bad"]}, {"bool": True, "int": 0}, {"string": "a", "version": "1.0.0"}, {"int": 2,
    "ints": [1]}, {"string": None},
    {"string": ""},
)  # fmt: skip
INTS: Final = (
    0,
    1,
    -1,
    2,
    3,
    7,
    10,
    40,
    80,
    255,
    1024,
    2**31,
    2**53,
    2**53 + 1,
    2**63 - 1,
    -(2**63),
    -(2**63) + 1,
)


def device(rng: random.Random) -> dict[str, Any]:
    """One device with its driver, attributes of all kinds, capacities; sometimes next to nothing."""
    tree: dict[str, Any] = {"driver": rng.choice(DRIVERS) if rng.random() < 0.35 else DRIVERS[0]}
    share = rng.choice((0.0, 0.3, 0.7, 0.9, 1.0))
    attributes: dict[str, Any] = {}
    for name, kind in ATTRIBUTES.items():
        if rng.random() < share:
            attributes[_qualified(name, tree["driver"], rng)] = attribute(kind, rng)
    if rng.random() < 0.06:
        attributes[rng.choice(ODD_NAMES)] = rng.choice(ODD_ATTRIBUTES)
    capacity = {
        _qualified(name, tree["driver"], rng): {"value": quantities.quantity(rng)}
        for name in CAPACITIES
        if rng.random() < share
    }
    if attributes or rng.random() < 0.1:
        tree["attributes"] = attributes
    if capacity or rng.random() < 0.1:
        tree["capacity"] = capacity
    if rng.random() < 0.4:
        tree["allowMultipleAllocations"] = rng.random() < 0.7
    return tree


def attribute(kind: str, rng: random.Random) -> dict[str, Any]:
    """An attribute, usually of the kind asked for."""
    if rng.random() < 0.08:
        kind = rng.choice(tuple(ATTRIBUTES.values()))
    if kind.endswith("s") and kind != "s":
        count = rng.choice((1, 1, 2, 3, 5))
        return {kind: [value(kind[:-1], rng) for _ in range(count)]}
    return {kind: value(kind, rng)}


def value(kind: str, rng: random.Random) -> Any:
    """One plain value."""
    match kind:
        case "int":
            return rng.choice(INTS) if rng.random() < 0.8 else rng.randint(-100, 100)
        case "bool":
            return rng.random() < 0.5
        case "string":
            return rng.choice(STRINGS)
        case "version":
            return versions.valid(rng) if rng.random() < 0.97 else versions.version(rng)
    raise AssertionError(kind)


def smaller(tree: dict[str, Any]) -> list[dict[str, Any]]:
    """Every device with one thing less."""
    result: list[dict[str, Any]] = []
    for field in ("attributes", "capacity"):
        entries = tree.get(field)
        if entries:
            result.append({key: kept for key, kept in tree.items() if key != field})
            for name in entries:
                result.append(
                    {**tree, field: {key: kept for key, kept in entries.items() if key != name}}
                )
    if "allowMultipleAllocations" in tree:
        result.append(
            {key: kept for key, kept in tree.items() if key != "allowMultipleAllocations"}
        )
    return result


def _qualified(name: str, driver: str, rng: random.Random) -> str:
    roll = rng.random()
    if roll < 0.7:
        return name
    if roll < 0.85:
        return f"{driver}/{name}"
    return f"{rng.choice(DOMAINS[:-1])}/{name}"

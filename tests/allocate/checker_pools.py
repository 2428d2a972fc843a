"""Which devices of a cluster can be used on a node: rules 1 and 2 of the validity rules, on plain JSON trees.

Written from the rules alone: nothing here comes from the package under test, quantities included.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

Tree = dict[str, Any]
DeviceKey = tuple[str, str, str]  # driver, pool, device

_QUANTITY = re.compile(r"([+-]?[0-9]*\.?[0-9]*)(?:([eE][+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i)?)")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_NANO = 10**9


class Place(NamedTuple):
    """A device where it was published."""

    part: Tree  # the slice
    device: Tree

    @property
    def key(self) -> DeviceKey:
        spec = self.part["spec"]
        return spec["driver"], spec["pool"]["name"], self.device["name"]

    @property
    def is_shareable(self) -> bool:
        return bool(self.device.get("allowMultipleAllocations"))


class Pool(NamedTuple):
    """A pool as one node sees it. One that is incomplete or invalid offers nothing."""

    is_complete: bool
    problem: str
    offered: tuple[Place, ...]  # on this node
    everywhere: tuple[Place, ...]  # what draws on the counters
    counters: Mapping[tuple[str, str], Fraction]  # (set, counter) -> amount


class Use(NamedTuple):
    """What is taken already."""

    exclusive: frozenset[DeviceKey]
    shares: frozenset[tuple[DeviceKey, str]]
    capacity: Mapping[DeviceKey, Mapping[str, Fraction]]

    def holds(self, key: DeviceKey) -> bool:
        """Whether any claim uses the device, alone or with others."""
        return key in self.exclusive or self.holds_share(key)

    def holds_share(self, key: DeviceKey) -> bool:
        return key in self.capacity or any(shared == key for shared, _ in self.shares)


@functools.lru_cache(maxsize=65536)
def amount(text: str) -> Fraction:
    """A quantity, exactly; finer than a billionth is rounded away from zero, as in the API."""
    result = _QUANTITY.fullmatch(str(text))
    assert result is not None, f"no quantity: {text!r}"
    number, exponent, suffix = result.groups()
    whole, _, digits = number.lstrip("+-").partition(".")
    value = Fraction(int((whole + digits) or "0"), 10 ** len(digits))
    if exponent:
        value *= Fraction(10) ** int(exponent[1:])
    elif suffix in _BINARY:
        value *= 2 ** _BINARY[suffix]
    else:
        value *= Fraction(10) ** _DECIMAL[suffix or ""]
    value = Fraction(math.ceil(value * _NANO), _NANO)
    return -value if number.startswith("-") else value


def use_of(world: Tree) -> Use:
    """From `inUse` where given, else from the claims that hold devices. Admin access holds nothing."""
    if world.get("inUse") is not None:
        return _listed_use(world["inUse"])
    exclusive, shares = set(), set()
    capacity: dict[DeviceKey, dict[str, Fraction]] = {}
    for claim in world.get("allocatedClaims") or ():
        allocation = (claim.get("status") or {}).get("allocation") or {}
        for result in (allocation.get("devices") or {}).get("results") or ():
            key = (result["driver"], result["pool"], result["device"])
            if result.get("adminAccess"):
                continue
            if result.get("shareID") is None:
                exclusive.add(key)
                continue
            shares.add((key, result["shareID"]))
            for name, text in (result.get("consumedCapacity") or {}).items():
                held = capacity.setdefault(key, {})
                held[name] = held.get(name, Fraction(0)) + amount(text)
    return Use(frozenset(exclusive), frozenset(shares), capacity)


def _listed_use(listed: Tree) -> Use:
    shares = [text.rpartition("/") for text in listed.get("shared") or ()]
    return Use(
        frozenset(_key(text) for text in listed.get("devices") or ()),
        frozenset((_key(device), share) for device, _, share in shares),
        {
            _key(text): {name: amount(value) for name, value in held.items()}
            for text, held in (listed.get("capacity") or {}).items()
        },
    )


def _key(text: str) -> DeviceKey:
    driver, _, rest = text.partition("/")
    pool, _, device = rest.rpartition("/")
    return driver, pool, device


def pools(world: Tree, node: Tree) -> list[Pool]:
    """Every pool visible from the node, less those that are being replaced elsewhere."""
    usable = [
        part for part in world.get("resourceSlices") or () if not _has_compatibility_groups(part)
    ]
    visible: dict[tuple[str, str], list[Tree]] = {}
    for part in usable:
        if _is_relevant(part["spec"], node):
            visible.setdefault(_pool_of(part), []).append(part)
    result = (_pool(parts, world, node) for _, parts in sorted(visible.items()))
    return [pool for pool in result if pool is not None]


def _pool(parts: list[Tree], world: Tree, node: Tree) -> Pool | None:
    newest = max(_generation(part) for part in parts)
    here = [part for part in parts if _generation(part) == newest]
    first = min(
        here, key=lambda part: not part["spec"].get("nodeName")
    )  # slices of the node are read first
    expected = first["spec"]["pool"].get("resourceSliceCount", 0)
    all_of_it = here
    if len(here) != expected:
        pool = _pool_of(here[0])
        everywhere = [part for part in world["resourceSlices"] if _pool_of(part) == pool]
        if any(_generation(part) > newest for part in everywhere):
            return None
        same = [
            part
            for part in everywhere
            if _generation(part) == newest and not _has_compatibility_groups(part)
        ]
        if len(same) != expected:
            return Pool(False, "", (), (), {})
        names = {part["metadata"]["name"] for part in here}
        all_of_it = here + [part for part in same if part["metadata"]["name"] not in names]
    problem = _problem(here, all_of_it)
    if problem:
        return Pool(True, problem, (), (), {})
    offered = tuple(
        place
        for place in _places(here)
        if not place.part["spec"].get("perDeviceNodeSelection") or _reaches(place.device, node)
    )
    return Pool(True, "", offered, tuple(_places(all_of_it)), _counters(all_of_it))


def _problem(here: list[Tree], all_of_it: list[Tree]) -> str:
    names = [place.device["name"] for place in _places(here)]
    if len(names) != len(set(names)):
        return "a device name occurs twice"
    sets = [item for part in all_of_it for item in part["spec"].get("sharedCounters") or ()]
    if len(sets) != len({item["name"] for item in sets}):
        return "a counter set occurs twice"
    known = {(item["name"], counter) for item in sets for counter in item.get("counters") or {}}
    known_sets = {item["name"] for item in sets}
    for place in _places(all_of_it):
        for drawn in place.device.get("consumesCounters") or ():
            if drawn["counterSet"] not in known_sets:
                return "an unknown counter set is consumed"
        if any(each not in known for each, _ in consumption(place.device)):
            return "an unknown counter is consumed"
    return ""


def consumption(device: Tree) -> Iterator[tuple[tuple[str, str], Fraction]]:
    """What a device takes of each counter."""
    for drawn in device.get("consumesCounters") or ():
        for counter, value in (drawn.get("counters") or {}).items():
            yield (drawn["counterSet"], counter), amount(value["value"])


def _counters(parts: list[Tree]) -> dict[tuple[str, str], Fraction]:
    return {
        (item["name"], counter): amount(value["value"])
        for part in parts
        for item in part["spec"].get("sharedCounters") or ()
        for counter, value in (item.get("counters") or {}).items()
    }


def _places(parts: list[Tree]) -> Iterator[Place]:
    for part in sorted(parts, key=lambda part: part["metadata"]["name"]):
        if part["spec"].get("sharedCounters"):
            continue  # a slice has counters or devices
        for device in part["spec"].get("devices") or ():
            yield Place(part, device)


def _is_relevant(spec: Tree, node: Tree) -> bool:
    if spec.get("nodeName") or spec.get("allNodes") or spec.get("nodeSelector") is not None:
        return _reaches(spec, node)
    if spec.get("perDeviceNodeSelection"):
        return any(_reaches(device, node) for device in spec.get("devices") or ())
    return False


def _reaches(place: Tree, node: Tree) -> bool:
    if place.get("nodeName"):
        return bool(place["nodeName"] == node["metadata"]["name"])
    if place.get("allNodes"):
        return True
    selector = place.get("nodeSelector")
    return selector is not None and any(
        _term_picks(term, node) for term in selector.get("nodeSelectorTerms") or ()
    )


def _term_picks(term: Tree, node: Tree) -> bool:
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    tests = [(item, labels) for item in term.get("matchExpressions") or ()]
    tests += [(item, fields) for item in term.get("matchFields") or ()]
    return bool(tests) and all(_holds(one, values) for one, values in tests)


def _holds(test: Tree, values: Mapping[str, str]) -> bool:
    value, listed = values.get(test["key"]), test.get("values") or []
    match test["operator"]:
        case "In":
            return value is not None and value in listed
        case "NotIn":
            return value is None or value not in listed
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            try:
                have, bound = int(value or ""), int(listed[0])
            except ValueError:
                return False
            return have > bound if operator == "Gt" else have < bound
    raise AssertionError(f"unknown operator {test['operator']!r}")


def taints(world: Tree, place: Place) -> Iterator[Tree]:
    """Of the device itself and of rules that name it. A rule without a selector names nothing."""
    yield from place.device.get("taints") or ()
    for rule in world.get("deviceTaintRules") or ():
        selector = rule["spec"].get("deviceSelector")
        if selector is None:
            continue
        parts = zip(("driver", "pool", "device"), place.key, strict=True)
        if all(selector.get(name) in (None, value) for name, value in parts):
            yield rule["spec"]["taint"]


def _has_compatibility_groups(part: Tree) -> bool:
    """Alpha and off: such a slice is treated as missing."""
    devices = part["spec"].get("devices") or ()
    return any(
        drawn.get("compatibilityGroups")
        for device in devices
        for drawn in device.get("consumesCounters") or ()
    )


def _pool_of(part: Tree) -> tuple[str, str]:
    return part["spec"]["driver"], part["spec"]["pool"]["name"]


def _generation(part: Tree) -> int:
    return int(part["spec"]["pool"].get("generation", 0))

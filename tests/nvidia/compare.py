"""Compares ResourceSlices fact by fact: names, order, attributes, capacities, counters, taints.

Given two lists of slices, returns what differs as text, path first. What an API server adds (uids, versions, the random
end of a name) and the pool's generation are left out; nothing else is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

Tree = Mapping[str, Any]
Facts = dict[str, Any]

ABSENT: Final = "absent"


def differences(
    ours: Sequence[Tree],
    theirs: Sequence[Tree],
    *,
    ordered: bool = True,
    without: Collection[str] = (),
) -> list[str]:
    """One line per fact that is not the same. `without` names attributes that cannot agree, such as ids.

    `ordered` says whether the order of devices in a slice counts: without dynamic MIG NVIDIA's driver publishes them
    in a random order.
    """
    our_facts = facts(ours, ordered=ordered, without=without)
    their_facts = facts(theirs, ordered=ordered, without=without)
    paths = sorted(our_facts.keys() | their_facts.keys())
    return [
        f"{path}: ours {our_facts.get(path, ABSENT)}, theirs {their_facts.get(path, ABSENT)}"
        for path in paths
        if our_facts.get(path, ABSENT) != their_facts.get(path, ABSENT)
    ]


def facts(slices: Sequence[Tree], *, ordered: bool = True, without: Collection[str] = ()) -> Facts:
    """All that slices state, by path. Slices count in the order of their names."""
    known: Facts = {}
    by_name = sorted(slices, key=lambda tree: str(tree["metadata"]["name"]))
    for index, tree in enumerate(by_name):
        known |= _slice_facts(f"slice {index}", tree, ordered=ordered)
        for counter_set in tree["spec"].get("sharedCounters", ()):
            known |= dict(_counter_facts(f"counters of {counter_set['name']}", counter_set))
        for device in tree["spec"].get("devices", ()):
            known |= dict(_device_facts(device, without))
    return known


def _slice_facts(path: str, tree: Tree, *, ordered: bool) -> Facts:
    spec = tree["spec"]
    names = [device["name"] for device in spec.get("devices", ())]
    owners = [
        (owner["kind"], owner["name"], owner.get("controller", False))
        for owner in tree["metadata"].get("ownerReferences", ())
    ]
    lists = ("devices", "sharedCounters", "pool")
    rest = {key: value for key, value in spec.items() if key not in lists}
    return {
        f"{path}: generateName": tree["metadata"].get("generateName"),
        f"{path}: owners": owners,
        f"{path}: pool": (spec["pool"]["name"], spec["pool"]["resourceSliceCount"]),
        f"{path}: devices": names if ordered else sorted(names),
        f"{path}: counter sets": [entry["name"] for entry in spec.get("sharedCounters", ())],
        **{f"{path}: {key}": value for key, value in rest.items()},
    }


def _device_facts(device: Tree, without: Collection[str]) -> Iterator[tuple[str, Any]]:
    path = device["name"]
    for name, attribute in device.get("attributes", {}).items():
        if name not in without:
            yield f"{path}: attribute {name}", attribute
    for name, capacity in device.get("capacity", {}).items():
        yield f"{path}: capacity {name}", capacity
    for consumed in device.get("consumesCounters", ()):
        yield from _counter_facts(f"{path}: consumes {consumed['counterSet']}", consumed)
    known = ("name", "attributes", "capacity", "consumesCounters")
    for key, value in device.items():
        if key not in known:
            yield f"{path}: {key}", value


def _counter_facts(path: str, counters: Tree) -> Iterator[tuple[str, Any]]:
    for name, counter in counters["counters"].items():
        yield f"{path} {name}", counter["value"]

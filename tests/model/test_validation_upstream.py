"""Validation held against upstream's own code: generated objects, changed at random from a seed."""

from __future__ import annotations

import copy
import json
import random
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from dovetail.admission import admit
from dovetail.cel import selectors
from dovetail.kubetypes import codec, field_errors
from tests.support import oracle, shared

pytestmark = pytest.mark.slow

CASES = 2500
SEEDS = (1, 2)
NOW = "2026-11-15T21:00:00Z"
TEXTS = (
    *(
        "",
        "A",
        "a-",
        "a.b",
        "a/b",
        "a/b/c",
        "/a",
        "a/",
        "x" * 63,
        "x" * 64,
        "x" * 300,
        "é",
        "a_b",
        "a\n",
    ),
    *(
        "Foo.Example.com/name",
        "foo.example.com/na-me",
        "1.2.3",
        "01.2.3",
        "None",
        "NoSchedule",
        "Exists",
        "Equal",
    ),
    *(
        "All",
        "ExactCount",
        "11111111-1111-1111-1111-111111111111",
        "1Gi",
        "-5",
        "1500m",
        "2n",
        "9223372036854775808",
    ),
    *(
        "10.0.0.1/24",
        "10.0.0.01/24",
        "gpu.example.com",
        "example.com/" + "y" * 33,
        "kubernetes.io/x",
        "requests.a/b",
    ),
)
ODD = (1.0, 0.5, 1, "1", True, [], {}, None, [None], {"a": None}, 2**63, [{}], " 5 ")
COUNTS = (0, 1, -1, 2**63 - 1, 3, 33, 300)
Path = tuple[str | int, ...]

RICH_SLICE: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {
        "name": "s1",
        "resourceVersion": "1",
        "uid": "u",
        "labels": {"a": "b"},
        "finalizers": ["a/b"],
    },
    "spec": {
        "driver": "gpu.example.com",
        "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
        "perDeviceNodeSelection": True,
        "partitionTypeAttribute": "gpu.example.com/kind",
        "skipNodeOperations": ["NodePrepareResources", "NodeUnprepareResources"],
        "devices": [
            {
                "name": "a",
                "nodeName": "n",
                "attributes": {
                    "kind": {"string": "x"},
                    "l": {"ints": [1, 2]},
                    "s": {"strings": ["a", "b"]},
                },
                "capacity": {
                    "m": {
                        "value": "10",
                        "requestPolicy": {
                            "default": "2",
                            "validRange": {"min": "1", "max": "5", "step": "1"},
                        },
                    },
                    "n": {
                        "value": "10Gi",
                        "requestPolicy": {"default": "2Gi", "validValues": ["1Gi", "2Gi"]},
                    },
                    "o": {
                        "value": "1",
                        "requestPolicy": {
                            "default": "500m",
                            "validRange": {"min": "250m", "step": "250m"},
                        },
                    },
                },
                "allowMultipleAllocations": True,
                "consumesCounters": [
                    {
                        "counterSet": "c",
                        "counters": {"x": {"value": "1"}},
                        "compatibilityGroups": ["g", "h"],
                    }
                ],
                "nodeAllocatableResources": {
                    "cpu": {
                        "mapping": {"capacityKey": "m", "capacityMultiplier": "2"},
                        "overhead": {"perPod": "1", "perContainer": "100m"},
                    },
                    "memory": {"mapping": {"deviceMultiplier": "2"}},
                },
                "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": NOW}],
                "bindingConditions": ["c1", "x/c2"],
                "bindingFailureConditions": ["f1"],
            },
            {
                "name": "b",
                "allNodes": True,
                "attributes": {"gpu.example.com/kind": {"string": "y"}},
            },
        ],
    },
}
RICH_CLAIM: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "c1", "namespace": "default", "resourceVersion": "1", "uid": "u"},
    "spec": {
        "devices": {
            "requests": [
                {
                    "name": "a",
                    "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1},
                },
                {
                    "name": "b",
                    "firstAvailable": [
                        {"name": "s", "deviceClassName": "c", "allocationMode": "All"}
                    ],
                },
            ],
            "constraints": [{"requests": ["a", "b/s"], "matchAttribute": "gpu.example.com/x"}],
        }
    },
    "status": {
        "allocation": {
            "devices": {
                "results": [
                    {
                        "request": "a",
                        "driver": "gpu.example.com",
                        "pool": "p/q",
                        "device": "gpu-0",
                        "shareID": "11111111-1111-1111-1111-111111111111",
                        "skipNodeOperations": ["*"],
                        "bindingConditions": ["c1"],
                        "bindingFailureConditions": ["f1"],
                    },
                    {"request": "b/s", "driver": "gpu.example.com", "pool": "p", "device": "gpu-1"},
                ]
            },
            "allocationTimestamp": NOW,
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u1"}],
        "devices": [
            {
                "driver": "gpu.example.com",
                "pool": "p",
                "device": "gpu-1",
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "True",
                        "reason": "Ok",
                        "message": "",
                        "lastTransitionTime": NOW,
                    }
                ],
                "data": {"a": 1},
                "networkData": {
                    "interfaceName": "e",
                    "ips": ["10.0.0.1/24"],
                    "hardwareAddress": "aa",
                },
            }
        ],
    },
}


def seeds_of_change() -> list[dict[str, Any]]:
    """The recorded vectors, and rich objects with every alpha field in use before."""
    recorded = shared.document("conformance/dra/validation.json.gz")["vectors"]
    bare_claim = {key: value for key, value in RICH_CLAIM.items() if key != "status"}
    rich = [
        {"op": "create", "object": RICH_SLICE},
        {"op": "update", "object": RICH_SLICE, "oldObject": RICH_SLICE},
        {"op": "updateStatus", "object": RICH_CLAIM, "oldObject": bare_claim},
        {"op": "updateStatus", "object": RICH_CLAIM, "oldObject": RICH_CLAIM},
    ]
    return [*recorded, *(rich * 30)]


class Mutator:
    """Changes objects: drops, swaps, repeats and spoils values, mostly with ones that occur elsewhere."""

    def __init__(self, chance: random.Random, originals: list[dict[str, Any]]) -> None:
        self.chance = chance
        self.donors: dict[str, list[Any]] = defaultdict(list)
        for original in originals:
            for path, value in places(original["object"]):
                if isinstance(path[-1], str):
                    self.donors[path[-1]].append(value)

    def changed(self, tree: dict[str, Any]) -> dict[str, Any]:
        tree = copy.deepcopy(tree)
        for _ in range(self.chance.choice((1, 1, 1, 2, 2, 3, 5))):
            candidates = [path for path, _ in places(tree) if is_open(path)]
            if candidates:
                self._change(tree, self.chance.choice(candidates))
        return tree

    def _change(self, tree: dict[str, Any], path: Path) -> None:
        parent: Any = tree
        for step in path[:-1]:
            parent = parent[step]
        step, chance = path[-1], self.chance
        value = parent[step]
        match chance.randrange(8):
            case 0:
                del parent[step]
            case 1 | 2 if isinstance(step, str):
                parent[step] = copy.deepcopy(chance.choice(self.donors.get(step) or [None]))
            case 3 if isinstance(parent, list):
                for _ in range(chance.choice((1, 1, 2, 8, 40, 70, 140))):
                    parent.insert(chance.randrange(len(parent) + 1), copy.deepcopy(value))
            case 4:
                parent[step] = copy.deepcopy(chance.choice(ODD))
            case _:
                parent[step] = self._spoiled(value)

    def _spoiled(self, value: Any) -> Any:
        chance = self.chance
        match value:
            case bool():
                return not value
            case int():
                return chance.choice(COUNTS)
            case str():
                return chance.choice((*TEXTS, f"{value}x", value.upper(), f"{value}-"))
            case dict() if value:
                key = chance.choice(list(value))
                return value | {chance.choice(TEXTS): copy.deepcopy(value[key])}
            case _:
                return type(value)() if value is not None else {}


def places(tree: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    items = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree[:40])
        if isinstance(tree, list)
        else ()
    )
    for step, value in items:
        yield (*path, step), value
        yield from places(value, (*path, step))


def is_open(path: Path) -> bool:
    """Identity and expressions stay: the first makes another request, the second have tests of their own."""
    return (
        path[0] not in ("apiVersion", "kind")
        and path != ("metadata",)
        and not {"namespace", "expression"} & set(path)
    )


def cases(seed: int) -> Iterator[dict[str, Any]]:
    chance, originals = random.Random(seed), seeds_of_change()
    mutator = Mutator(chance, originals)
    for _ in range(CASES):
        original = chance.choice(originals)
        case = {
            "operation": original["op"],
            "object": mutator.changed(original["object"]),
            "namespaceHasAdminLabel": chance.random() < 0.5,
        }
        if "oldObject" in original:
            is_kept = chance.random() < 0.6
            case["oldObject"] = (
                original["oldObject"] if is_kept else mutator.changed(original["oldObject"])
            )
        yield case


def verdict_on(case: dict[str, Any]) -> admit.Verdict | None:
    """Our verdict; None where the object does not even decode."""
    terms = field_errors.Terms(
        selectors.problem, case["namespaceHasAdminLabel"], namespace="default", now=NOW
    )
    try:
        new = codec.decode(case["object"]).struct
        if case["operation"] == "create":
            return admit.create(new, terms)
        old = codec.decode(case["oldObject"]).struct
    except codec.DecodeError:
        return None
    change = admit.update if case["operation"] == "update" else admit.update_status
    return change(new, old, terms=terms)


def disagreement(case: dict[str, Any], answer: dict[str, Any]) -> str | None:
    if "failure" in answer:
        return None  # no verdict upstream
    verdict = verdict_on(case)
    if verdict is None or "decodeError" in answer:
        is_agreed = verdict is None and "decodeError" in answer
        return None if is_agreed else f"decoding: upstream {answer.get('decodeError')!r}"
    ours = {(problem.type, problem.field) for problem in verdict.problems}
    theirs = {(error["type"], error["field"]) for error in answer["errors"]}
    return f"{sorted(ours ^ theirs)}" if ours != theirs else None


@pytest.mark.parametrize("seed", SEEDS)
def test_random_objects_get_upstreams_verdict(seed: int) -> None:
    asked = list(cases(seed))
    answers = oracle.session().ask_many({"op": "validate", **case} for case in asked)
    result = [
        f"{problem}\n{json.dumps(case)[:2000]}"
        for case, answer in zip(asked, answers, strict=True)
        if (problem := disagreement(case, answer))
    ]
    judged = sum("failure" not in answer and "decodeError" not in answer for answer in answers)
    assert judged > CASES // 2
    assert result == []

"""The oracle answers exactly what upstream code answered when the conformance data was recorded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import oracle as upstream
from tests.support import shared

pytestmark = pytest.mark.slow

Message = dict[str, Any]


@pytest.fixture(scope="module")
def oracle() -> Iterator[upstream.Oracle]:
    with upstream.start() as running:
        yield running


def without_id(answer: Message) -> Message:
    assert "failure" not in answer, answer
    return {key: value for key, value in answer.items() if key != "id"}


def cost_as_number(answer: Message) -> Message:
    """The recorded tables write the estimate as a number, the oracle as a string of digits."""
    changed = without_id(answer)
    if "estimatedCost" in changed:
        changed["estimatedCost"] = int(changed["estimatedCost"])
    return changed


def environment(recorded: str) -> Message:
    """Reads "NewExpressions listTypeAttributes=true consumableCapacity=false"."""
    name, *gates = recorded.split()
    features = {key: value == "true" for key, value in (gate.split("=") for gate in gates)}
    return {
        "env": {"NewExpressions": "new", "StoredExpressions": "stored"}[name],
        "features": features,
    }


def with_empty_lists(device: Message) -> Message:
    """A device written with valueless attributes may have held empty lists, which Go's encoder leaves out."""
    attributes = {name: value or {"strings": []} for name, value in device["attributes"].items()}
    return device | {"attributes": attributes}


def test_recorded_expressions_evaluate_as_recorded(oracle: upstream.Oracle) -> None:
    table = shared.document("conformance/dra/cel_extra.json.gz")
    cases = table["cases"]
    assert len(cases) == 557
    requests = [
        {"op": "cel", "expression": case["expression"], "device": table["devices"][case["device"]]}
        for case in cases
    ]
    differing = [
        (request, case)
        for request, case, answer in zip(requests, cases, oracle.ask_many(requests), strict=True)
        if cost_as_number(answer) != case["evaluation"]
    ]
    for request, case in differing:
        request["device"] = with_empty_lists(request["device"])
        assert case["evaluation"] in tries(oracle, request), case["expression"]


def tries(oracle: upstream.Oracle, request: Message) -> list[Message]:
    """Many answers to one request: the cost of a loop over a map that ends early hangs on Go's map order."""
    answers = [cost_as_number(answer) for answer in oracle.ask_many([request] * 200)]
    differing = {key for answer in answers for key in answer if answer[key] != answers[0][key]}
    assert differing <= {"actualCost"}, "only the cost may vary"
    return answers


def test_recorded_expressions_validate_as_recorded(oracle: upstream.Oracle) -> None:
    cases = shared.document("conformance/dra/cel_extra.json.gz")["cases"]
    answers = oracle.ask_many(
        {"op": "cel", "expression": case["expression"], "env": "new"} for case in cases
    )
    for case, answer in zip(cases, answers, strict=True):
        seen = cost_as_number(answer)
        assert seen.get("compileError") == case.get("validationCompileError"), case["expression"]
        assert seen.get("estimatedCost") == case.get("validationEstimatedCost"), case["expression"]


def test_upstream_selector_table_agrees_in_every_environment(oracle: upstream.Oracle) -> None:
    selectors = shared.document("conformance/dra/cel_table.json.gz")["selectors"]
    assert len(selectors) == 71
    asked, expected = [], []
    for selector in selectors:
        for run in selector["runs"]:
            for recorded in run["env"]:
                asked.append(
                    {
                        "op": "cel",
                        "expression": selector["expression"],
                        "device": selector["device"],
                    }
                    | environment(recorded)
                )
                expected.append({key: value for key, value in run.items() if key != "env"})
    assert [cost_as_number(answer) for answer in oracle.ask_many(asked)] == expected


def test_derived_attributes_compile_as_recorded(oracle: upstream.Oracle) -> None:
    for case in shared.document("conformance/dra/cel_table.json.gz")["derivedCompile"]:
        mode = environment(
            f"{case['env']} listTypeAttributes={str(case['listTypeAttributes']).lower()}"
        )
        answer = oracle.ask({"op": "cel", "expression": case["expression"], "derived": True} | mode)
        assert answer.get("compileError") == case.get("compileError"), case["name"]
        assert answer.get("outputType") == case.get("outputType"), case["name"]


def test_derived_attributes_evaluate_as_recorded(oracle: upstream.Oracle) -> None:
    for case in shared.document("conformance/dra/cel_table.json.gz")["derivedEval"]:
        answer = oracle.ask(
            {
                "op": "cel",
                "expression": case["expression"],
                "device": case["device"],
                "derived": True,
                "features": {"listTypeAttributes": True},
            }
        )
        assert answer.get("attribute") == case.get("attribute"), case["name"]
        assert answer.get("matchError") == case.get("evalError"), case["name"]
        assert answer["actualCost"] == case["actualCost"], case["name"]


def test_many_devices_in_one_request_answer_like_one_each(oracle: upstream.Oracle) -> None:
    table = shared.document("conformance/dra/cel_extra.json.gz")
    devices = list(table["devices"].values())
    expression = table["cases"][0]["expression"]
    bulk = oracle.ask({"op": "cel", "expression": expression, "devices": devices})
    single = oracle.ask_many(
        {"op": "cel", "expression": expression, "device": device} for device in devices
    )
    compilation = {"estimatedCost", "outputType"}
    assert bulk["results"] == [
        {key: value for key, value in without_id(answer).items() if key not in compilation}
        for answer in single
    ]


@pytest.mark.parametrize(
    ("op", "singles", "pairs"),
    [("quantity", "quantity", "quantityPairs"), ("semver", "semver", "semverPairs")],
)
def test_quantities_and_versions_read_as_recorded(
    oracle: upstream.Oracle, op: str, singles: str, pairs: str
) -> None:
    table = shared.document("conformance/dra/quantity_semver.json.gz")
    answers = oracle.ask_many({"op": op, "a": entry["input"]} for entry in table[singles])
    for entry, answer in zip(table[singles], answers, strict=True):
        assert {"input": entry["input"]} | without_id(answer) == entry
    answers = oracle.ask_many({"op": op, "a": pair["a"], "b": pair["b"]} for pair in table[pairs])
    for pair, answer in zip(table[pairs], answers, strict=True):
        assert {"a": pair["a"], "b": pair["b"]} | without_id(answer) == pair


def test_a_quantity_that_upstream_would_never_finish_is_refused(oracle: upstream.Oracle) -> None:
    assert "exponent" in oracle.ask({"op": "quantity", "a": "1e2147483648"})["failure"]
    hidden = 'device.capacity["a"].b.isLessThan(quantity("1e2147483648"))'
    assert (
        "exponent"
        in oracle.ask({"op": "cel", "expression": hidden, "device": {"driver": "a"}})["failure"]
    )
    assert oracle.ask({"op": "quantity", "a": "1e99"})["ok"] is True


def test_a_bad_request_fails_alone_and_the_next_one_is_served(oracle: upstream.Oracle) -> None:
    unknown, broken, good = oracle.ask_many(
        [
            {"op": "nothing", "id": "first"},
            {"op": "cel", "id": {"nested": 2}, "expression": ["not", "a", "string"]},
            {"op": "quantity", "id": 3, "a": "1Gi"},
        ]
    )
    assert unknown["id"] == "first"
    assert "nothing" in unknown["failure"]
    assert broken["id"] == {"nested": 2}
    assert "failure" in broken
    assert (good["id"], good["value"]) == (3, "1073741824")


def test_a_dead_oracle_is_reported_and_not_waited_for() -> None:
    running = upstream.start()
    running.close()
    with pytest.raises(upstream.OracleDied):
        running.ask({"op": "quantity", "a": "1"})


def error_key(error: Message) -> tuple[str, str, str]:
    return error["type"], error["field"], error["message"]


def without_clock(value: Any, named: str) -> Any:
    """The recording kept one time of its own making; any time the request did not name is now."""
    if isinstance(value, dict):
        return {key: without_clock(inner, named) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_clock(inner, named) for inner in value]
    is_time = isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]+Z", value)
    return "<now>" if is_time and value not in named else value


def test_objects_are_judged_and_stored_as_recorded(oracle: upstream.Oracle) -> None:
    vectors = shared.document("conformance/dra/validation.json.gz")["vectors"]
    assert len(vectors) == 261
    inputs = ("object", "oldObject", "namespaceHasAdminLabel")
    answers = oracle.ask_many(
        {"op": "validate", "operation": vector["op"]}
        | {key: vector[key] for key in inputs if key in vector}
        for vector in vectors
    )
    for vector, answer in zip(vectors, answers, strict=True):
        seen = without_id(answer)
        seen["errors"] = sorted(seen["errors"], key=error_key)
        expected = {
            key: vector[key]
            for key in ("valid", "decodeError", "strictDecodeError", "stored")
            if key in vector
        }
        expected["errors"] = sorted(vector["errors"], key=error_key)
        assert seen == without_clock(expected, str([vector.get(key) for key in inputs])), vector[
            "name"
        ]


def test_an_object_that_cannot_be_decoded_says_why(oracle: upstream.Oracle) -> None:
    slice_ = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "spec": {"driver": 7}}
    answer = oracle.ask({"op": "validate", "object": slice_})
    assert answer["valid"] is False
    assert "driver" in answer["decodeError"]


def judged(answer: Message) -> Message:
    """What a recorded and a fresh attempt must share; the wording of errors changes between releases."""
    return {key: answer[key] for key in ("outcome", "results", "calls") if key in answer}


def patience_for(world: Message) -> float:
    """Seconds per node. Short where the recorded attempt never ended; else a busy machine may take its time."""
    outcomes = {recorded["outcome"] for recorded in world["answers"].values()}
    return 2.0 if "timeout" in outcomes else 120.0


@pytest.mark.parametrize(("name", "every"), [("probes", 1), ("fuzz_a", 10)])
@pytest.mark.parametrize("history", ["allocatedClaims", "inUse"])
def test_worlds_allocate_as_recorded(
    oracle: upstream.Oracle, name: str, every: int, history: str
) -> None:
    worlds = list(shared.lines(f"conformance/dra/{name}.jsonl.gz"))[::every]
    parts = ("nodes", "claims", "deviceClasses", "resourceSlices", history)
    answers = oracle.ask_many(
        {"op": "allocate", "timeoutSeconds": patience_for(world)}
        | {part: world[part] for part in parts}
        for world in worlds
    )
    for world, answer in zip(worlds, answers, strict=True):
        assert answer["answers"].keys() == world["answers"].keys()
        for node, recorded in world["answers"].items():
            if recorded["outcome"] != "timeout":
                assert judged(answer["answers"][node]) == judged(recorded), (world["id"], node)


def test_a_search_without_end_is_cut_off(oracle: upstream.Oracle) -> None:
    endless = [
        (world, node)
        for world in shared.lines("conformance/dra/fuzz_a.jsonl.gz")
        for node in world["nodes"]
        if world["answers"][node["metadata"]["name"]]["outcome"] == "timeout"
    ]
    assert endless
    for world, node in endless:
        parts = ("claims", "deviceClasses", "resourceSlices", "allocatedClaims")
        request = {"op": "allocate", "node": node, "timeoutSeconds": 0.1}
        answer = oracle.ask(request | {part: world[part] for part in parts})
        assert answer["outcome"] == "timeout", world["id"]


def in_use(inputs: Message) -> Message:
    def name(entry: Message) -> str:
        return f"{entry['driver']}/{entry['pool']}/{entry['device']}"

    shares = inputs.get("allocatedSharedDevices") or []
    return {
        "devices": [name(entry) for entry in inputs.get("allocatedDevices") or []],
        "shared": [f"{name(entry)}/{entry.get('shareID', '')}" for entry in shares],
        "capacity": {
            name(entry): entry["capacity"] for entry in inputs.get("aggregatedCapacity") or []
        },
    }


def test_upstream_allocator_table_agrees_in_its_own_variant_and_features(
    oracle: upstream.Oracle,
) -> None:
    cases = shared.document("conformance/dra/allocator_table.json.gz")["cases"]
    parts = ("claims", "deviceClasses", "resourceSlices", "node")
    answers = oracle.ask_many(
        {"op": "allocate", "variant": case["oracleVariant"], "features": case["features"]}
        | {"inUse": in_use(case["inputs"])}
        | {part: case["inputs"][part] for part in parts if part in case["inputs"]}
        for case in cases
    )
    for case, answer in zip(cases, answers, strict=True):
        recorded = case["outcomes"][case["oracle"]]
        assert answer["outcome"] == recorded["outcome"], case["name"]
        if "note" not in case:  # a note says that Go's encoder cannot print the result
            assert answer.get("results", []) == recorded.get("results", []), case["name"]


def test_a_taint_rule_keeps_claims_away_from_the_devices_it_selects(
    oracle: upstream.Oracle,
) -> None:
    world = {
        "op": "allocate",
        "node": {"metadata": {"name": "a"}},
        "deviceClasses": [{"metadata": {"name": "gpu"}}],
        "resourceSlices": [
            {
                "metadata": {"name": "s"},
                "spec": {
                    "driver": "gpu.example.com",
                    "pool": {"name": "a", "generation": 1, "resourceSliceCount": 1},
                    "nodeName": "a",
                    "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
                },
            }
        ],
        "claims": [
            {
                "metadata": {"name": "c", "namespace": "default"},
                "spec": {
                    "devices": {
                        "requests": [
                            {
                                "name": "r",
                                "exactly": {
                                    "deviceClassName": "gpu",
                                    "allocationMode": "ExactCount",
                                    "count": 1,
                                },
                            }
                        ]
                    }
                },
            }
        ],
    }
    rule = {
        "metadata": {"name": "broken"},
        "spec": {
            "deviceSelector": {"device": "gpu-0"},
            "taint": {"key": "broken", "effect": "NoSchedule"},
        },
    }

    def chosen(answer: Message) -> list[str]:
        return [device["device"] for device in answer["results"][0]["devices"]["results"]]

    assert chosen(oracle.ask(world)) == ["gpu-0"]
    assert chosen(oracle.ask(world | {"deviceTaintRules": [rule]})) == ["gpu-1"]


@pytest.mark.parametrize(
    ("kind", "table", "outputs"),
    [
        ("toleration", "tolerations", ("tolerates",)),
        ("nodeSelector", "nodeSelectors", ("matches",)),
        ("capacity", "capacity", ("fits", "consumed")),
    ],
)
def test_predicates_hold_as_recorded(
    oracle: upstream.Oracle, kind: str, table: str, outputs: tuple[str, ...]
) -> None:
    entries = shared.document("conformance/dra/predicates.json.gz")[table]
    answers = oracle.ask_many(
        {"op": "predicates", "kind": kind}
        | {key: value for key, value in entry.items() if key not in (*outputs, "error")}
        for entry in entries
    )
    for entry, answer in zip(entries, answers, strict=True):
        assert [answer.get(key) for key in outputs] == [entry.get(key) for key in outputs], entry
        # The allocator says where it was before it says what went wrong.
        assert answer.get("error", "").endswith(entry.get("error", "")), entry
        assert ("error" in answer) == ("error" in entry), entry


def test_benchmarks_count_the_work_they_did(oracle: upstream.Oracle) -> None:
    slices = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSliceList",
        "items": [{"metadata": {"name": "s"}, "spec": {"driver": "gpu.example.com"}}] * 3,
    }
    decoded = oracle.ask({"op": "bench", "what": "decode", "slices": slices, "repeat": 4})
    assert decoded["count"] == 12
    device = {"driver": "gpu.example.com"}
    evaluated = oracle.ask(
        {
            "op": "bench",
            "what": "cel",
            "expressions": ['device.driver == "gpu.example.com"', 'device.driver == "other"'],
            "devices": [device, device],
            "seconds": 0.01,
        }
    )
    assert evaluated["count"] % 4 == 0
    assert evaluated["matches"] == evaluated["count"] / 2
    empty_class = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
    }
    nameless = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}
    validated = oracle.ask(
        {"op": "bench", "what": "validate", "objects": [empty_class, nameless], "repeat": 5}
    )
    assert (validated["count"], validated["refused"]) == (10, 5)
    assert min(answer["perSecond"] for answer in (decoded, evaluated, validated)) > 0

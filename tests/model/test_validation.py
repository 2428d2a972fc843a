"""Validation: the recorded verdicts of Kubernetes 1.37, and the rules one by one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.admission import admit
from dovetail.cel import selectors
from dovetail.kubetypes import codec, field_errors, names
from dovetail.kubetypes.resource import claims, slices, taint_rules
from tests.support import shared

NOW = "2026-11-15T21:00:00Z"
TERMS = field_errors.Terms(lambda expression: None, namespace="default", now=NOW)
Found = set[tuple[str, str]]


def resource(kind: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "x", **metadata},
        "spec": spec,
    }


def slice_of(*devices: dict[str, Any], **spec: Any) -> dict[str, Any]:
    placed = (
        {}
        if spec.keys() & {"allNodes", "perDeviceNodeSelection", "nodeSelector"}
        else {"nodeName": "n"}
    )
    base = {
        "driver": "gpu.example.com",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
    }
    return resource(
        "ResourceSlice", base | placed | ({"devices": list(devices)} if devices else {}) | spec
    )


def claim_of(*requests: dict[str, Any], **devices: Any) -> dict[str, Any]:
    return resource(
        "ResourceClaim", {"devices": {"requests": list(requests), **devices}}, namespace="train"
    )


def request(name: str = "gpu", **exactly: Any) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": "gpu.example.com", **exactly}}


def judged(
    tree: dict[str, Any], old: dict[str, Any] | None = None, terms: field_errors.Terms = TERMS
) -> admit.Verdict:
    new = codec.decode(tree).struct
    if old is None:
        return admit.create(new, terms)
    return admit.update(new, codec.decode(old).struct, terms=terms)


def found(verdict: admit.Verdict) -> Found:
    return {
        (problem.type.removeprefix("FieldValue"), problem.field) for problem in verdict.problems
    }


def versioned(tree: dict[str, Any]) -> dict[str, Any]:
    return tree | {"metadata": tree["metadata"] | {"resourceVersion": "1", "uid": "u"}}


def recorded_verdict(vector: dict[str, Any]) -> admit.Verdict:
    terms = field_errors.Terms(selectors.problem, vector["namespaceHasAdminLabel"], now=NOW)
    new = codec.decode(vector["object"]).struct
    if vector["op"] == "create":
        return admit.create(new, terms)
    old = codec.decode(vector["oldObject"]).struct
    change = admit.update if vector["op"] == "update" else admit.update_status
    return change(new, old, terms=terms)


def test_every_recorded_verdict_is_ours() -> None:
    vectors = shared.document("conformance/dra/validation.json.gz", now=NOW)["vectors"]
    assert len(vectors) == 261
    disagreements = []
    for vector in vectors:
        verdict = recorded_verdict(vector)
        ours = {(problem.type, problem.field) for problem in verdict.problems}
        theirs = {(error["type"], error["field"]) for error in vector["errors"]}
        if ours != theirs or verdict.is_valid != vector["valid"]:
            disagreements.append((vector["name"], ours ^ theirs))
    assert disagreements == []


def test_what_is_stored_is_what_upstream_stores() -> None:
    seen = 0
    for vector in shared.document("conformance/dra/validation.json.gz", now=NOW)["vectors"]:
        if not vector["valid"]:
            continue
        ours = recorded_verdict(vector).object
        theirs = codec.decode(vector["stored"]).struct
        if isinstance(ours, taint_rules.DeviceTaintRule) and vector["op"] == "update":
            assert isinstance(theirs, taint_rules.DeviceTaintRule)
            ours, theirs = with_time(ours), with_time(theirs)  # upstream wrote its own clock here
        for part in ("spec", "status"):
            assert getattr(ours, part, None) == getattr(theirs, part, None), vector["name"]
        assert ours.metadata.labels == theirs.metadata.labels
        seen += 1
    assert seen == 106


def with_time(rule: taint_rules.DeviceTaintRule) -> taint_rules.DeviceTaintRule:
    taint = msgspec.structs.replace(rule.spec.taint, time_added=NOW)
    return msgspec.structs.replace(rule, spec=msgspec.structs.replace(rule.spec, taint=taint))


def test_a_sound_claim_is_stored_with_its_defaults() -> None:
    verdict = judged(claim_of(request(tolerations=[{"key": "k", "value": "v"}])))
    assert verdict.is_valid
    assert isinstance(verdict.object, claims.ResourceClaim)
    exactly = verdict.object.spec.devices.requests[0].exactly
    assert exactly is not None
    assert (exactly.allocation_mode, exactly.count) == ("ExactCount", 1)
    assert exactly.tolerations[0].operator == "Equal"


def test_the_engine_judges_expressions_and_the_length_is_ours() -> None:
    asked: list[str] = []

    def engine(expression: str) -> field_errors.ExpressionFault | None:
        asked.append(expression)
        if expression == "dear":
            return field_errors.ExpressionFault("too dear", is_too_costly=True)
        return field_errors.ExpressionFault("no such thing") if expression == "bad" else None

    texts = ["good", "bad", "dear", "x" * 10240, "x" * 10241]
    chosen = [{"cel": {"expression": text}} for text in texts]
    verdict = judged(claim_of(request(selectors=chosen)), terms=field_errors.Terms(engine))
    path = "spec.devices.requests[0].exactly.selectors[{}].cel.expression"
    assert found(verdict) == {
        ("Invalid", path.format(1)),
        ("Forbidden", path.format(2)),
        ("TooLong", path.format(4)),
    }
    assert asked == texts[:4]


def test_a_class_as_stored_is_not_judged_again() -> None:
    refusing = field_errors.Terms(
        lambda expression: field_errors.ExpressionFault("the engine got stricter")
    )
    stored = versioned(resource("DeviceClass", {"selectors": [{"cel": {"expression": "true"}}]}))
    assert judged(stored, stored, refusing).is_valid
    changed = stored | {"spec": {"selectors": [{"cel": {"expression": "true "}}]}}
    assert found(judged(changed, stored, refusing)) == {
        ("Invalid", "spec.selectors[0].cel.expression")
    }


def test_a_request_with_both_forms_is_still_looked_into() -> None:
    both = request(tolerations=[{"key": "k", "effect": "Nope"}]) | {
        "firstAvailable": [{"name": "s", "allocationMode": "Some"}]
    }
    assert found(judged(claim_of(both))) == {
        ("Invalid", "spec.devices.requests[0]"),
        ("NotSupported", "spec.devices.requests[0].exactly.tolerations[0].effect"),
        ("Required", "spec.devices.requests[0].firstAvailable[0].deviceClassName"),
        ("NotSupported", "spec.devices.requests[0].firstAvailable[0].allocationMode"),
    }


def test_references_to_requests_must_lead_somewhere() -> None:
    tree = claim_of(
        request("a"),
        {"name": "b", "firstAvailable": [{"name": "s", "deviceClassName": "c"}]},
        constraints=[
            {"requests": ["a", "b", "b/s", "b/t", "c", "a/s"], "matchAttribute": "d.io/x"}
        ],
    )
    path = "spec.devices.constraints[0].requests[{}]"
    assert found(judged(tree)) == {("Invalid", path.format(index)) for index in (3, 4, 5)}


def test_devices_share_the_slice_with_nothing_else() -> None:
    counters = [{"name": "c", "counters": {"x": {"value": "1"}}}]
    assert judged(slice_of(sharedCounters=counters)).is_valid
    tree = slice_of(sharedCounters=counters)
    tree["spec"]["devices"] = []
    assert found(judged(tree)) == {("Invalid", "spec")}


@pytest.mark.parametrize(
    ("device", "limit"),
    [
        ({}, 128),
        ({"taints": [{"key": "k", "effect": "NoSchedule"}]}, 64),
        ({"consumesCounters": [{"counterSet": "c", "counters": {"x": {"value": "1"}}}]}, 64),
    ],
)
def test_the_number_of_devices_is_limited(device: dict[str, Any], limit: int) -> None:
    devices = [{"name": f"d{index}", **device} for index in range(limit + 1)]
    assert judged(slice_of(*devices[:-1])).is_valid
    assert found(judged(slice_of(*devices))) == {("TooMany", "spec.devices")}


def test_list_attributes_are_left_out_while_their_gate_is_off() -> None:
    tree = slice_of({"name": "a", "attributes": {"s": {"string": "x"}, "l": {"strings": ["x"]}}})
    verdict = judged(tree)
    assert found(verdict) == {("Invalid", "spec.devices[0].attributes[l]")}
    assert isinstance(verdict.object, slices.ResourceSlice)
    assert verdict.object.spec.devices[0].attributes["l"] == slices.DeviceAttribute()


def test_an_alpha_field_in_use_is_kept_at_an_update() -> None:
    old = versioned(slice_of({"name": "a", "attributes": {"l": {"strings": ["x"]}}}))
    new = versioned(slice_of({"name": "a", "attributes": {"l": {"strings": ["x", "y" * 65]}}}))
    assert found(judged(new, old)) == {("TooLong", "spec.devices[0].attributes[l].strings[1]")}
    assert judged(old, old).is_valid


def test_a_stored_taint_effect_from_the_future_passes_while_its_slice_is_unchanged() -> None:
    taint = {"key": "k", "effect": "Later", "timeAdded": NOW}
    old = versioned(slice_of({"name": "a", "taints": [taint]}))
    assert judged(old, old).is_valid
    new = versioned(slice_of({"name": "a", "taints": [taint]}, {"name": "b"}))
    assert found(judged(new, old)) == {("NotSupported", "spec.devices[0].taints[0].effect")}


def test_generation_counts_changes_of_the_spec() -> None:
    old = versioned(slice_of({"name": "a"}))
    old["metadata"]["generation"] = 7
    assert judged(old, old).object.metadata.generation == 7
    new = versioned(slice_of({"name": "b"}))
    assert judged(new, old).object.metadata.generation == 8


def status_verdict(
    status: dict[str, Any], old_status: dict[str, Any] | None = None, **metadata: Any
) -> Found:
    old = versioned(claim_of(request("a"))) | {"status": old_status or {}}
    old["metadata"] |= metadata
    new = old | {"status": status}
    return found(
        admit.update_status(codec.decode(new).struct, codec.decode(old).struct, terms=TERMS)
    )


DEVICE = {"driver": "d.io", "pool": "p", "device": "gpu-0"}
ALLOCATED = {"allocation": {"devices": {"results": [{"request": "a", **DEVICE}]}}}


def test_an_allocation_is_set_once_and_then_only_cleared() -> None:
    assert status_verdict(ALLOCATED) == set()
    assert status_verdict(ALLOCATED, ALLOCATED) == set()
    assert status_verdict({}, ALLOCATED) == set()
    other = {"allocation": {"devices": {"results": []}}}
    assert status_verdict(other, ALLOCATED) == {("Invalid", "status.allocation")}


def test_no_new_pod_can_reserve_a_claim_that_is_being_deleted() -> None:
    item = {"resource": "pods", "name": "p", "uid": "1"}
    two = {"resource": "pods", "name": "q", "uid": "2"}
    leaving = {"deletionTimestamp": NOW, "finalizers": ["d.io/f"]}
    reserved = ALLOCATED | {"reservedFor": [item]}
    assert status_verdict(reserved, reserved, **leaving) == set()
    assert status_verdict(ALLOCATED | {"reservedFor": [item, two]}, reserved, **leaving) == {
        ("Forbidden", "status.reservedFor")
    }


def test_device_reports_are_checked_in_full() -> None:
    report = DEVICE | {
        "conditions": [
            {"type": "Ready", "status": "Maybe", "reason": "", "lastTransitionTime": NOW},
            {"type": "Ready", "status": "True", "reason": "1bad", "message": "m"},
        ],
        "data": [1],
        "networkData": {
            "interfaceName": "i" * 257,
            "ips": ["10.0.0.1", "10.0.0.1/24", "10.0.0.01/24", "::ffff:1.2.3.4/120"],
        },
    }
    at = "status.devices[0]"
    assert status_verdict(ALLOCATED | {"devices": [report]}) == {
        ("NotSupported", f"{at}.conditions[0].status"),
        ("Required", f"{at}.conditions[0].reason"),
        ("Duplicate", f"{at}.conditions[1]"),
        ("Invalid", f"{at}.conditions[1].reason"),
        ("Required", f"{at}.conditions[1].lastTransitionTime"),
        ("Invalid", f"{at}.data"),
        ("TooLong", f"{at}.networkData.interfaceName"),
        ("Invalid", f"{at}.networkData.ips[0]"),
        ("Invalid", f"{at}.networkData.ips[2]"),
        ("Invalid", f"{at}.networkData.ips[3]"),
    }


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"name": "Upper"}, {("Invalid", "metadata.name")}),
        ({"name": ""}, {("Required", "metadata.name")}),
        ({"name": "", "generateName": "gpu-"}, set()),
        (
            {"name": "", "generateName": "GPU-"},
            {("Invalid", "metadata.generateName"), ("Invalid", "metadata.name")},
        ),
        ({"namespace": "a.b"}, {("Invalid", "metadata.namespace")}),
        ({"labels": {"a/b/c": "x"}}, {("Invalid", "metadata.labels")}),
        ({"labels": {"a": "-"}}, {("Invalid", "metadata.labels")}),
        ({"annotations": {"A": "x" * (256 * 1024)}}, {("TooLong", "metadata.annotations")}),
        ({"finalizers": ["plain"]}, {("Invalid", "metadata.finalizers[0]")}),
        (
            {"ownerReferences": [{"apiVersion": "v1"}]},
            {
                ("Required", "metadata.ownerReferences[0].kind"),
                ("Required", "metadata.ownerReferences[0].name"),
                ("Required", "metadata.ownerReferences[0].uid"),
            },
        ),
    ],
)
def test_metadata_is_checked(metadata: dict[str, Any], expected: Found) -> None:
    tree = claim_of(request())
    tree["metadata"] |= metadata
    assert found(judged(tree)) == expected


def test_a_line_break_never_hides_at_the_end_of_a_name() -> None:
    assert not names.is_dns_label("a\n")
    assert not names.is_label_value("a\n")
    assert not names.is_semver("1.2.3\n")
    assert not names.is_uuid("11111111-1111-1111-1111-111111111111\n")


def pod(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "train"},
        "spec": {"containers": [{"name": "c"}], **spec},
    }


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, set()),
        ({"containers": []}, {("Required", "spec.containers")}),
        (
            {"containers": [{"name": "c"}, {"name": "c"}]},
            {("Duplicate", "spec.containers[1].name")},
        ),
        (
            {
                "containers": [
                    {
                        "name": "c",
                        "resources": {"requests": {"cpu": "-1"}, "limits": {"d.io/gpu": "0.5"}},
                    }
                ]
            },
            {
                ("Invalid", "spec.containers[0].resources.requests[cpu]"),
                ("Invalid", "spec.containers[0].resources.limits[d.io/gpu]"),
            },
        ),
        (
            {
                "containers": [
                    {"name": "c", "resources": {"requests": {"cpu": 2}, "limits": {"cpu": 1}}}
                ]
            },
            {("Invalid", "spec.containers[0].resources.requests[cpu]")},
        ),
        (
            {"containers": [{"name": "c", "resources": {"claims": [{"name": "gpu"}]}}]},
            {("NotFound", "spec.containers[0].resources.claims[0].name")},
        ),
        ({"resourceClaims": [{"name": "gpu"}]}, {("Invalid", "spec.resourceClaims[0]")}),
        ({"tolerations": [{"value": "x"}]}, {("Invalid", "spec.tolerations[0].operator")}),
        (
            {"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "z"}]},
            {
                ("Invalid", "spec.topologySpreadConstraints[0].maxSkew"),
                ("Required", "spec.topologySpreadConstraints[0].whenUnsatisfiable"),
            },
        ),
        (
            {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}},
            {
                (
                    "Required",
                    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
                )
            },
        ),
    ],
)
def test_pods_are_checked_lightly(spec: dict[str, Any], expected: Found) -> None:
    assert found(judged(pod(**spec))) == expected


def test_nodes_are_checked_lightly() -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "namespace": "x"},
        "spec": {"taints": [{"key": "k", "effect": "Sometimes"}]},
        "status": {"allocatable": {"cpu": "-1", "memory": "1Gi"}},
    }
    assert found(judged(node)) == {
        ("Forbidden", "metadata.namespace"),
        ("NotSupported", "spec.taints[0].effect"),
        ("Invalid", "status.allocatable[cpu]"),
    }


def test_messages_say_what_is_wrong_and_what_would_be_right() -> None:
    verdict = judged(
        claim_of(request("a"), constraints=[{"requests": ["b"], "matchAttribute": "x"}])
    )
    assert sorted(map(str, verdict.problems)) == [
        "spec.devices.constraints[0].matchAttribute: \"x\" must be a domain and a name joined by '/'",
        'spec.devices.constraints[0].requests[0]: "b" is no request of the claim, nor request/alternative; '
        "there are: a",
    ]


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({"requests": {"nvidia.com/gpu": "1"}}, ("Required", "limits", "Limit must be set")),
        (
            {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "2"}},
            ("Invalid", "requests[nvidia.com/gpu]", "must be equal to nvidia.com/gpu limit of 2"),
        ),
        ({"requests": {"hugepages-2Mi": "2Mi"}}, ("Required", "limits", "Limit must be set")),
        ({"requests": {"nvidia.com/gpu": "2"}, "limits": {"nvidia.com/gpu": "2"}}, None),
        ({"limits": {"nvidia.com/gpu": "2"}}, None),
        ({"requests": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}}, None),
        ({"requests": {"deviceclass.resource.kubernetes.io/gpu": "1"}}, None),
    ],
)
def test_what_cannot_be_overcommitted_needs_an_equal_limit(
    resources: dict[str, Any], expected: tuple[str, str, str] | None
) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "train"},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
    }
    problems = judged(pod).problems
    if expected is None:
        assert problems == ()
        return
    kind, path, words = expected
    [problem] = problems
    assert problem.type == f"FieldValue{kind}"
    assert problem.field == f"spec.containers[0].resources.{path}"
    assert words in problem.message

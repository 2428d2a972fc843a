"""Objects of older API versions become those of the versions that the World reads."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.kubetypes import codec
from dovetail.kubetypes.resource import claims, slices
from dovetail.snapshot import converted_versions

Tree = dict[str, Any]


def written(api_version: str, kind: str, **body: Any) -> Tree:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}, **body}


def struct_of(tree: Tree) -> Any:
    stored = codec.decode(converted_versions.converted(tree))
    assert not isinstance(stored.struct, codec.Generic)
    return stored.struct


FLAT = {
    "name": "gpu",
    "deviceClassName": "gpu.nvidia.com",
    "selectors": [{"cel": {"expression": "true"}}],
    "allocationMode": "ExactCount",
    "count": 2,
    "adminAccess": True,
    "tolerations": [{"key": "k", "operator": "Exists"}],
}


@pytest.mark.parametrize("version", ["v1alpha3", "v1beta1"])
@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
def test_flat_requests_become_exact_ones(version: str, kind: str) -> None:
    spec: Tree = {"devices": {"requests": [FLAT]}}
    if kind == "ResourceClaimTemplate":
        spec = {"spec": spec}
    struct = struct_of(written(f"resource.k8s.io/{version}", kind, spec=spec))
    devices = struct.spec.spec.devices if kind == "ResourceClaimTemplate" else struct.spec.devices
    [request] = devices.requests
    exactly = request.exactly
    assert (request.name, exactly.device_class_name, exactly.count) == ("gpu", "gpu.nvidia.com", 2)
    assert exactly.selectors[0].cel.expression == "true"
    assert exactly.admin_access is True
    assert exactly.tolerations[0].key == "k"


def test_requests_with_alternatives_stay_as_they_are() -> None:
    alternatives = [{"name": "big", "deviceClassName": "gpu.nvidia.com", "count": 8}]
    request = {"name": "gpu", "deviceClassName": "", "firstAvailable": alternatives}
    tree = written(
        "resource.k8s.io/v1beta1", "ResourceClaim", spec={"devices": {"requests": [request]}}
    )
    [converted] = struct_of(tree).spec.devices.requests
    assert converted.exactly is None
    assert converted.first_available[0].count == 8


def test_what_v1beta2_wrote_has_the_shape_of_v1() -> None:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    spec = {"devices": {"requests": [request]}}
    struct = struct_of(written("resource.k8s.io/v1beta2", "ResourceClaim", spec=spec))
    assert isinstance(struct, claims.ResourceClaim)
    assert struct.api_version == "resource.k8s.io/v1"
    assert struct.spec.devices.requests[0].exactly is not None


@pytest.mark.parametrize(("version", "amount"), [("v1alpha3", "80Gi"), ("v1beta1", None)])
def test_basic_devices_become_plain_ones(version: str, amount: Any) -> None:
    basic = {
        "attributes": {"type": {"string": "gpu"}},
        "capacity": {"memory": amount or {"value": "80Gi"}},
        "taints": [{"key": "bad", "effect": "NoSchedule"}],
    }
    spec = {
        "driver": "gpu.nvidia.com",
        "nodeName": "n",
        "pool": {"name": "n"},
        "devices": [{"name": "gpu-0", "basic": basic}],
    }
    struct = struct_of(written(f"resource.k8s.io/{version}", "ResourceSlice", spec=spec))
    assert isinstance(struct, slices.ResourceSlice)
    [device] = struct.spec.devices
    assert device.attributes["type"].string_value == "gpu"
    assert device.capacity["memory"].value.nanos == 80 * 2**30 * 10**9
    assert device.taints[0].key == "bad"


@pytest.mark.parametrize("version", ["v1alpha3", "v1beta2", "v1"])
def test_taint_rules_are_read_in_every_version(version: str) -> None:
    spec = {"deviceSelector": {"pool": "p"}, "taint": {"key": "k", "effect": "NoExecute"}}
    struct = struct_of(written(f"resource.k8s.io/{version}", "DeviceTaintRule", spec=spec))
    assert (struct.spec.device_selector.pool, struct.spec.taint.key) == ("p", "k")


@pytest.mark.parametrize("selector", [{"deviceClassName": "x"}, {"selectors": [{"cel": {}}]}])
def test_a_rule_whose_devices_newer_versions_cannot_name_is_not_widened(selector: Tree) -> None:
    tree = written("resource.k8s.io/v1alpha3", "DeviceTaintRule", spec={"deviceSelector": selector})
    with pytest.raises(converted_versions.UnreadVersion, match="v1alpha3 had it") as caught:
        converted_versions.converted(tree)
    assert caught.value.field == f"spec.deviceSelector.{next(iter(selector))}"


def test_versions_without_a_way_are_named_with_those_that_have_one() -> None:
    tree = written("resource.k8s.io/v1alpha2", "ResourceClaim")
    with pytest.raises(converted_versions.UnreadVersion) as caught:
        converted_versions.converted(tree)
    assert str(caught.value) == (
        "resource.k8s.io/v1alpha2 is not read; expected resource.k8s.io/v1, "
        "resource.k8s.io/v1beta2, resource.k8s.io/v1beta1, resource.k8s.io/v1alpha3"
    )


def test_core_events_become_events_of_their_group() -> None:
    tree = written(
        "v1",
        "Event",
        involvedObject={"kind": "Pod", "name": "p"},
        message="0/3 nodes are available",
        eventTime=None,
        lastTimestamp="2026-01-31T08:00:00Z",
        count=3,
    )
    converted = converted_versions.converted(tree)
    assert converted["apiVersion"] == "events.k8s.io/v1"
    assert converted["regarding"] == {"kind": "Pod", "name": "p"}
    assert converted["note"] == "0/3 nodes are available"
    assert converted["deprecatedCount"] == 3
    assert "eventTime" not in converted
    assert tree["message"]  # its input stays


@pytest.mark.parametrize("spec", [None, 7, [], {}, {"devices": 7}, {"devices": {"requests": [7]}}])
def test_nonsense_is_left_for_the_decoder(spec: Any) -> None:
    for kind in ("ResourceClaim", "ResourceSlice", "ResourceClaimTemplate", "DeviceTaintRule"):
        tree = written("resource.k8s.io/v1beta1", kind, spec=spec)
        assert converted_versions.converted(tree)["apiVersion"] == "resource.k8s.io/v1"

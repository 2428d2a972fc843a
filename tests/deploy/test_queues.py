"""The definition of queues on a real API server: what it accepts, what it refuses, and in which words."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from dovetail.boot import controlplane
from tests.deploy import build
from tests.support import cluster as planes

pytestmark = pytest.mark.slow

Spec = dict[str, Any]
WHOLE: Spec = {
    "parent": "research",
    "priority": 10,
    "resources": {
        "nvidia.com/gpu": {"quota": 8, "limit": "16", "weight": 2},
        "gpu.nvidia.com.deviceclass.resource.k8s.io/devices": {"quota": "500m"},
        "memory": {"quota": "80Gi", "limit": "1Ti"},
        "cpu": {},
    },
    "namespaceSelector": {
        "matchLabels": {"team": "vision"},
        "matchExpressions": [{"key": "stage", "operator": "In", "values": ["dev", "prod"]}],
    },
    "aliases": ["team-queue", "kai.vision"],
    "minRuntimeSeconds": 60,
    "maxRuntimeSeconds": 3600,
}
REFUSED: dict[str, tuple[Spec, str]] = {
    "quota above limit": ({"resources": {"cpu": {"quota": "2", "limit": "1999m"}}}, "limit must be at least quota"),
    "negative quota": ({"resources": {"cpu": {"quota": -1}}}, "quota must not be negative"),
    "negative limit": ({"resources": {"cpu": {"limit": "-1Gi"}}}, "limit must not be negative"),
    "quota no quantity": ({"resources": {"cpu": {"quota": "lots"}}}, "quota must be a quantity such as 8"),
    "limit no quantity": ({"resources": {"cpu": {"limit": "8 GB"}}}, "limit must be a quantity such as 8"),
    "negative weight": ({"resources": {"cpu": {"weight": -1}}}, "should be greater than or equal to 0"),
    "bad resource name": ({"resources": {"nvidia.com/gpu/x": {}}}, "resources are named like cpu"),
    "bad parent name": ({"parent": "Research_1"}, "parent must be the name of a queue"),
    "bad alias": ({"aliases": ["-no"]}, "an alias must be a label value"),
    "alias twice": ({"aliases": ["a", "a"]}, "Duplicate value"),
    "runtimes crossed": ({"minRuntimeSeconds": 2, "maxRuntimeSeconds": 1}, "minRuntimeSeconds must not be larger"),
    "negative runtime": ({"minRuntimeSeconds": -1}, "should be greater than or equal to 0"),
    "values missing": (
        {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
        "In and NotIn need values",
    ),
    "values too many": (
        {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}},
        "Exists and DoesNotExist have none",
    ),
    "operator unknown": (
        {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}},
        "Unsupported value",
    ),
    "unknown field": ({"weight": 1}, "unknown field"),
    "priority out of range": ({"priority": 2_000_000_000}, "should be less than or equal to 1000000000"),
}


@pytest.fixture(scope="module")
def plane() -> Iterator[controlplane.ControlPlane]:
    """The control plane all tests share, with the definition on it while these tests run."""
    found = planes.control_plane()
    (definition,) = build.of_kind(build.objects(), "CustomResourceDefinition")
    planes.apply(found, [definition])
    planes.kubectl(found, "wait", "--for=condition=Established", "crd/queues.dovetail.dev", "--timeout=60s")
    yield found
    planes.kubectl(found, "delete", "crd", "queues.dovetail.dev")


def test_the_definition_has_no_complaints(plane: controlplane.ControlPlane) -> None:
    """A schema that is not structural is accepted with a condition that says so."""
    found = planes.get(plane, "crd", "queues.dovetail.dev")
    said = {one["type"]: one["status"] for one in found["status"]["conditions"]}
    assert said.get("NonStructuralSchema", "False") == "False"
    assert said["Established"] == "True"


def test_a_whole_queue_is_kept_with_its_defaults(plane: controlplane.ControlPlane) -> None:
    name = _name()
    planes.apply(plane, [_queue(name, WHOLE)])
    kept = planes.get(plane, "queue", name)["spec"]
    filled = json.loads(json.dumps(WHOLE))
    for share in filled["resources"].values():
        share.setdefault("weight", 1)
    assert kept == filled
    planes.apply(plane, [_queue(f"{name}-empty", {})])
    assert planes.get(plane, "queue", f"{name}-empty")["spec"] == {"priority": 0}


def test_the_columns_show_parent_priority_and_readiness(plane: controlplane.ControlPlane) -> None:
    name = _name()
    planes.apply(plane, [_queue(name, WHOLE)])
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "NoParent",
        "message": "",
        "lastTransitionTime": "2026-01-31T08:00:00Z",
        "observedGeneration": 1,
    }
    status = {"status": {"observedGeneration": 1, "conditions": [condition]}}
    patch = ["patch", "queue", name, "--subresource=status", "--type=merge", "-p", json.dumps(status)]
    planes.kubectl(plane, *patch)
    head, row = planes.kubectl(plane, "get", "queue", name, "-o", "wide").splitlines()
    assert head.split() == ["NAME", "PARENT", "PRIORITY", "READY", "REASON", "ALIASES", "AGE"]
    assert row.split()[:5] == [name, "research", "10", "False", "NoParent"]
    assert planes.get(plane, "queue", name)["metadata"]["generation"] == 1, "a status is not a change of the queue"


@pytest.mark.parametrize("what", REFUSED)
def test_what_makes_no_sense_is_refused_in_words(plane: controlplane.ControlPlane, what: str) -> None:
    spec, words = REFUSED[what]
    assert words in _refusal(plane, _queue(_name(), spec))


def test_a_queue_is_not_its_own_parent(plane: controlplane.ControlPlane) -> None:
    name = _name()
    assert "a queue cannot be its own parent" in _refusal(plane, _queue(name, {"parent": name}))


@pytest.mark.parametrize("name", ["two.labels", "a" * 64])
def test_a_queue_can_be_named_by_a_label(plane: controlplane.ControlPlane, name: str) -> None:
    assert "must be a DNS label of at most 63 characters" in _refusal(plane, _queue(name, {}))


def test_a_queue_needs_a_spec(plane: controlplane.ControlPlane) -> None:
    tree = _queue(_name(), {})
    del tree["spec"]
    assert "spec: Required value" in _refusal(plane, tree)


def _name() -> str:
    return f"q-{uuid.uuid4().hex[:12]}"


def _queue(name: str, spec: Spec) -> dict[str, Any]:
    return {"apiVersion": "dovetail.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def _refusal(plane: controlplane.ControlPlane, tree: dict[str, Any]) -> str:
    done = planes.run_kubectl(plane, "create", "--validate=strict", "-f", "-", input=json.dumps(tree))
    assert done.returncode != 0, "it was accepted"
    return done.stderr

"""The definitions of queues and topologies on a real API server: what is accepted, what refused, in which words."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dovetail.devcluster import control_plane
from dovetail.kubetypes import meta
from dovetail.kubetypes.custom import queues, topologies
from dovetail.migrate import field_notes, from_kai, from_kueue
from tests.deploy import build
from tests.deploy.queue_cases import LEVELS, REFUSED, REFUSED_LEVELS, WHOLE, Spec
from tests.support import cluster as planes

pytestmark = pytest.mark.slow

DEFINED = ("queues.dovetail.dev", "topologies.dovetail.dev")


@pytest.fixture(scope="module")
def plane() -> Iterator[control_plane.ControlPlane]:
    """The control plane all tests share, with the definition on it while these tests run."""
    result = planes.control_plane()
    kept = [
        item
        for item in build.of_kind(build.objects(), "CustomResourceDefinition")
        if _name_of(item) in DEFINED
    ]
    planes.apply(result, kept)
    for name in DEFINED:
        planes.kubectl(
            result, "wait", "--for=condition=Established", f"crd/{name}", "--timeout=60s"
        )
    yield result
    planes.kubectl(result, "delete", "crd", *DEFINED)


@pytest.mark.parametrize("name", DEFINED)
def test_the_definition_has_no_complaints(plane: control_plane.ControlPlane, name: str) -> None:
    """A schema that is not structural is accepted with a condition that says so."""
    result = planes.get(plane, "crd", name)
    messages = {item["type"]: item["status"] for item in result["status"]["conditions"]}
    assert messages.get("NonStructuralSchema", "False") == "False"
    assert messages["Established"] == "True"


def test_the_definition_has_every_field_of_the_struct_and_no_other(
    plane: control_plane.ControlPlane,
) -> None:
    for name, struct in (
        ("queues.dovetail.dev", queues.Queue),
        ("topologies.dovetail.dev", topologies.Topology),
    ):
        (version,) = planes.get(plane, "crd", name)["spec"]["versions"]
        _assert_alike(version["schema"]["openAPIV3Schema"], msgspec.inspect.type_info(struct), name)


def test_a_whole_queue_is_kept_with_its_defaults(plane: control_plane.ControlPlane) -> None:
    name = _name()
    planes.apply(plane, [_queue(name, WHOLE)])
    kept = planes.get(plane, "queue", name)["spec"]
    filled = json.loads(json.dumps(WHOLE))
    for share in filled["resources"].values():
        share.setdefault("weight", 1)
    assert kept == filled
    planes.apply(plane, [_queue(f"{name}-empty", {})])
    assert planes.get(plane, "queue", f"{name}-empty")["spec"] == {"priority": 0}
    planes.apply(plane, [_queue(f"{name}-idle", {"idle": {}})])
    idle = {"thresholdPercent": 5, "windowSeconds": 1800, "graceSeconds": 600}
    assert planes.get(plane, "queue", f"{name}-idle")["spec"]["idle"] == idle


def test_the_columns_show_parent_priority_numbers_and_readiness(
    plane: control_plane.ControlPlane,
) -> None:
    name = _name()
    planes.apply(plane, [_queue(name, WHOLE)])
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "ParentMissing",
        "message": "",
        "lastTransitionTime": "2026-01-31T08:00:00Z",
        "observedGeneration": 1,
    }
    shares = {"gpu": {"charged": "6500m", "fairShare": "8", "requested": "9", "allocatable": "8"}}
    numbers = {
        "resources": shares,
        "dominantShare": "0.31",
        "running": 3,
        "pending": 2,
        "usage": {"gpu": "120"},
    }
    status = {"status": {"observedGeneration": 1, "conditions": [condition], **numbers}}
    patch = [
        "patch",
        "queue",
        name,
        "--subresource=status",
        "--type=merge",
        "-p",
        json.dumps(status),
    ]
    planes.kubectl(plane, *patch)
    head, row = planes.kubectl(plane, "get", "queue", name, "-o", "wide").splitlines()
    columns = "NAME PARENT PRIORITY GPUS FAIR PENDING READY REASON RUNNING DOMINANT ALIASES AGE"
    assert head.split() == columns.split()
    assert row.split()[:10] == [
        name,
        "research",
        "10",
        "6500m",
        "8",
        "2",
        "False",
        "ParentMissing",
        "3",
        "0.31",
    ]
    assert planes.get(plane, "queue", name)["metadata"]["generation"] == 1, (
        "a status is not a change of the queue"
    )
    planes.apply(plane, [_queue(f"{name}-calm", {})])
    nothing = {"status": {"observedGeneration": 1, "conditions": [condition]}}
    planes.kubectl(plane, "patch", "queue", f"{name}-calm", *patch[3:-1], json.dumps(nothing))
    head, row = planes.kubectl(
        plane, "get", "queue", f"{name}-calm", "--sort-by=.metadata.name"
    ).splitlines()
    start = head.index("PENDING")
    assert row[start : head.index("READY")].strip() == "0", "none is a number too"


@pytest.mark.parametrize("what", REFUSED)
def test_what_makes_no_sense_is_refused_in_words(
    plane: control_plane.ControlPlane, what: str
) -> None:
    spec, words = REFUSED[what]
    assert words in _refusal(plane, _queue(_name(), spec))


def test_a_queue_is_not_its_own_parent(plane: control_plane.ControlPlane) -> None:
    name = _name()
    assert "a queue cannot be its own parent" in _refusal(plane, _queue(name, {"parent": name}))


@pytest.mark.parametrize("name", ["two.labels", "a" * 64])
def test_a_queue_can_be_named_by_a_label(plane: control_plane.ControlPlane, name: str) -> None:
    assert "must be a DNS label of at most 63 characters" in _refusal(plane, _queue(name, {}))


def test_a_queue_needs_a_spec(plane: control_plane.ControlPlane) -> None:
    tree = _queue(_name(), {})
    del tree["spec"]
    assert "spec: Required value" in _refusal(plane, tree)


def test_a_topology_is_kept_as_written(plane: control_plane.ControlPlane) -> None:
    name = _name()
    planes.apply(plane, [_topology(name, LEVELS)])
    assert planes.get(plane, "topology", name)["spec"] == {"levels": LEVELS}
    head, row = planes.kubectl(plane, "get", "topology", name).splitlines()
    assert head.split() == ["NAME", "WIDEST", "NARROWEST", "AGE"]
    assert row.split()[1:3] == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]


@pytest.mark.parametrize("what", REFUSED_LEVELS)
def test_levels_that_make_no_sense_are_refused_in_words(
    plane: control_plane.ControlPlane, what: str
) -> None:
    levels, words = REFUSED_LEVELS[what]
    assert words in _refusal(plane, _topology(_name(), levels))


@pytest.mark.parametrize(
    ("converter", "name"), [(from_kueue.convert, "kueue"), (from_kai.convert, "kai")]
)
def test_what_is_made_of_other_schedulers_objects_is_accepted(
    plane: control_plane.ControlPlane,
    converter: Callable[[Sequence[field_notes.Tree]], field_notes.Conversion],
    name: str,
) -> None:
    """Objects with every field there is. Only rehearsed: they would be in the way of others."""
    file = Path(__file__).resolve().parents[1] / "model" / "rivals" / f"{name}.yaml"
    objects = converter(list(yaml.safe_load_all(file.read_text(encoding="utf-8")))).objects
    assert {item["kind"] for item in objects} >= {"Queue", "Topology"}
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    rehearsed = planes.kubectl(
        plane, "create", "--dry-run=server", "--validate=strict", "-f", "-", input=listed
    )
    assert len(rehearsed.splitlines()) == len(objects)


def _assert_alike(schema: dict[str, Any], read: Any, path: str) -> None:
    """A schema and a struct that name the same fields, all the way down; metadata, quantities and maps are others'."""
    fields = {field.encode_name: field.type for field in getattr(read, "fields", ())}
    if not fields or getattr(read, "cls", None) in (meta.ObjectMeta, meta.LabelSelector):
        return
    assert set(schema.get("properties", {})) == set(fields), path
    for name, item in fields.items():
        kinds = getattr(item, "types", (item,))
        inner = next(
            (kind for kind in kinds if not isinstance(kind, msgspec.inspect.NoneType)), item
        )
        below = schema["properties"][name]
        if isinstance(inner, msgspec.inspect.DictType):
            inner, below = inner.value_type, below["additionalProperties"]
        elif isinstance(inner, msgspec.inspect.VarTupleType):
            inner, below = inner.item_type, below["items"]
        _assert_alike(below, inner, f"{path}.{name}")


def _name_of(tree: dict[str, Any]) -> str:
    name: str = tree["metadata"]["name"]
    return name


def _topology(name: str, levels: list[dict[str, Any]]) -> dict[str, Any]:
    head = {"apiVersion": "dovetail.dev/v1alpha1", "kind": "Topology", "metadata": {"name": name}}
    return head | {"spec": {"levels": levels}}


def _name() -> str:
    return f"q-{uuid.uuid4().hex[:12]}"


def _queue(name: str, spec: Spec) -> dict[str, Any]:
    return {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }


def _refusal(plane: control_plane.ControlPlane, tree: dict[str, Any]) -> str:
    done = planes.run_kubectl(
        plane, "create", "--validate=strict", "-f", "-", input=json.dumps(tree)
    )
    assert done.returncode != 0, "it was accepted"
    return done.stderr

"""Objects: structs decode what Kubernetes writes, and whatever they do not know survives a change."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import errors
from dovetail.kubetypes import codec, meta, untyped
from dovetail.kubetypes.core import nodes, pods
from dovetail.kubetypes.resource import claims, device_classes, slices
from dovetail.quantity import quantity
from tests.support import shared

NEW_FIELD = {"of": ["a", {"later": "version"}], "count": 7}


def slice_document(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s1"},
        "spec": {
            "driver": "gpu.example.com",
            "pool": {"name": "n", "generation": 0, "resourceSliceCount": 1},
            **spec,
        },
    }


NOW = "2026-01-31T08:00:00Z"


def corpus() -> Iterator[dict[str, Any]]:
    """Every object of the recorded worlds and validation vectors."""
    for case in shared.document("conformance/dra/allocator_table.json.gz")["cases"]:
        inputs = case["inputs"]
        yield from inputs["claims"] or ()
        yield from inputs["deviceClasses"] or ()
        yield from inputs["resourceSlices"] or ()
        if inputs.get("node"):
            yield inputs["node"]
    for name in ("probes", "fuzz_a"):
        for world in shared.lines(f"conformance/dra/{name}.jsonl.gz"):
            for key in ("nodes", "deviceClasses", "resourceSlices", "allocatedClaims", "claims"):
                yield from world.get(key) or ()
    for vector in shared.document("conformance/dra/validation.json.gz", now=NOW)["vectors"]:
        for key in ("object", "oldObject", "stored"):
            if vector.get(key):
                yield vector[key]


def typed(tree: dict[str, Any]) -> dict[str, Any] | None:
    """The object with its kind, which some recordings leave to the place they stand in."""
    if "kind" in tree:
        return tree
    spec = tree.get("spec") or {}
    if "pool" in spec:
        kind = "ResourceSlice"
    elif "requests" in (spec.get("devices") or {}):
        kind = "ResourceClaim"
    else:
        return None
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind} | tree


def same(left: Any, right: Any) -> bool:
    """Equal trees, or texts and numbers that are equal quantities."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if left == right and type(left) is type(right):
        return True
    if isinstance(left, str | int | float) and isinstance(right, str | int | float):
        return quantity.is_quantity(str(left)) and quantity.from_wire(left) == quantity.from_wire(
            right
        )
    return False


def with_new_fields(tree: Any, kind: type[msgspec.Struct]) -> Any:
    """The tree with a field no struct knows in every place that a struct stands for."""
    result = dict(tree)
    for field in msgspec.structs.fields(kind):
        value = result.get(field.encode_name)
        inner = _struct_inside(field.type)
        if inner is None or value is None:
            continue
        if isinstance(value, list):
            result[field.encode_name] = [with_new_fields(item, inner) for item in value]
        elif _is_map(field.type):
            result[field.encode_name] = {
                key: with_new_fields(item, inner) for key, item in value.items()
            }
        else:
            result[field.encode_name] = with_new_fields(value, inner)
    result["fromTheFuture"] = NEW_FIELD
    return result


def _struct_inside(annotation: Any) -> type[msgspec.Struct] | None:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        if (result := _struct_inside(argument)) is not None:
            return result
    return None


def _is_map(annotation: Any) -> bool:
    return getattr(annotation, "__origin__", None) is dict


def test_every_recorded_object_decodes_and_comes_back() -> None:
    seen = 0
    for recorded in corpus():
        tree = typed(recorded)
        if tree is None:
            continue
        stored = codec.decode(tree)
        assert not isinstance(stored.struct, codec.Generic)
        assert json.loads(codec.encode(stored)) == tree
        rewritten = codec.replace(stored, stored.struct)
        assert same(rewritten.tree, tree), (tree, rewritten.tree)
        assert codec.decode(rewritten.document).struct == stored.struct
        seen += 1
    assert seen > 5000


def test_fields_of_a_later_version_survive_at_every_depth() -> None:
    seen = 0
    for vector in shared.document("conformance/dra/validation.json.gz", now=NOW)["vectors"]:
        tree = vector["object"]
        kind = codec.KINDS[tree["apiVersion"], tree["kind"]]
        if len(json.dumps(tree)) > 4000:
            continue
        future = with_new_fields(tree, kind)
        stored = codec.decode(future)
        assert stored.struct == codec.decode(tree).struct
        renamed = msgspec.structs.replace(stored.struct.metadata, labels={"seen": "yes"})
        changed = codec.replace(stored, msgspec.structs.replace(stored.struct, metadata=renamed))
        expected = copy.deepcopy(future)
        expected.setdefault("metadata", {})["labels"] = {"seen": "yes"}
        assert same(changed.tree, expected), vector["name"]
        seen += 1
    assert seen > 200


def test_a_new_field_stays_with_its_device_when_devices_come_and_go() -> None:
    stored = codec.decode(
        slice_document(
            devices=[{"name": "a", "v2": 1}, {"name": "b", "v2": 2}, {"name": "c", "v2": 3}]
        )
    )
    assert isinstance(stored.struct, slices.ResourceSlice)
    a, _, c = stored.struct.spec.devices
    kept = (slices.Device(name="new"), c, a)
    spec = msgspec.structs.replace(stored.struct.spec, devices=kept)
    changed = codec.replace(stored, msgspec.structs.replace(stored.struct, spec=spec))
    assert changed.tree["spec"]["devices"] == [
        {"name": "new"},
        {"name": "c", "v2": 3},
        {"name": "a", "v2": 1},
    ]


def test_a_cleared_field_leaves_the_document() -> None:
    stored = codec.decode(slice_document(nodeName="n", allNodes=None, devices=[]))
    assert isinstance(stored.struct, slices.ResourceSlice)
    spec = msgspec.structs.replace(stored.struct.spec, node_name=None, all_nodes=True)
    changed = codec.replace(stored, msgspec.structs.replace(stored.struct, spec=spec))
    assert "nodeName" not in changed.tree["spec"]
    assert changed.tree["spec"]["allNodes"] is True
    assert changed.tree["spec"]["devices"] == []


def test_replacing_by_another_kind_is_refused() -> None:
    stored = codec.decode(slice_document())
    with pytest.raises(TypeError, match="ResourceSlice by a Node"):
        codec.replace(stored, nodes.Node())


def test_null_means_absent_as_in_kubernetes() -> None:
    tree = slice_document(
        driver=None, nodeName=None, devices=[{"name": None, "attributes": None}, None]
    )
    struct = codec.decode(tree).struct
    assert struct == codec.decode(slice_document(driver="", devices=[{}, {}])).struct


def test_null_inside_driver_parameters_is_the_drivers_business() -> None:
    tree = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "c", "labels": None},
        "spec": {"config": [{"opaque": {"driver": "d", "parameters": {"a": None, "b": [None]}}}]},
    }
    struct = codec.decode(tree).struct
    assert isinstance(struct, device_classes.DeviceClass)
    opaque = struct.spec.config[0].opaque
    assert opaque is not None
    assert json.loads(bytes(opaque.parameters)) == {"a": None, "b": [None]}


def test_absent_and_empty_lists_differ_only_when_asked() -> None:
    absent = codec.decode(slice_document()).struct
    empty = codec.decode(slice_document(devices=[])).struct
    assert isinstance(absent, slices.ResourceSlice)
    assert isinstance(empty, slices.ResourceSlice)
    assert absent == empty
    assert absent.spec.devices is meta.NO_ITEMS
    assert empty.spec.devices is not meta.NO_ITEMS
    assert pickle.loads(pickle.dumps(meta.NO_ITEMS)) is meta.NO_ITEMS
    assert copy.deepcopy(meta.NO_ITEMS) is meta.NO_ITEMS


@pytest.mark.parametrize(
    ("spec", "path", "words"),
    [
        ({"driver": 5}, "spec.driver", "expected text, got 5"),
        ({"devices": {}}, "spec.devices", "expected a list, got a mapping"),
        (
            {"devices": [{"name": "a", "attributes": []}]},
            "spec.devices[0].attributes",
            "expected a mapping",
        ),
        ({"allNodes": "yes"}, "spec.allNodes", 'expected true or false, got "yes"'),
        ({"pool": {"generation": 1.5}}, "spec.pool.generation", "expected a whole number, got 1.5"),
        ({"pool": {"generation": 2**63}}, "spec.pool.generation", "from -9223372036854775808 to"),
        (
            {"devices": [{"name": "a", "capacity": {"memory": {"value": "80GB"}}}]},
            "spec.devices[0].capacity[memory].value",
            "expected a quantity such as 80Gi or 500m",
        ),
        (
            {"devices": [{"name": "a", "capacity": {"memory": {"value": True}}}]},
            "spec.devices[0].capacity[memory].value",
            "expected a quantity such as 80Gi or 500m, got true",
        ),
        ({"nodeSelector": "a"}, "spec.nodeSelector", "expected a mapping"),
    ],
)
def test_a_wrong_type_is_named_by_its_path(spec: dict[str, Any], path: str, words: str) -> None:
    with pytest.raises(codec.DecodeError) as caught:
        codec.decode(slice_document(**spec))
    assert [misfit.path for misfit in caught.value.misfits] == [path]
    assert words in caught.value.misfits[0].message
    assert isinstance(caught.value, errors.InputError)


def test_all_wrong_fields_are_named_at_once() -> None:
    with pytest.raises(codec.DecodeError) as caught:
        codec.decode(slice_document(driver=1, nodeName=2, devices=[{"name": 3}]))
    assert [misfit.path for misfit in caught.value.misfits] == [
        "spec.driver",
        "spec.nodeName",
        "spec.devices[0].name",
    ]


@pytest.mark.parametrize(
    "document", [b"", b"[]", b"5", b"{", b'{"kind": "Node"}', b'{"apiVersion": "v1"}', b"\xff"]
)
def test_what_is_no_object_is_refused(document: bytes) -> None:
    with pytest.raises(codec.DecodeError):
        codec.decode(document)


def test_endless_nesting_ends_in_an_error() -> None:
    with pytest.raises(codec.DecodeError):
        codec.decode(b'{"apiVersion":"v1","kind":"Node","spec":' + b'{"a":' * 100_000)


def test_quantities_come_as_text_or_number() -> None:
    tree = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "status": {"allocatable": {"cpu": 8, "memory": "1024Mi", "x/y": 0.5, "pods": "110"}},
    }
    node = codec.decode(tree).struct
    assert isinstance(node, nodes.Node)
    amounts = {name: str(amount) for name, amount in node.status.allocatable.items()}
    assert amounts == {"cpu": "8", "memory": "1Gi", "x/y": "500m", "pods": "110"}


def test_the_scheduling_side_of_a_pod_is_read_and_the_rest_kept() -> None:
    tree = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "train"},
        "spec": {
            "initContainers": [{"name": "side", "restartPolicy": "Always", "image": "i"}],
            "containers": [
                {
                    "name": "c",
                    "image": "i",
                    "env": [{"name": "A", "value": "b"}],
                    "ports": [{"containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1"}],
                    "resources": {
                        "limits": {"nvidia.com/gpu": 1},
                        "claims": [{"name": "gpu", "request": "a"}],
                    },
                }
            ],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
            "schedulingGroup": {"podGroupName": "g"},
            "volumes": [
                {"name": "v", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "e", "emptyDir": {}},
            ],
            "affinity": {
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "z"}]
                }
            },
        },
        "status": {
            "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu"}],
            "podIP": "10.1.1.1",
        },
    }
    stored = codec.decode(tree)
    pod = stored.struct
    assert isinstance(pod, pods.Pod)
    assert pod.spec.init_containers[0].restart_policy == "Always"
    assert pod.spec.containers[0].ports[0].host_ip == "10.0.0.1"
    assert pod.spec.containers[0].resources.claims == (
        pods.ContainerClaim(name="gpu", request="a"),
    )
    assert pod.spec.scheduling_group == pods.PodSchedulingGroup(pod_group_name="g")
    assert pod.spec.affinity is not None
    assert pod.spec.affinity.pod_anti_affinity is not None
    bound = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name="b12"))
    tree["spec"]["nodeName"] = "b12"  # type: ignore[index]
    assert same(codec.replace(stored, bound).tree, tree)
    assert untyped.misfits(pods.Pod, tree) == []


def test_alpha_fields_of_1_37_are_modelled() -> None:
    tree = slice_document(
        partitionTypeAttribute="gpu.example.com/kind",
        skipNodeOperations=["*"],
        devices=[
            {
                "name": "a",
                "attributes": {
                    "i": {"ints": [1]},
                    "b": {"bools": [True]},
                    "s": {"strings": ["x"]},
                    "v": {"versions": ["1.0.0"]},
                },
                "consumesCounters": [
                    {
                        "counterSet": "c",
                        "counters": {"x": {"value": "1"}},
                        "compatibilityGroups": ["g"],
                    }
                ],
                "nodeAllocatableResources": {
                    "cpu": {
                        "mapping": {"capacityKey": "c", "capacityMultiplier": "2"},
                        "overhead": {"perPod": "1", "perContainer": "100m"},
                    }
                },
                "bindsToNode": True,
            }
        ],
    )
    assert untyped.misfits(slices.ResourceSlice, tree) == []
    struct = codec.decode(tree).struct
    assert same(
        codec.tree_of(struct),
        {**tree, "spec": {**tree["spec"], "pool": {"name": "n", "resourceSliceCount": 1}}},
    )


def test_lists_of_objects_expand() -> None:
    typed_list = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimList",
        "metadata": {"resourceVersion": "5"},
        "items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}],
    }
    mixed = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [typed_list, {"apiVersion": "v1", "kind": "Node"}],
    }
    result = codec.decode_all(mixed)
    assert [type(stored.struct) for stored in result] == [
        claims.ResourceClaim,
        claims.ResourceClaim,
        nodes.Node,
    ]
    assert [codec.subject_of(stored.struct) for stored in result][:2] == [
        "ResourceClaim a",
        "ResourceClaim b",
    ]
    assert codec.decode_all({"apiVersion": "v1", "kind": "List", "items": None}) == ()


def test_unknown_kinds_are_kept_whole() -> None:
    tree = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"replicas": 3},
    }
    stored = codec.decode(tree)
    assert isinstance(stored.struct, codec.Generic)
    renamed = msgspec.structs.replace(stored.struct.metadata, name="e")
    changed = codec.replace(stored, msgspec.structs.replace(stored.struct, metadata=renamed))
    assert changed.tree == tree | {"metadata": {"name": "e"}}


names = st.text("abc", min_size=1, max_size=3)
values = st.one_of(
    st.builds(lambda text: {"string": text}, st.text(max_size=8)),
    st.builds(lambda number: {"int": number}, st.integers(-(2**63), 2**63 - 1)),
    st.builds(lambda flag: {"bool": flag}, st.booleans()),
)


@given(
    st.lists(st.dictionaries(names, values, max_size=4), max_size=4),
    st.dictionaries(names, st.integers()),
)
def test_any_devices_come_back_as_they_were(
    attributes: list[dict[str, Any]], extra: dict[str, int]
) -> None:
    devices = [
        {"name": f"d{index}", "attributes": given}
        | {f"x{key}": value for key, value in extra.items()}
        for index, given in enumerate(attributes)
    ]
    tree = slice_document(devices=devices)
    stored = codec.decode(tree)
    assert codec.replace(stored, stored.struct).tree == tree

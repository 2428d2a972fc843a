"""Any objects in files become a cluster: what is read, converted, filled in, left out and reported."""

from __future__ import annotations

import datetime
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail import errors
from dovetail.kubetypes import codec, object_set
from dovetail.kubetypes.core import api_events, namespaces, pods
from dovetail.kubetypes.resource import claims
from dovetail.sim.fleet import fleet_objects, fleet_spec
from dovetail.snapshot import object_dump
from dovetail.world.owners import facts_of_objects

Tree = dict[str, Any]


def pod(name: str, namespace: str = "train", **more: Any) -> Tree:
    metadata = {"name": name, "namespace": namespace, **more.pop("metadata", {})}
    spec = {"containers": [{"name": "main", "image": "x"}], **more.pop("spec", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, **more}


def listed(*items: Tree) -> Tree:
    return {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items}


def dumped(tmp_path: Path, text: str | bytes, name: str = "dump.yaml") -> object_dump.Dump:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return object_dump.read(str(path))


def names(dump: object_dump.Dump, kind: str = "Pod") -> list[str]:
    return [stored.struct.metadata.name for stored in dump.objects.listed(kind)]


def the_pod(dump: object_dump.Dump, name: str, namespace: str = "train") -> pods.Pod:
    stored = dump.objects.get(object_set.Key("Pod", namespace, name))
    assert stored is not None
    assert isinstance(stored.struct, pods.Pod)
    assert codec.decode(stored.document).struct == stored.struct  # the two never differ
    return stored.struct


A, B, C = pod("a"), pod("b"), pod("c")
TYPED = {"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "c"}}, A, B]}
FORMS = {
    "documents": "\n---\n".join(map(yaml.safe_dump, (A, B, C))),
    "list": yaml.safe_dump(json.loads(json.dumps(listed(A, B, C)))),
    "typed list": yaml.safe_dump(json.loads(json.dumps(TYPED))),
    "flow": "# a note\n---\n" + json.dumps(A) + "\n---\n" + yaml.safe_dump(listed(B, C)["items"][0])
    + "---\n" + json.dumps(C),
    "json list": json.dumps(listed(A, B, C)),
    "indented": json.dumps(listed(A, B, C), indent=4),
    "typed json": json.dumps(TYPED),
    "lines": "\n".join(map(json.dumps, (A, B, C))),
    "one after the other": json.dumps(A, indent=2) + json.dumps(B, indent=2) + json.dumps(C),
    "array": json.dumps([A, B, C]),
    "list in a list": json.dumps(listed(listed(A, B), C)),
    "windows": "\ufeff" + yaml.safe_dump(json.loads(json.dumps(listed(A, B, C)))).replace("\n", "\r\n"),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_objects_is_read(tmp_path: Path, form: str) -> None:
    dump = dumped(tmp_path, FORMS[form])
    assert dump.problems == ()
    assert names(dump) == ["a", "b", "c"] or names(dump) == ["c", "a", "b"]  # c in default
    assert the_pod(dump, "a").status.phase == "Pending"


def test_powershell_writes_another_encoding(tmp_path: Path) -> None:
    assert names(dumped(tmp_path, FORMS["list"].encode("utf-16"))) == ["a", "b", "c"]


def test_standard_input_is_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(FORMS["lines"].encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    dump = object_dump.read("-")
    assert names(dump) == ["a", "b", "c"]
    assert (dump.source, dump.taken_by) == ("<stdin>", object_dump.CURRENT_TIME)


def test_what_manifests_leave_out_is_filled_in_alike_every_time(tmp_path: Path) -> None:
    bare = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}}
    first, second = (the_pod(dumped(tmp_path, json.dumps(bare)), "p", "default") for _ in range(2))
    assert first == second
    assert first.metadata.uid
    assert first.status.phase == "Pending"
    other = the_pod(
        dumped(tmp_path, json.dumps(bare | {"metadata": {"name": "q"}})), "q", "default"
    )
    assert other.metadata.uid != first.metadata.uid


def test_what_is_there_is_kept_byte_for_byte(tmp_path: Path) -> None:
    whole = pod("a", metadata={"uid": "u", "resourceVersion": "7"}, status={"phase": "Running"})
    text = json.dumps(whole | {"brandNew": [1]}, indent=1)
    dump = dumped(tmp_path, text)
    [stored] = dump.objects.listed("Pod")
    assert stored.document == text.encode()
    assert dump.objects.revision == 7
    assert dump.added_uids == 0


def test_namespaces_that_objects_are_in_exist(tmp_path: Path) -> None:
    team = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "b", "labels": {"x": "y"}},
    }
    text = "\n".join(map(json.dumps, (pod("a", "a"), pod("b", "b"), team)))
    dump = dumped(tmp_path, text)
    assert dump.added_namespaces == ("a",)
    structs = [stored.struct for stored in dump.objects.listed("Namespace")]
    assert all(isinstance(struct, namespaces.Namespace) for struct in structs)
    assert [struct.metadata.labels for struct in structs] == [
        {"kubernetes.io/metadata.name": "a"},
        {"x": "y", "kubernetes.io/metadata.name": "b"},
    ]


def test_claims_written_by_hand_ask_for_one_device(tmp_path: Path) -> None:
    requests = [
        {"name": "a", "exactly": {"deviceClassName": "c", "tolerations": [{"key": "k"}]}},
        {"name": "b", "firstAvailable": [{"name": "x", "deviceClassName": "c", "count": 2}]},
        {"name": "d", "exactly": {"deviceClassName": "c", "allocationMode": "All"}},
    ]
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "g", "namespace": "n"},
        "spec": {"devices": {"requests": requests}, "unknown": 1},
    }
    dump = dumped(tmp_path, json.dumps(claim))
    [stored] = dump.objects.listed("ResourceClaim")
    assert isinstance(stored.struct, claims.ResourceClaim)
    exact, listed, everything = stored.struct.spec.devices.requests
    assert exact.exactly is not None
    assert everything.exactly is not None
    assert (exact.exactly.allocation_mode, exact.exactly.count) == ("ExactCount", 1)
    assert exact.exactly.tolerations[0].operator == "Equal"
    [option] = listed.first_available
    assert (option.allocation_mode, option.count) == ("ExactCount", 2)
    assert everything.exactly.count == 0
    assert stored.tree["spec"]["unknown"] == 1
    assert stored.tree["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1


def test_nodes_written_by_hand_can_allocate_all_they_have(tmp_path: Path) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}
    dump = dumped(tmp_path, json.dumps(node | {"status": {"capacity": {"cpu": "8"}}}))
    [stored] = dump.objects.listed("Node")
    assert stored.tree["status"]["allocatable"] == {"cpu": "8"}


def priority_class(name: str, value: int, **more: Any) -> Tree:
    version = "scheduling.k8s.io/v1"
    return {"apiVersion": version, "kind": "PriorityClass", "metadata": {"name": name}} | (
        {"value": value} | more
    )


@pytest.mark.parametrize(
    ("spec", "priority", "policy"),
    [
        ({"priorityClassName": "high"}, 1000, "Never"),
        ({"priorityClassName": "high", "priority": 5}, 5, None),
        ({"priorityClassName": "unknown"}, None, None),
        ({"priorityClassName": "system-node-critical"}, 2_000_001_000, "PreemptLowerPriority"),
        ({}, 10, "PreemptLowerPriority"),
    ],
)
def test_priorities_follow_their_classes(
    tmp_path: Path, spec: Tree, priority: int | None, policy: str | None
) -> None:
    objects = (
        pod("p", spec=spec),
        priority_class("high", 1000, preemptionPolicy="Never"),
        priority_class("usual", 10, globalDefault=True),
    )
    struct = the_pod(dumped(tmp_path, "\n".join(map(json.dumps, objects))), "p")
    assert (struct.spec.priority, struct.spec.preemption_policy or None) == (priority, policy)


@pytest.mark.parametrize(
    ("versions", "winner"), [(("9", "10"), "second"), (("10", "9"), "first"), (("", ""), "second")]
)
def test_of_two_versions_of_an_object_the_newer_counts(
    tmp_path: Path, versions: tuple[str, str], winner: str
) -> None:
    for file, version in zip(("first", "second"), versions, strict=True):
        more = {"resourceVersion": version, "labels": {"file": file}}
        (tmp_path / f"{file}.json").write_text(json.dumps(pod("p", metadata=more)))
    dump = object_dump.read(str(tmp_path))
    assert the_pod(dump, "p").metadata.labels == {"file": winner}
    [duplicate] = dump.duplicates
    assert "Pod train/p" in duplicate
    assert f"document 1 of {tmp_path}/{winner}.json counts" in duplicate


def test_secrets_are_dropped_wherever_they_stand(tmp_path: Path) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s"},
        "data": {"k": "aHVzaA"},
    }
    listed_secrets = {"apiVersion": "v1", "kind": "SecretList", "items": [secret, {"data": {}}]}
    for text in (
        "\n".join(map(json.dumps, (secret, listed_secrets, A))),
        "\n---\n".join(map(yaml.safe_dump, (secret, listed_secrets, A))),
    ):
        dump = dumped(tmp_path, text)
        assert dump.secrets == 3
        assert [stored.struct.kind for stored in dump.objects.all()] == ["Pod", "Namespace"]
        assert not any(b"aHVzaA" in stored.document for stored in dump.objects.all())
    with pytest.raises(errors.InputError, match="only Secrets, which are never read"):
        dumped(tmp_path, json.dumps(secret))


def test_unknown_kinds_are_kept_untyped_and_apart(tmp_path: Path) -> None:
    objects = [
        {"apiVersion": version, "kind": kind, "metadata": {"name": "x", "namespace": "train"}}
        for version, kind in (
            ("kueue.x-k8s.io/v1beta1", "Workload"),
            ("scheduling.k8s.io/v1beta1", "Workload"),
            ("example.com/v1", "Workload"),
            ("kueue.x-k8s.io/v1beta1", "ClusterQueue"),
            ("apps/v1", "Deployment"),
            ("v1", "ConfigMap"),
            ("scheduling.run.ai/v2alpha2", "PodGroup"),
        )
    ]
    dump = dumped(tmp_path, "\n".join(map(json.dumps, objects)))
    assert dump.problems == ()
    assert set(dump.versions) == {
        "Workload.kueue.x-k8s.io",
        "Workload",
        "Workload.example.com",
        "ClusterQueue.kueue.x-k8s.io",
        "Deployment",
        "ConfigMap",
        "PodGroup.scheduling.run.ai",
    }


def test_events_of_both_groups_are_one_kind(tmp_path: Path) -> None:
    core = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "train", "resourceVersion": "5"},
        "involvedObject": {"kind": "Pod", "name": "a"},
        "message": "waits",
        "eventTime": None,
    }
    modern = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": core["metadata"],
        "regarding": core["involvedObject"],
        "note": "waits",
    }
    dump = dumped(tmp_path, "\n".join(map(json.dumps, (core, modern))))
    [stored] = dump.objects.listed("Event")
    event: Any = stored.struct
    assert isinstance(event, api_events.Event)
    assert (event.regarding.name, event.note) == ("a", "waits")


BROKEN = """\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: good, namespace: train}
- apiVersion: v1
  kind: Pod
  metadata: {name: bad, namespace: train}
  spec:
    nodeName: 7
- apiVersion: v1
  kind: [
- kind: Pod
- apiVersion: v1
  kind: Pod
  metadata: {}
---
key: [unclosed
---
apiVersion: v1
kind: Pod
metadata: {name: last, namespace: train}
"""


def test_what_cannot_be_read_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    dump = dumped(tmp_path, BROKEN)
    assert names(dump) == ["good", "last"]
    lines = [problem.removeprefix(f"{tmp_path}/") for problem in dump.problems]
    assert lines[0] == (
        "dump.yaml: document 1 (line 7): Pod train/bad: items[1].spec.nodeName: "
        "expected text, got 7; quote it"
    )
    assert lines[1].startswith(
        "dump.yaml: document 1 (line 14): Pod: items[3].apiVersion: expected"
    )
    assert lines[2].endswith("Pod <unnamed>: items[4].metadata.name: is required")
    assert "items[2]: not YAML" in lines[3]
    assert lines[4].startswith("dump.yaml: document 2 (line ")
    assert "not YAML" in lines[4]


def test_a_bad_line_costs_one_object(tmp_path: Path) -> None:
    for bad in ("{]", '{"apiVersion": 7', "7 8"):
        dump = dumped(tmp_path, f"{json.dumps(A)}\n{bad}\n{json.dumps(B)}\n")
        assert names(dump) == ["a", "b"]
        [problem] = dump.problems
        assert "document 2 (line 2): not JSON" in problem


def test_a_file_of_another_sort_is_left_out_beside_good_ones(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text("replicas: 3\n")
    (tmp_path / "broken.json").write_bytes(b"{\xff")
    (tmp_path / "pods.json").write_text(json.dumps(A))
    dump = object_dump.read(str(tmp_path))
    assert names(dump) == ["a"]
    assert len(dump.problems) == 2
    assert dump.files == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no Kubernetes objects"),
        (b"\n\n", "holds no Kubernetes objects"),
        (b"hello world", 'expected an object with apiVersion and kind, got "hello world"'),
        (b"\xff\x00\xfe", "not UTF-8 text"),
        (b"a: [", "not YAML"),
        (b"{", "no Kubernetes object could be read"),
        (b"[1, 2]", "and 1 more problems"),
        (b'{"apiVersion": 7, "kind": "Pod"}', "apiVersion: expected text, got 7"),
        (b'{"kind": "PodList", "items": 7}', "PodList: items: expected a list"),
    ],
)
def test_a_file_without_objects_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(errors.InputError) as caught:
        dumped(tmp_path, content)
    assert message in str(caught.value)


def test_an_empty_directory_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(errors.InputError, match=r"no files to read: expected \.json, \.yaml"):
        object_dump.read(str(tmp_path))
    (tmp_path / "a.log").write_text("x")
    with pytest.raises(errors.InputError, match="found 1 other file"):
        object_dump.read(str(tmp_path))


def test_the_time_is_the_newest_one_that_objects_record(tmp_path: Path) -> None:
    condition = {
        "type": "Ready",
        "status": "True",
        "lastTransitionTime": "2026-01-31T10:00:00+01:00",
    }
    objects = [
        pod("a", metadata={"creationTimestamp": "2026-01-31T08:00:00Z"}),
        pod("b", status={"phase": "Running", "conditions": [condition]}),
        # Ends in the future, and a text that is no field.
        pod("c", metadata={"deletionTimestamp": "2030-01-01T00:00:00Z"}),
        pod("d", metadata={"annotations": {"x": '{"creationTimestamp":"2031-01-01T00:00:00Z"}'}}),
        pod("e", metadata={"creationTimestamp": "0001-01-01T00:00:00Z"}),
    ]
    dump = dumped(tmp_path, "\n".join(map(json.dumps, objects)))
    assert dump.taken_at == datetime.datetime(2026, 1, 31, 9, tzinfo=datetime.UTC)
    assert dump.name.endswith("dump.yaml, as of 2026-01-31T09:00:00Z (the newest time in it)")


def test_without_a_time_the_file_has_one(tmp_path: Path) -> None:
    path = tmp_path / "pods.json"
    path.write_text(json.dumps(A))
    os.utime(path, (1_700_000_000, 1_700_000_000))
    dump = object_dump.read(str(path))
    assert dump.taken_at.timestamp() == 1_700_000_000
    assert dump.taken_by == object_dump.FILE_TIME


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_a_fleet_is_the_same_world_however_it_was_written(tmp_path: Path, form: str) -> None:
    fleet = fleet_spec.sample()
    trees = json.loads(json.dumps(fleet_objects.objects_of(fleet)))
    path = tmp_path / f"fleet.{form}"
    whole = {"apiVersion": "v1", "kind": "List", "items": trees}
    dump_text = yaml.dump(whole, Dumper=yaml.CSafeDumper) if form == "yaml" else json.dumps(whole)
    path.write_text(dump_text)
    dump = object_dump.read(str(path))
    assert dump.problems == ()
    world = facts_of_objects.world_of(dump.objects)
    assert len(world.nodes) == 26
    assert dump.objects.count("ResourceSlice") == 60


def test_a_quoted_text_that_looks_like_items_is_read_as_a_whole(tmp_path: Path) -> None:
    text = """\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: a, namespace: train, annotations: {note: "one

- two"}}
- {apiVersion: v1, kind: Pod, metadata: {name: b, namespace: train}}
"""
    dump = dumped(tmp_path, text)
    assert dump.problems == ()
    assert names(dump) == ["a", "b"]
    assert the_pod(dump, "a").metadata.annotations == {"note": "one\n- two"}

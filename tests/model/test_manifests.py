"""Manifests: people's YAML and JSON, read as kubectl reads it, with errors a person can act on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.kubetypes import codec
from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.resource import claims, taint_rules
from dovetail.manifest import manifests, yaml_text

CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: a, namespace: train}
spec:
  devices:
    requests:
    - name: gpu
      exactly: {deviceClassName: gpu.example.com, count: 2}
"""


def only(text: str) -> Any:
    """The one document of a text."""
    (document,) = yaml_text.documents(text)
    return document.tree


def fault(text: str) -> yaml_text.TextError:
    """Why a text cannot be read."""
    with pytest.raises(yaml_text.TextError) as caught:
        list(yaml_text.documents(text))
    return caught.value


def test_documents_come_with_their_places() -> None:
    text = f"# two objects\n---{CLAIM}---\n\n---\napiVersion: v1\nkind: Node\nmetadata: {{name: b12}}\n"
    loaded = manifests.load(text, file="claims.yaml")
    assert loaded.problems == ()
    assert [(result.document, result.subject) for result in loaded.objects] == [
        (1, "ResourceClaim train/a"),
        (2, "Node b12"),
    ]
    assert [type(result.stored.struct) for result in loaded.objects] == [
        claims.ResourceClaim,
        nodes.Node,
    ]
    problem = loaded.objects[1].problem("spec.taints[0].effect", "is required")
    assert (
        str(problem)
        == "claims.yaml: document 2 (line 13): Node b12: spec.taints[0].effect: is required"
    )


def test_an_unknown_field_is_refused_with_a_suggestion_unless_strictness_is_off() -> None:
    text = CLAIM.replace("deviceClassName", "deviceClasName")
    loaded = manifests.load(text, file="f.yaml")
    assert loaded.objects == ()
    (problem,) = loaded.problems
    assert problem.subject == "ResourceClaim train/a"
    assert problem.path == "spec.devices.requests[0].exactly.deviceClasName"
    assert problem.message == 'unknown field "deviceClasName"; did you mean "deviceClassName"?'
    lenient = manifests.load(text, strict=False)
    assert lenient.problems == ()
    kept = lenient.objects[0].stored.tree["spec"]["devices"]["requests"][0]["exactly"]
    assert kept["deviceClasName"] == "gpu.example.com"


def test_a_field_in_the_wrong_case_is_recognised() -> None:
    (problem,) = manifests.load(CLAIM.replace("deviceClassName", "DEVICECLASSNAME")).problems
    assert 'did you mean "deviceClassName"?' in problem.message


def test_every_problem_of_every_document_is_reported() -> None:
    text = (
        f"{CLAIM.replace('count: 2', 'count: two')}---{CLAIM.replace('name: gpu', 'nam: gpu')}---\n[1, 2]\n---\n"
        "kind: Pod\n---\napiVersion: resource.k8s.io/v1beta1\nkind: DeviceClass\nmetadata: {name: c}\n"
        "---\napiVersion: v1\nkind: Pod\nmetadata: {}\n"
    )
    problems = manifests.load(text).problems
    assert [(problem.document, problem.path) for problem in problems] == [
        (1, "spec.devices.requests[0].exactly.count"),
        (2, "spec.devices.requests[0].nam"),
        (3, ""),
        (4, "apiVersion"),
        (5, "apiVersion"),
        (6, "metadata.name"),
    ]
    assert problems[0].message == 'expected a whole number, got "two"'
    assert (
        problems[4].message
        == "resource.k8s.io/v1beta1 is not supported; write it as resource.k8s.io/v1"
    )


def test_the_default_namespace_goes_to_namespaced_objects_only() -> None:
    text = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: []}\n"
        "---\napiVersion: v1\nkind: Node\nmetadata: {name: n1}\n"
        "---\napiVersion: v1\nkind: Pod\nmetadata: {name: q, namespace: eval}\n"
    )
    loaded = manifests.load(text, default_namespace="train")
    assert [result.subject for result in loaded.objects] == ["Pod train/p", "Node n1", "Pod eval/q"]
    assert loaded.objects[0].stored.tree["metadata"] == {"name": "p", "namespace": "train"}


def test_kinds_without_use_are_kept_and_said_so() -> None:
    text = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {replicas: 3, whatever: yes}\n"
    loaded = manifests.load(text)
    assert loaded.problems == ()
    assert [str(note) for note in loaded.notes] == [
        "<input>: document 1 (line 1): Deployment d: apps/v1: kept, not used"
    ]
    assert loaded.objects[0].stored.tree["spec"] == {"replicas": 3, "whatever": True}


@pytest.mark.parametrize(
    ("version", "kind", "meant"),
    [
        ("v1", "pod", "Pod"),
        ("apps/v1", "Deploymnt", "Deployment"),
        ("batch/v1", "job", "Job"),
        ("resource.k8s.io/v1", "ResourceClaims", "ResourceClaim"),
        ("scheduling.k8s.io/v1", "PriorityCLass", "PriorityClass"),
        ("jobset.x-k8s.io/v1alpha2", "Jobset", "JobSet"),
        ("kubeflow.org/v1", "PytorchJob", "PyTorchJob"),
        ("dovetail.dev/v1alpha1", "queue", "Queue"),
    ],
)
def test_a_misspelt_kind_is_refused_with_the_kind_that_was_meant(
    version: str, kind: str, meant: str
) -> None:
    text = f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: x}}\n"
    loaded = manifests.load(text)
    (problem,) = loaded.problems
    assert (loaded.objects, problem.path) == ((), "kind")
    assert problem.message.startswith(f'"{kind}" is no kind of {version}')
    assert problem.message.endswith(f"did you mean {meant}?")


def test_a_kind_that_looks_like_none_of_its_group_is_refused_with_those_it_has() -> None:
    (problem,) = manifests.load("apiVersion: batch/v1\nkind: Foo\nmetadata: {name: x}\n").problems
    assert problem.message == '"Foo" is no kind of batch/v1; it has CronJob, Job'


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("example.com/v1", "pod"),
        ("apps/v1beta1", "Deploymnt"),
        ("ray.io/v1", "RayCronJob"),
        ("kubeflow.org/v1", "Notebook"),
        ("apps/v1", "ControllerRevision"),
        ("v1", "PodTemplate"),
    ],
)
def test_kinds_that_another_program_may_serve_are_kept(version: str, kind: str) -> None:
    loaded = manifests.load(f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: x}}\n")
    assert (len(loaded.objects), loaded.problems) == (1, ())


@pytest.mark.parametrize(
    ("version", "kind", "use"),
    [
        ("scheduling.run.ai/v2", "Queue", "kept, not used; `dovetail migrate kai` converts it"),
        (
            "kai.scheduler/v1alpha1",
            "Topology",
            "kept, not used; `dovetail migrate kai` converts it",
        ),
        (
            "kueue.x-k8s.io/v1beta1",
            "Topology",
            "kept, not used; `dovetail migrate kueue` converts it",
        ),
        ("scheduling.volcano.sh/v1beta1", "Queue", "kept, not used"),
        ("kai.scheduler/v1", "SchedulingShard", "kept, not used"),
        ("kueue.x-k8s.io/v1beta1", "AdmissionCheck", "kept, not used"),
    ],
)
def test_the_hint_to_migrate_stands_where_something_comes_of_it(
    version: str, kind: str, use: str
) -> None:
    loaded = manifests.load(f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: x}}\n")
    assert loaded.problems == ()
    assert [note.message for note in loaded.notes] == [f"{version}: {use}"]


def test_a_namespace_is_read_as_kubectl_prints_it() -> None:
    text = (
        "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: team\n  uid: abc\n"
        "  labels: {kubernetes.io/metadata.name: team}\n"
        "spec: {finalizers: [kubernetes]}\nstatus: {phase: Active}\n"
    )
    loaded = manifests.load(text)
    assert loaded.problems == ()
    assert loaded.objects[0].stored.tree["status"] == {"phase": "Active"}


RULE = """
kind: DeviceTaintRule
metadata: {name: broken}
spec:
  deviceSelector: {driver: gpu.nvidia.com, pool: n1, device: gpu-0}
  taint: {key: example.com/broken, effect: NoExecute}
"""


def test_a_taint_rule_of_the_version_before_is_read_and_kept_as_the_newest() -> None:
    loaded = manifests.load(f"apiVersion: resource.k8s.io/v1beta2{RULE}")
    assert loaded.problems == ()
    (found,) = loaded.objects
    assert found.stored.tree["apiVersion"] == "resource.k8s.io/v1"
    assert isinstance(found.stored.struct, taint_rules.DeviceTaintRule)
    assert [note.message for note in loaded.notes] == [
        "resource.k8s.io/v1beta2: kept as resource.k8s.io/v1"
    ]


def test_a_taint_rule_of_an_alpha_version_had_other_fields_and_is_refused() -> None:
    (problem,) = manifests.load(f"apiVersion: resource.k8s.io/v1alpha3{RULE}").problems
    assert "write it as resource.k8s.io/v1" in problem.message


def test_an_unknown_kind_with_broken_metadata_is_a_problem() -> None:
    (problem,) = manifests.load("apiVersion: a/v1\nkind: B\nmetadata: {name: 5}\n").problems
    assert problem.path == "metadata.name"


def test_a_list_opens_into_its_items() -> None:
    claim = json.loads(json.dumps(only(CLAIM)))
    listed = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [claim, claim | {"metadata": {"name": "b"}}],
    }
    loaded = manifests.load(json.dumps(listed))
    assert [result.subject for result in loaded.objects] == [
        "ResourceClaim train/a",
        "ResourceClaim default/b",
    ]
    (problem,) = manifests.load(json.dumps(listed | {"items": ["a"]})).problems
    assert problem.path == "items[0]"


def test_json_streams_and_byte_order_marks_are_read() -> None:
    text = "\ufeff" + '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}\n' * 2
    assert [result.line for result in manifests.load(text.encode()).objects] == [1, 2]


def test_text_that_is_no_text_is_a_problem() -> None:
    (problem,) = manifests.load(b"\xff\xfe").problems
    assert problem.message == "not UTF-8 text: byte 0 cannot be read"


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("yes", True),
        ("y", True),
        ("on", True),
        ("N", False),
        ("off", False),
        ("'yes'", "yes"),
        ("~", None),
        ("", None),
        ("010", 8),
        ("0o17", 15),
        ("0x1F", 31),
        ("0b11", 3),
        ("-0b11", -3),
        ("+5", 5),
        ("1_000", 1000),
        ("08", 8),
        ("1e3", 1000),
        ("0.5", 0.5),
        (".5", 0.5),
        ("1:30", "1:30"),
        ("2024-01-31", "2024-01-31"),
        ("2024-01-31T08:00:00Z", "2024-01-31T08:00:00Z"),
        ("18446744073709551615", 2**64 - 1),
        ("1e999", "1e999"),
        ("_1", "_1"),
        ("yess", "yess"),
        ("!!str 5", "5"),
        ("!!int '5'", 5),
        ("!!binary aGk=", "hi"),
    ],
)
def test_plain_scalars_mean_what_they_mean_to_kubectl(written: str, value: object) -> None:
    read = only(f"a: {written}")["a"]
    assert read == value
    assert type(read) is type(value)


def test_keys_are_text_whatever_they_look_like() -> None:
    assert only("1: a\ntrue: b\n1.5: c") == {"1": "a", "true": "b", "1.5": "c"}


def test_a_name_that_reads_as_a_boolean_asks_for_quotes() -> None:
    (problem,) = manifests.load("apiVersion: v1\nkind: Node\nmetadata: {name: n}\n").problems
    assert (problem.path, problem.message) == (
        "metadata.name",
        "expected text, got false; quote it",
    )


def test_anchors_and_merge_keys_work() -> None:
    assert only("x: &d {a: 1, b: 2}\nz: {<<: *d, b: 3}") == {
        "x": {"a": 1, "b": 2},
        "z": {"a": 1, "b": 3},
    }
    assert only("p: &p {a: 1}\nq: &q {a: 2, b: 2}\nz: {<<: [*p, *q]}")["z"] == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: 2\na: 3", 3, 'the key "a" is given twice'),
        ('{"a": 1, "a": 2}', 1, 'the key "a" is given twice'),
        (
            "a: !!python/object/apply:os.system [id]",
            1,
            "python/object/apply:os.system is not allowed",
        ),
        ("a: !!python/name:os.system x", 1, "is not allowed"),
        ("a: !custom x", 1, "the tag !custom is not allowed"),
        ("a: !!int x", 1, '"x" is no int'),
        ("a: &x {b: *x}", 1, "refers to nothing before it, or to itself"),
        ("a:\n  b: *nope", 2, "*nope"),
        ("a: .inf", 1, "not a number JSON can represent"),
        ("? [a]\n: b", 1, "cannot be a key"),
        ("~: 1", 1, "a key must be text"),
        ("<<: 5", 1, "merges a mapping"),
        ("a: [1", 2, "not YAML"),
        ("a: b: c", 1, "not YAML"),
        ("\ta: b", 1, "not YAML"),
        ('{"a": 1,}', 1, "not JSON"),
        ('{"a": NaN}', 1, "NaN is not a JSON number"),
    ],
)
def test_traps_are_refused_at_their_line(text: str, line: int, words: str) -> None:
    error = fault(text)
    assert error.line == line
    assert words in error.message


def test_a_bomb_of_aliases_is_defused() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    for level in range(1, 20):
        bomb += f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n"
    assert "once aliases are written out" in fault(bomb).message


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "- " * 100_000, '{"a":' * 100_000, "a: " + "{b: " * 5000]
)
def test_endless_nesting_is_refused(text: str) -> None:
    fault(text)


def test_a_broken_document_leaves_the_ones_before_it_readable() -> None:
    loaded = manifests.load(f"{CLAIM}---\na: [\n", file="f")
    assert [result.subject for result in loaded.objects] == ["ResourceClaim train/a"]
    (problem,) = loaded.problems
    assert problem.document == 2
    assert str(problem).startswith("f: document 2 (line ")


@given(st.text(alphabet="ab:-{}[]&*!<>|'\"# \n\t01.~,?%@`", max_size=60))
def test_no_text_makes_the_reader_fail(text: str) -> None:
    loaded = manifests.load(text)
    assert all(problem.message for problem in loaded.problems)
    assert loaded.objects == () or all(result.subject for result in loaded.objects)


trees_of_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text("abyn~0:#-é ", max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("abyn0<", max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(trees_of_json)
def test_json_means_the_same_when_it_is_read_as_yaml(tree: object) -> None:
    text = json.dumps({"a": tree})
    assert only(text) == {"a": tree}
    assert only(f"# read as YAML\n---\n{text}") == {"a": tree}


def test_what_is_kept_is_what_was_written() -> None:
    (result,) = manifests.load(CLAIM).objects
    assert result.stored.tree == only(CLAIM)
    assert codec.decode(codec.encode(result.stored)).struct == result.stored.struct

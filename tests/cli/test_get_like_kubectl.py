"""The options of `kubectl get` that people type from habit: templates, columns, order, fields, labels, watches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail import errors
from dovetail.tables import path_templates
from tests.cli import running

TREE: dict[str, Any] = {
    "items": [
        {
            "metadata": {"name": "a", "labels": {"app.kubernetes.io/name": "web"}},
            "spec": {"count": 3, "ready": True},
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "Old", "status": "False"}],
        },
        {"metadata": {"name": "b"}, "spec": {"count": 12}},
    ]
}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{.items[*].metadata.name}", "a b"),
        ("{.items[0].metadata.name}", "a"),
        ("{.items[-1].metadata.name}", "b"),
        ("{.items[-1:].metadata.name}", "b"),
        ('{range .items[*]}{.metadata.name}{"\\t"}{.spec.count}{"\\n"}{end}', "a\t3\nb\t12\n"),
        ('{.items[0].conditions[?(@.type=="Ready")].status}', "True"),
        ("{.items[0].conditions[?(@.type!='Ready')].status}", "False"),
        ("{.items[?(@.spec.count>5)].metadata.name}", "b"),
        ("{.items[?(@.spec.ready==true)].metadata.name}", "a"),
        ("{.items[?(@.conditions)].metadata.name}", "a"),
        ("{.items[0].metadata.labels.app\\.kubernetes\\.io/name}", "web"),
        ("{.items[0].metadata.labels['app.kubernetes.io/name']}", "web"),
        ("{..count}", "3 12"),
        ("{.items[1].spec}", '{"count":12}'),
        ("{.items[1].spec.*}", "12"),
        ("{.items[0].nothing.there}", ""),
        ("count: {.items[1].spec.count}.", "count: 12."),
    ],
)
def test_a_template_prints_as_kubectls(template: str, expected: str) -> None:
    assert path_templates.printed(template, TREE) == expected


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("{.items[}", 'cannot read "["'),
        ("{.items[?(@.a~=1)]}", 'cannot read "[?(@.a~=1)]"'),
        ("{range .items[*]}x", "{range} without {end}"),
        ("x{end}", "{end} without {range}"),
        ("{.items", 'unclosed "{.items"'),
    ],
)
def test_a_template_that_cannot_be_read_is_refused_with_the_part(
    template: str, complaint: str
) -> None:
    with pytest.raises(errors.InputError) as refusal:
        path_templates.printed(template, TREE)
    assert complaint in str(refusal.value)


PODS = """
apiVersion: v1
kind: Pod
metadata: {name: p-10, labels: {app: web, tier: front}}
spec: {containers: [{name: main, image: b}]}
---
apiVersion: v1
kind: Pod
metadata: {name: p-2}
spec: {containers: [{name: main, image: a}, {name: side, image: c}]}
---
apiVersion: v1
kind: Pod
metadata: {name: p-3, labels: {app: web}}
spec: {containers: [{name: main, image: x, resources: {requests: {cpu: '9999'}}}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: web}}
data: {level: "3"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: defaults}
data: {level: "20"}
"""


@pytest.fixture
def filled(state: Path) -> Path:
    run = running.inside(state, "apply", "-f", "-", stdin=PODS)
    assert run.code == 0, run.err
    return state


def test_jsonpath_of_a_list_and_of_one_object(filled: Path) -> None:
    names = running.inside(filled, "get", "pods", "-o", "jsonpath={.items[*].metadata.name}")
    assert (names.code, names.out, names.err) == (0, "p-2 p-3 p-10", "")
    image = running.inside(
        filled, "get", "pod", "p-2", "-o", "jsonpath={.spec.containers[1].image}"
    )
    assert image.out == "c"
    data = running.inside(filled, "get", "cm", "settings", "-o", "jsonpath={.data.level}")
    assert data.out == "3"


def test_custom_columns_have_headers_as_given_and_none_where_nothing_is(filled: Path) -> None:
    spec = "custom-columns=NAME:.metadata.name,Images:.spec.containers[*].image,APP:metadata.labels.app"
    shown = running.inside(filled, "get", "pods", "-o", spec)
    assert shown.lines == [
        "NAME   Images   APP",
        "p-2    a,c      <none>",
        "p-3    x        web",
        "p-10   b        web",
    ]
    bare = running.inside(filled, "get", "pods", "--no-headers", "-o", spec)
    assert bare.lines[0].split() == ["p-2", "a,c", "<none>"]
    wrong = running.inside(filled, "get", "pods", "-o", "custom-columns=.metadata.name")
    assert (wrong.code, wrong.out) == (2, "")
    assert "expected HEADER:PATH" in wrong.err


def test_rows_go_in_the_order_of_a_field(filled: Path) -> None:
    by_image = running.inside(
        filled, "get", "pods", "--sort-by", ".spec.containers[0].image", "-o", "name"
    )
    assert by_image.lines == ["pod/p-2", "pod/p-10", "pod/p-3"]
    by_level = running.inside(filled, "get", "cm", "--sort-by={.data.level}", "-o", "name")
    assert by_level.lines == ["configmap/settings", "configmap/defaults"], "3 comes before 20"
    as_json = running.inside(filled, "get", "cm", "--sort-by=.data.level", "-o", "json")
    listed = msgspec.json.decode(as_json.out)["items"]
    assert [item["metadata"]["name"] for item in listed] == ["settings", "defaults"]


def test_fields_choose_objects_on_the_server(filled: Path) -> None:
    waiting = running.inside(
        filled, "get", "pods", "--field-selector", "status.phase=Pending", "-o", "name"
    )
    assert waiting.lines == ["pod/p-3"]
    other = running.inside(filled, "get", "cm", "--field-selector=metadata.name!=settings")
    assert other.column("NAME") == ["defaults"]
    wrong = running.inside(filled, "get", "pods", "--field-selector", "spec.color=red")
    assert wrong.code == 1
    assert "spec.color" in wrong.err


def test_labels_are_the_last_column(filled: Path) -> None:
    shown = running.inside(filled, "get", "pods", "--show-labels")
    assert shown.lines[0].endswith("   LABELS")
    assert shown.column("LABELS") == ["-", "app=web", "app=web,tier=front"]
    wide = running.inside(filled, "get", "claims,pods", "-o", "wide", "--show-labels")
    assert wide.lines[0].endswith("   LABELS")
    maps = running.inside(filled, "get", "configmaps", "--show-labels", "settings")
    assert maps.column("LABELS") == ["app=web"]


@pytest.mark.parametrize(
    "option", [("--sort-by", ".a"), ("--show-labels",), ("--field-selector", "a=b")]
)
@pytest.mark.parametrize("resource", ["gpus", "devices", "pools"])
def test_options_about_objects_are_refused_for_rows_that_are_none(
    state: Path, resource: str, option: tuple[str, ...]
) -> None:
    run = running.inside(state, "get", resource, *option)
    assert run.code == 2
    assert f"{option[0]} is about objects" in run.err


def test_a_single_object_is_printed_as_it_is(filled: Path) -> None:
    for arguments in (("pod", "p-2"), ("pod/p-2",), ("po/p-2",)):
        shown = running.inside(filled, "get", *arguments, "-o", "json")
        assert msgspec.json.decode(shown.out)["kind"] == "Pod"
    both = running.inside(filled, "get", "pods,cm", "-o", "json")
    kinds = {item["kind"] for item in msgspec.json.decode(both.out)["items"]}
    assert kinds == {"Pod", "ConfigMap"}


def test_any_kind_can_be_watched(filled: Path) -> None:
    with running.terminal(filled, "get", "configmaps", "-w", columns=200) as screen:
        screen.wait_for("settings")
        assert screen.text.count("NAME") == 1
        head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: defaults}\n"
        changed = head + "data: {level: '21', more: '1'}\n"
        assert running.inside(filled, "apply", "-f", "-", stdin=changed).code == 0
        screen.wait_for("defaults   2")
        assert running.inside(filled, "delete", "configmap", "settings").code == 0
        screen.wait_for("deleted")
        assert screen.text.count("NAME") == 1
        screen.press("\x03")

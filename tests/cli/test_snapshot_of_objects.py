"""`--snapshot` on objects as kubectl prints them, through every command that takes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cli import running

Tree = dict[str, Any]


@pytest.fixture
def used(state: Path) -> Path:
    """The sample fleet with the examples on it."""
    assert running.inside(state, "apply", *running.single()).code == 0
    # Events come after what they tell of.
    pods = {"pod/notebook", "pod/one-gpu", "pod/train-0"}
    running.until(
        state,
        "get",
        "events",
        "-A",
        shows=lambda run: run.code == 0 and run.out and pods <= set(run.column("OBJECT")),
        what="events of the pods",
    )
    return state


@pytest.fixture
def sent(used: Path, tmp_path: Path) -> Path:
    """What a person was sent: two files of lists, as `get -o` prints them."""
    place = tmp_path / "sent"
    place.mkdir()
    for form, resources in (("yaml", "pods,events,claims"), ("json", "nodes,slices,classes")):
        run = running.inside(used, "get", resources, "-A", "-o", form)
        assert run.code == 0
        (place / f"objects.{form}").write_text(run.out)
    return place


@pytest.mark.parametrize(
    "command",
    [
        ("get", "pods", "-A", "-o", "json"),
        ("get", "pods", "-A", "-o", "custom-columns=A:.metadata.name,B:.spec.nodeName"),
        ("get", "gpus"),
        ("get", "nodes", "-o", "name"),
        ("get", "claims", "-A", "-o", "json"),
        ("get", "devices", "-o", "name"),
        ("get", "queues"),
        ("when", "-o", "json"),
        ("cel", "eval", "true"),
    ],
    ids=" ".join,
)
def test_a_dump_answers_as_the_cluster_does(
    used: Path, sent: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    live = running.inside(used, *command)
    saved = running.inside(tmp_path / "nowhere", *command, "--snapshot", str(sent))
    assert saved.code == 0, saved.err
    assert saved.out == live.out
    assert not (tmp_path / "nowhere").exists()


def test_any_kind_has_the_columns_of_kubectl(used: Path, sent: Path) -> None:
    live = running.inside(used, "get", "events", "-A")
    saved = running.inside(used, "get", "events", "-A", "--snapshot", str(sent))
    assert saved.lines[0] == live.lines[0]
    assert saved.column("REASON") == live.column("REASON")
    assert saved.column("REASON")
    assert "as of " in saved.err
    name = saved.err.splitlines()[-1]
    assert name.startswith("next: dovetail describe event.events.k8s.io/")


def test_describe_brings_together_what_was_sent(used: Path, sent: Path) -> None:
    live = running.inside(used, "describe", "pod", "one-gpu")
    saved = running.inside(used, "describe", "pod", "one-gpu", "--snapshot", str(sent))
    assert saved.code == 0, saved.err
    assert "devices: h100-" in saved.out or "devices: " in saved.out
    steady = [line for line in live.lines if not line.startswith(("Created", "  "))]
    assert [line for line in saved.lines if not line.startswith(("Created", "  "))] == steady
    node = next(line.split()[1] for line in saved.lines if line.startswith("Node:"))
    of_node = running.inside(used, "describe", f"node/{node}", "--snapshot", str(sent))
    assert "one-gpu" in of_node.out
    missing = running.inside(used, "describe", "pod", "nope", "--snapshot", str(sent))
    assert (missing.code, missing.out) == (1, "")
    assert 'pods "nope" not found' in missing.err


def test_show_lists_kinds_versions_and_what_was_left_out(sent: Path) -> None:
    (sent / "bad.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: 7}\n")
    run = running.inside(sent, "snapshot", "show", str(sent))
    assert run.code == 0
    assert (
        f"left out: {sent}/bad.yaml: document 1 (line 1): Pod <unnamed>: metadata.name" in run.err
    )
    kinds = {line.split()[0]: line.split()[1:] for line in run.out.split("\n\n")[1].splitlines()}
    assert kinds["Node"] == ["26", "v1"]
    assert kinds["ResourceSlice"] == ["60", "resource.k8s.io/v1"]
    shown = msgspec.json.decode(
        running.inside(sent, "snapshot", "show", str(sent), "-o", "json").out
    )
    assert shown["leftOut"] == 1
    assert shown["files"] == 3


def test_faults_are_named_a_few_at_a_time(tmp_path: Path, state: Path) -> None:
    good = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}}
    bad = good | {"spec": {"nodeName": 7}}
    lines = [good, good, *[bad] * 9]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    run = running.inside(state, "get", "pods", "--snapshot", str(tmp_path))
    assert run.column("NAME") == ["p"]
    assert run.err.count("left out: ") == 6
    assert "left out: 4 more that cannot be read" in run.err
    assert run.err.count("given twice: ") == 1


@pytest.mark.parametrize("content", [None, b"", b"just words", b"\xff\xfe\x00", b"{"])
@pytest.mark.parametrize(
    "command", [("get", "pods"), ("when",), ("doctor",), ("describe", "pods"), ("snapshot", "show")]
)
def test_what_holds_no_objects_is_wrong_usage(
    state: Path, tmp_path: Path, command: tuple[str, ...], content: bytes | None
) -> None:
    path = tmp_path / "sent"
    if content is not None:
        path.write_bytes(content)
    option = () if command[0] == "snapshot" else ("--snapshot",)
    run = running.inside(state, *command, *option, str(path))
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith(f"error: {path}: ")


def test_a_dump_is_not_loaded(state: Path, sent: Path) -> None:
    run = running.inside(state, "snapshot", "load", str(sent), "--fresh")
    assert run.code == 2
    assert "not a snapshot that `dovetail snapshot save` wrote" in run.err
    assert running.inside(state, "get", "pods").code == 0


def test_standard_input_serves_several_resources(state: Path, sent: Path) -> None:
    text = (sent / "objects.json").read_text()
    run = running.inside(state, "get", "nodes,classes", "--snapshot", "-", stdin=text)
    assert run.code == 0, run.err
    assert "h100-0" in run.out
    assert "gpu.nvidia.com" in run.out
    assert "cluster: objects in <stdin>, as of " in run.err


@pytest.mark.parametrize(
    "question", [("why", "p"), ("when",), ("what-if", "--cordon", "node/a"), ("capacity",)]
)
def test_files_without_nodes_and_pods_are_no_cluster_to_ask_about(
    tmp_path: Path, question: tuple[str, ...]
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", encoding="utf-8")
    done = running.inside(tmp_path / "state", *question, "--snapshot", str(file))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {file}: no nodes and no pods to ask about")


@pytest.mark.parametrize(
    "text",
    [
        '{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "No',
        '{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1",',
        "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata:\n    name: a\n",
    ],
)
def test_a_file_that_was_cut_off_is_called_so(tmp_path: Path, text: str) -> None:
    cut = tmp_path / "cut"
    cut.write_text(text, encoding="utf-8")
    done = running.inside(tmp_path / "state", "get", "gpus", "--snapshot", str(cut))
    assert (done.code, done.out) == (2, "")
    assert "the file seems to be cut off" in done.err

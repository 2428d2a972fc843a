"""Snapshots on disk: whole or not there, checked when read, one object a line, nothing overwritten by mistake."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail import errors
from dovetail.boot import embedded_cluster
from dovetail.kubetypes import codec, object_set, registry
from dovetail.ports import api as apis
from dovetail.sim.server import api_server
from dovetail.snapshot import saved_objects, snapshot_files, snapshot_format

FACTS = snapshot_format.Facts(
    taken_at="2026-01-31T08:00:00Z", cluster="lab", server_version="v1.37.0"
)


def node(name: str, **more: Any) -> bytes:
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "7"}
    return msgspec.json.encode({"apiVersion": "v1", "kind": "Node", "metadata": metadata, **more})


def pod(name: str, namespace: str = "train") -> bytes:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "41"}
    tree = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": "a"},
        "brandNew": {"x": 1},
    }
    return msgspec.json.encode(tree)


def saved(place: Path, **options: Any) -> snapshot_format.Manifest:
    documents = {registry.NODE: [node("a"), node("b")], registry.POD: [pod("p"), pod("q")]}
    return snapshot_files.write(place, documents, FACTS, **options)


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_was_written_is_read_back_byte_for_byte(tmp_path: Path) -> None:
    manifest = saved(tmp_path / "snap")
    snapshot = saved_objects.read(tmp_path / "snap")
    assert snapshot.manifest == manifest == snapshot_files.checked(tmp_path / "snap")
    assert (manifest.cluster, manifest.server_version, manifest.redacted) == (
        "lab",
        "v1.37.0",
        False,
    )
    assert snapshot.objects.cluster == "lab"
    assert snapshot.objects.revision == 41  # later changes get later versions
    record = snapshot.objects.get(object_set.Key("Pod", "train", "p"))
    assert record is not None
    assert bytes(record.document) == pod("p")  # unknown fields included
    assert left_in(tmp_path) == ["snap"]


def test_every_kind_is_a_list_with_one_object_a_line(tmp_path: Path) -> None:
    saved(tmp_path / "snap")
    assert left_in(tmp_path / "snap") == sorted(
        [*map(snapshot_format.file_of, snapshot_format.KINDS), "manifest.json"]
    )
    text = (tmp_path / "snap" / "pods.json").read_text()
    assert len(text.splitlines()) == 4
    listed = json.loads(text)
    assert (listed["apiVersion"], listed["kind"]) == ("v1", "List")
    assert len(codec.decode_all(listed)) == 2
    assert json.loads((tmp_path / "snap" / "namespaces.json").read_text())["items"] == []


def test_items_of_typed_lists_and_indented_ones_become_whole_lines(tmp_path: Path) -> None:
    bare = b'{"metadata": {\n  "name": "c"}, "spec": {"x": "a\\nb"}}'
    snapshot_files.write(
        tmp_path / "snap", {registry.NODE: [bare, b' {"metadata":{"name":"d"}} ']}, FACTS
    )
    first, second = (tmp_path / "snap" / "nodes.json").read_text().splitlines()[1:3]
    assert (
        first == '{"apiVersion":"v1","kind":"Node","metadata":{"name":"c"},"spec":{"x":"a\\nb"}},'
    )
    assert second == '{"apiVersion":"v1","kind":"Node","metadata":{"name":"d"}}'
    assert len([*saved_objects.read(tmp_path / "snap").objects.all()]) == 2


def test_an_unreadable_object_is_reported_and_left_out(tmp_path: Path) -> None:
    names: list[str] = []
    broken = b'{"metadata":{"name":"x","namespace":"train"},"spec":{"nodeName":7}}'
    for redacts in (False, True):
        place = tmp_path / f"snap-{redacts}"
        manifest = snapshot_files.write(
            place, {registry.POD: [pod("p"), broken]}, FACTS, redacts=redacts, say=names.append
        )
        assert manifest.left_out == 1
        assert [file.count for file in manifest.files if file.kind == "Pod"] == [1]
        assert len([*saved_objects.read(place).objects.all()]) == 1
    assert len(names) == 2
    assert names[0].startswith("left out: Pod train/x: Pod: spec.nodeName: expected text")


def test_an_object_whose_kind_is_there_twice_is_left_out(tmp_path: Path) -> None:
    """Decoders disagree about which of the two counts."""
    twice = b'{"apiVersion":"v1","kind":"Node","metadata":{"name":"x"},"kind":null}'
    manifest = snapshot_files.write(tmp_path / "snap", {registry.NODE: [node("n"), twice]}, FACTS)
    assert manifest.left_out == 1
    assert len([*saved_objects.read(tmp_path / "snap").objects.all()]) == 1


def test_a_snapshot_with_owners_of_pods_becomes_the_objects_of_a_server(tmp_path: Path) -> None:
    """Owners are known by group and kind alone, whatever their struct."""
    job = b'{"apiVersion":"batch/v1","kind":"Job","metadata":{"namespace":"train","name":"j","uid":"7"}}'
    [kind] = [kind for kind in registry.OWNERS if kind.name == "Job"]
    documents = {registry.NODE: [node("n")], kind: [job]}
    snapshot_files.write(tmp_path / "snap", documents, FACTS)
    api = api_server.SimApi(restored=embedded_cluster.of_snapshot(tmp_path / "snap"))
    [stored] = api.shelf.all(api.kind_of(msgspec.json.decode(job)))
    assert stored.metadata.uid == "7"
    assert len(api.all(registry.NODE)) == 1


def test_long_work_reports_its_progress(tmp_path: Path) -> None:
    names: list[str] = []
    many = (node(f"n{number}") for number in range(snapshot_files.SAY_EVERY + 1))
    snapshot_files.write(tmp_path / "snap", {registry.NODE: many}, FACTS, say=names.append)
    assert names == [f"nodes: {snapshot_files.SAY_EVERY} so far"]


def test_a_snapshot_is_replaced_only_on_request(tmp_path: Path) -> None:
    saved(tmp_path / "snap")
    with pytest.raises(
        errors.InputError, match="holds a snapshot already; name another place or add --force"
    ):
        snapshot_files.write(tmp_path / "snap", {}, FACTS)
    assert len([*saved_objects.read(tmp_path / "snap").objects.all()]) == 4
    snapshot_files.write(tmp_path / "snap", {}, FACTS, is_forced=True)
    assert [*saved_objects.read(tmp_path / "snap").objects.all()] == []
    assert left_in(tmp_path) == ["snap"]


def test_what_is_no_snapshot_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "manifest.json").write_text('{"name": "a web page"}')
    for name in ("file", "folder"):
        with pytest.raises(errors.InputError, match="name another place"):
            saved(tmp_path / name, is_forced=True)
    assert (tmp_path / "folder" / "manifest.json").read_text() == '{"name": "a web page"}'
    (tmp_path / "empty").mkdir()
    saved(tmp_path / "empty")
    assert snapshot_files.checked(tmp_path / "empty").cluster == "lab"


def test_only_the_owner_can_look_inside(tmp_path: Path) -> None:
    saved(tmp_path / "snap")
    assert (tmp_path / "snap").stat().st_mode & 0o077 == 0


def test_a_save_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def documents() -> Iterator[bytes]:
        yield node("a")
        raise RuntimeError("the server went away")

    with pytest.raises(RuntimeError):
        snapshot_files.write(tmp_path / "snap", {registry.NODE: documents()}, FACTS)
    assert left_in(tmp_path) == []


KILLED = """
import os, sys
from pathlib import Path
from dovetail.kubetypes import registry
from dovetail.snapshot import snapshot_files, snapshot_format
def documents():
    yield b'{"apiVersion":"v1","kind":"Node","metadata":{"name":"new"}}'
    print("half", flush=True)
    sys.stdin.read()
facts = snapshot_format.Facts(taken_at="2026-01-31T08:00:00Z")
snapshot_files.write(Path(sys.argv[1]), {registry.NODE: documents()}, facts, is_forced=True)
"""


@pytest.mark.parametrize("is_there", [False, True])
def test_a_killed_save_leaves_what_was_there(tmp_path: Path, is_there: bool) -> None:
    place = tmp_path / "snap"
    if is_there:
        saved(place)
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"half\n"
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.communicate()
    if is_there:
        assert len([*saved_objects.read(place).objects.all()]) == 4
    else:
        assert not place.exists()
    (beside,) = [path for path in tmp_path.iterdir() if path != place]
    with pytest.raises(errors.StateError, match=r"not a snapshot, there is no manifest\.json"):
        saved_objects.read(beside)


def spoil(place: Path, file: str, **changes: Any) -> None:
    """Changes a fact of a file in the manifest, or of the manifest itself where no file is named."""
    path = place / snapshot_format.MANIFEST
    tree = json.loads(path.read_text())
    target = next((item for item in tree["files"] if item["name"] == file), tree)
    target.update(changes)
    path.write_text(json.dumps(tree))


def rewrite(place: Path, file: str, text: str) -> None:
    """Replaces a file, its sum included."""
    (place / file).write_text(text)
    spoil(place, file, sha256=hashlib.sha256(text.encode()).hexdigest())


def complaint(place: Path) -> str:
    with pytest.raises(errors.StateError) as caught:
        saved_objects.read(place)
    return str(caught.value).removeprefix(f"{place}/")


def test_reading_names_the_file_and_what_is_wrong(tmp_path: Path) -> None:
    place = tmp_path / "snap"

    def saved_again() -> Path:
        shutil.rmtree(place, ignore_errors=True)
        saved(place)
        return place

    (saved_again() / "pods.json").write_bytes(b"{}")
    assert complaint(place).startswith("pods.json: changed since it was saved (2 bytes, ")
    (place / "pods.json").unlink()
    assert complaint(place) == "pods.json: is missing, the manifest lists it"
    text = (saved_again() / "nodes.json").read_text()
    (place / "nodes.json").write_text(text.replace("uid-a", "uid-x"))
    assert (
        complaint(place)
        == "nodes.json: changed since it was saved (sums differ); take the snapshot again"
    )
    spoil(saved_again(), "nodes.json", count=3)
    assert complaint(place) == "nodes.json: 2 objects, the manifest says 3"
    spoil(saved_again(), "", format="tar")
    assert complaint(place) == 'manifest.json: format "tar", expected "dovetail-snapshot"'
    spoil(place, "", format=snapshot_format.FORMAT, version=4)
    assert complaint(place) == "manifest.json: version 4, this program reads 1, 2, 3"
    spoil(saved_again(), "nodes.json", kind="Secret")
    assert complaint(place) == "nodes.json: holds Secret, which this program does not know"
    spoil(saved_again(), "nodes.json", name="../../elsewhere")
    assert "which this program does not know" in complaint(place)
    (place / "manifest.json").write_bytes(b"{half")
    assert complaint(place).startswith("manifest.json: not a readable manifest: ")
    rewrite(
        saved_again(),
        "nodes.json",
        '{"items":[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"}}, {}]}',
    )
    assert complaint(place) == "nodes.json: items[0]: expected a Node with a name, got Pod x"
    rewrite(saved_again(), "nodes.json", f'{{"items":[{node("a").decode()},{node("a").decode()}]}}')
    assert complaint(place) == "nodes.json: items[1]: Node a is there twice"
    rewrite(saved_again(), "nodes.json", '{"items":[{"kind":"Node"},{}]}')
    assert complaint(place) == "nodes.json: items[0]: Node: apiVersion: is required"
    rewrite(saved_again(), "nodes.json", "[]")
    assert complaint(place).startswith("nodes.json: not a list of objects: ")


def test_a_directory_without_a_snapshot_is_reported(tmp_path: Path) -> None:
    with pytest.raises(
        errors.StateError, match=r"nowhere: not a snapshot, there is no manifest\.json in it"
    ):
        saved_objects.read(tmp_path / "nowhere")


def test_a_server_begins_with_a_snapshot_as_it_was_saved(tmp_path: Path) -> None:
    saved(tmp_path / "snap")
    api = api_server.SimApi(restored=embedded_cluster.of_snapshot(tmp_path / "snap"))
    stored = api.found(apis.Target(registry.POD, "train", "p"))
    assert stored.document == pod("p")  # uid, version and unknown fields included
    assert api.shelf.revision >= 41  # later changes get later versions
    assert [node.metadata.name for node in api.all(registry.NODE)] == ["a", "b"]

"""The journal: what was acknowledged is there after the process was killed, whole, and versions go on."""

from __future__ import annotations

import os
import random
import select
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail import errors
from dovetail.kubetypes import registry
from dovetail.sim.server.api_server import SimApi
from dovetail.sim.server.journal import DATABASE, Journal
from tests.sim import journal_writer

Tree = dict[str, Any]


def opened(directory: Path) -> tuple[Journal, SimApi]:
    journal = Journal(directory)
    restored = journal.open()
    try:
        return journal, SimApi(restored=restored, on_change=journal.note)
    except errors.StateError:
        journal.close()
        raise


def config_map(name: str, value: str = "") -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {"x": value},
    }


def test_everything_comes_back_and_versions_go_on(tmp_path: Path) -> None:
    journal, api = opened(tmp_path)
    api.put(config_map("a", "1"))
    api.put(config_map("b"))
    kind = api.kind_of(config_map("a"))
    api.shelf.delete(kind, ("default", "b"))
    before = journal_writer.state(api)
    revision = api.shelf.revision
    journal.commit()
    journal.close()

    journal, api = opened(tmp_path)
    assert journal_writer.state(api) == before
    assert api.shelf.revision == revision
    assert api.tree(kind, "a", namespace="default")["data"] == {"x": "1"}
    api.put(config_map("c"))
    assert int(api.tree(kind, "c", namespace="default")["metadata"]["resourceVersion"]) > revision
    journal.close()


def test_a_definition_comes_back_before_its_objects(tmp_path: Path) -> None:
    journal, api = opened(tmp_path)
    version = {"name": "v1", "served": True, "storage": True}
    names = {"plural": "aardvarks", "kind": "Aardvark"}
    api.put(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "aardvarks.aa.example.com"},
            "spec": {"group": "aa.example.com", "names": names, "versions": [version]},
        }
    )
    api.put({"apiVersion": "aa.example.com/v1", "kind": "Aardvark", "metadata": {"name": "a"}})
    journal.commit()
    journal.close()
    journal, api = opened(tmp_path)
    served = api.kinds.named("aa.example.com/v1", "Aardvark")
    assert served is not None
    assert api.find(served.kind, "a", namespace="default") is not None
    journal.close()


def test_the_controllers_know_what_came_back(tmp_path: Path) -> None:
    journal, api = opened(tmp_path)
    api.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    owner = api.find(registry.NODE, "n").metadata
    reference = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": owner.uid}
    api.put(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "n", "ownerReferences": [reference]},
        }
    )
    api.settle()
    journal.commit()
    journal.close()
    journal, api = opened(tmp_path)
    assert api.settle() == 0
    api.shelf.delete(registry.NODE, ("", "n"))
    api.settle()
    assert api.all(registry.LEASE) == []
    journal.close()


def test_a_second_process_gets_the_id_of_the_one_that_holds_the_state(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    program = (
        "import pathlib, sys; from dovetail.sim.server.journal import Journal;"
        "Journal(pathlib.Path(sys.argv[1])).open()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert f"process {os.getpid()} holds this state" in done.stderr
    journal.close()
    opened(tmp_path)[0].close()


def test_no_other_user_can_read_it(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    journal, api = opened(directory)
    api.put(config_map("a"))
    journal.commit()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    assert set(modes.values()) == {0o600}, modes
    journal.close()


def test_a_file_of_another_format_is_left_alone(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    journal.close()
    connection = sqlite3.connect(tmp_path / DATABASE)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(errors.StateError, match="has format 99"):
        Journal(tmp_path).open()


def assert_kept(directory: Path, acknowledged: list[Tree]) -> None:
    """What is there is what was last acknowledged, or a later commit of the same writer, never less and never torn."""
    journal, api = opened(directory)
    state = journal_writer.state(api)
    revision = api.shelf.revision
    journal.close()
    if not acknowledged:
        return
    last = acknowledged[-1]
    assert revision >= last["revision"]
    if revision == last["revision"]:
        assert state == last["objects"]
    for place, version in last["objects"].items():
        # Missing, or of another version, only because a later commit deleted or changed it.
        assert place in state or revision > last["revision"]
        assert int(state.get(place, revision)) >= int(version)
    assert all(int(version) <= revision for version in state.values())


def writer(directory: Path, *arguments: int) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "tests.sim.journal_writer", str(directory)]
    return subprocess.Popen([*words, *map(str, arguments)], stdout=subprocess.PIPE)


def complete_lines(output: bytes) -> list[Tree]:
    return [msgspec.json.decode(line, type=Tree) for line in output.split(b"\n")[:-1]]


@pytest.mark.slow
def test_a_writer_killed_at_any_moment_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    randomness = random.Random(20261117)
    for seed in range(12):
        with writer(tmp_path, seed) as process:
            assert process.stdout is not None
            # The first line says that it writes; how long after that it is killed is drawn.
            output = process.stdout.readline()
            patience = time.monotonic() + randomness.uniform(0.0, 0.3)
            while (left := patience - time.monotonic()) > 0:
                ready, _, _ = select.select([process.stdout], [], [], left)
                if ready:
                    output += process.stdout.read1()
            process.send_signal(signal.SIGKILL)
            output += process.stdout.read()
            assert process.wait() == -signal.SIGKILL
        assert_kept(tmp_path, complete_lines(output))


@pytest.mark.slow
def test_a_writer_that_ends_at_any_call_of_the_database_loses_nothing(tmp_path: Path) -> None:
    with writer(tmp_path, 1, 3) as process:
        output, _ = process.communicate()
    assert process.returncode == 0
    *ended, last = map(int, output.split())
    assert last == 0, "it never came to its end"
    assert len(ended) >= 40
    assert set(ended) == {journal_writer.ENDED}
    for boundary in range(1, len(ended) + 2):
        lines = journal_writer.output_of(tmp_path, boundary).read_bytes()
        assert_kept(tmp_path / str(boundary), complete_lines(lines))


def damaged(directory: Path, statement: str, *values: Any) -> bytes:
    """Puts one object into a journal, changes the file behind its back, and returns the file's bytes."""
    journal, api = opened(directory)
    api.put(config_map("a"))
    journal.commit()
    journal.close()
    connection = sqlite3.connect(directory / DATABASE)
    connection.execute(statement, values)
    connection.commit()
    connection.close()
    return (directory / DATABASE).read_bytes()


ROW = "UPDATE objects SET {} = ? WHERE plural = 'configmaps'"
OTHER_NAME = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":"b"}}'
OTHER_KIND = b'{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"default","name":"a"}}'


@pytest.mark.parametrize(
    ("statement", "value", "message"),
    [
        (ROW.format("document"), b"{", "configmaps default/a: .*not JSON"),
        (ROW.format("document"), b"[]", "configmaps default/a: "),
        (ROW.format("document"), b'{"metadata":{"name":7}}', "configmaps default/a: "),
        (ROW.format("document"), "{}", "configmaps default/a: its document is str, not bytes"),
        (ROW.format("document"), OTHER_NAME, "holds ConfigMap default/b"),
        (ROW.format("document"), OTHER_KIND, "holds Secret default/a"),
        (ROW.format("name"), b"a", "a name in it is bytes, not text"),
        ("UPDATE meta SET value = ?", "many", "revision is 'many', not a number"),
        ("UPDATE meta SET value = ?", -5, "revision is -5, not a number"),
        ("DELETE FROM meta WHERE name = ?", "revision", "it holds objects, but no revision"),
    ],
)
def test_a_damaged_row_is_refused_by_name_and_the_file_left_as_it_is(
    tmp_path: Path, statement: str, value: Any, message: str
) -> None:
    before = damaged(tmp_path, statement, value)
    with pytest.raises(errors.StateError, match=message) as refusal:
        opened(tmp_path)
    assert str(tmp_path / DATABASE) in str(refusal.value)
    assert "dovetail up --fresh" in str(refusal.value)
    assert (tmp_path / DATABASE).read_bytes() == before


@pytest.mark.parametrize(
    "spec", [7, {"versions": [7]}, {"names": 7, "versions": [{"served": True}]}]
)
def test_a_damaged_definition_is_refused(tmp_path: Path, spec: Any) -> None:
    metadata = {"name": "aardvarks.aa.example.com"}
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    document = msgspec.json.encode({**head, "metadata": metadata, "spec": spec})
    statement = "INSERT INTO objects VALUES ('apiextensions.k8s.io', 'customresourcedefinitions', '', ?, 1, ?)"
    damaged(tmp_path, statement, metadata["name"], document)
    with pytest.raises(errors.StateError, match="customresourcedefinitions aardvarks"):
        opened(tmp_path)


def test_a_damaged_page_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """Rows are read from the table; the damaged index would fail only at the next write."""
    damaged(tmp_path, "UPDATE meta SET value = value")
    connection = sqlite3.connect(tmp_path / DATABASE)
    query = "SELECT rootpage FROM sqlite_master WHERE name LIKE 'sqlite_autoindex_objects%'"
    [page] = connection.execute(query).fetchone()
    [page_bytes] = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    content = bytearray((tmp_path / DATABASE).read_bytes())
    start = (page - 1) * page_bytes
    content[start : start + page_bytes] = b"\xff" * page_bytes
    (tmp_path / DATABASE).write_bytes(content)
    with pytest.raises(errors.StateError, match=DATABASE):
        opened(tmp_path)
    assert (tmp_path / DATABASE).read_bytes() == bytes(content)


def test_the_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / DATABASE)
    connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    before = (tmp_path / DATABASE).read_bytes()
    with pytest.raises(errors.StateError, match="was not written by Dovetail"):
        opened(tmp_path)
    assert (tmp_path / DATABASE).read_bytes() == before

"""The state directory: separate processes see one cluster, a kill leaves old or new, foreign files are left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest

from dovetail import errors
from dovetail.sim.local import local_cluster, state_store


def record(name: str, *, size: int = 0) -> tuple[local_cluster.Key, local_cluster.Record]:
    tree = {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": name}, "data": "x" * size}
    return local_cluster.Key("Thing", "", name), local_cluster.Record(
        msgspec.Raw(msgspec.json.encode(tree))
    )


def cluster_of(*names: str) -> local_cluster.Cluster:
    return local_cluster.Cluster("test", len(names), dict(record(name) for name in names))


def keep(store: state_store.Store, cluster: local_cluster.Cluster) -> None:
    store.change(lambda old: (cluster, None))


def test_nothing_is_there_and_nothing_is_made_by_looking(tmp_path: Path) -> None:
    store = state_store.Store(tmp_path / "deep" / "state")
    assert store.load() is None
    assert store.stamp() is None
    assert not (tmp_path / "deep").exists()


def test_what_was_kept_is_read_back_whole(tmp_path: Path) -> None:
    store = state_store.Store(tmp_path / "state")
    key, plain = record("a")
    applied = msgspec.structs.replace(plain, applied=msgspec.Raw(b'{"kind":"Thing"}'))
    cluster = local_cluster.Cluster("test", 7, {key: applied, **dict([record("b")])})
    keep(store, cluster)
    found = state_store.Store(tmp_path / "state").load()
    assert found is not None
    assert (found.name, found.revision) == ("test", 7)
    assert {k: (bytes(r.document), bytes(r.applied)) for k, r in found.records.items()} == {
        k: (bytes(r.document), bytes(r.applied)) for k, r in cluster.records.items()
    }
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == ["cluster.json", "lock"]


def test_a_step_that_keeps_nothing_or_raises_leaves_the_file(tmp_path: Path) -> None:
    store = state_store.Store(tmp_path)
    keep(store, cluster_of("a"))
    before = store.path.read_bytes()
    assert store.change(lambda old: (None, "answer")) == "answer"

    def fails(old: local_cluster.Cluster | None) -> tuple[local_cluster.Cluster | None, None]:
        raise errors.InputError("no")

    with pytest.raises(errors.InputError):
        store.change(fails)
    assert store.path.read_bytes() == before
    keep(store, cluster_of("b"))  # and the lock is free again


def test_every_change_gets_another_stamp(tmp_path: Path) -> None:
    store = state_store.Store(tmp_path)
    seen = []
    for index in range(5):
        keep(store, cluster_of(*(str(number) for number in range(index))))
        seen.append(store.stamp())
    assert len(set(seen)) == 5


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a readable state file"),
        (b"{", "not a readable state file"),
        (b"\x00\xff\xfe", "not a readable state file"),
        (b"[1, 2]", "not a readable state file"),
        (b'{"format": "something-else", "version": 1}', "not a Dovetail state file"),
        (b"{}", "not a Dovetail state file"),
        (
            b'{"format": "dovetail.dev/cluster", "version": 99}',
            "state version 99, this program reads 1",
        ),
        (b'{"format": "dovetail.dev/cluster", "version": 1}', "damaged"),
        (
            b'{"format": "dovetail.dev/cluster", "version": 1, "name": "a", "revision": "x", "objects": []}',
            "damaged",
        ),
    ],
)
def test_a_broken_or_foreign_file_is_named_and_left_alone(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    store = state_store.Store(tmp_path)
    store.path.write_bytes(content)
    with pytest.raises(errors.StateError, match=reason) as refused:
        store.load()
    assert str(store.path) in str(refused.value)
    with pytest.raises(errors.StateError):
        keep(store, cluster_of("a"))
    assert store.path.read_bytes() == content


def test_a_state_cut_off_anywhere_is_never_taken_for_a_whole_one(tmp_path: Path) -> None:
    store = state_store.Store(tmp_path)
    keep(store, cluster_of("a", "b", "c"))
    whole = store.path.read_bytes().rstrip()
    for length in range(0, len(whole), 7):
        store.path.write_bytes(whole[:length])
        with pytest.raises(errors.StateError):
            store.load()


def test_a_directory_that_cannot_be_made_is_an_error_and_no_crash(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(errors.StateError, match="cannot be used"):
        keep(state_store.Store(tmp_path / "file" / "state"), cluster_of("a"))
    with pytest.raises(errors.StateError, match="cannot be read"):
        state_store.Store(tmp_path / "file" / "state").load()


WRITER = """
    import sys
    from pathlib import Path
    from dovetail.sim.local import state_store
    from tests.sim import test_store as tests
    store = state_store.Store(Path(sys.argv[1]))
    print("ready", flush=True)
    for number in range(int(sys.argv[3])):
        def add(old):
            key, made = tests.record(f"{sys.argv[2]}-{number}", size=20_000)
            return tests.local_cluster.Cluster("test", old.revision + 1, old.records | {key: made}), None
        store.change(add)
        print(number, flush=True)
"""


def writer(directory: Path, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITER), str(directory), name, str(count)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def test_two_processes_writing_at_once_lose_nothing(tmp_path: Path) -> None:
    store = state_store.Store(tmp_path)
    keep(store, cluster_of())
    both = [writer(tmp_path, name, 15) for name in ("a", "b")]
    for process in both:
        process.communicate()
        assert process.returncode == 0
    found = store.load()
    assert found is not None
    assert found.revision == 30
    assert len(found.records) == 30


@pytest.mark.parametrize("lines", [1, 3, 6])
def test_a_killed_writer_leaves_a_whole_state_and_a_free_lock(tmp_path: Path, lines: int) -> None:
    store = state_store.Store(tmp_path)
    keep(store, cluster_of())
    process = writer(tmp_path, "a", 10_000)
    assert process.stdout is not None
    for _ in range(lines):
        process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    found = store.load()
    assert found is not None
    assert {key.name for key in found.records} == {
        f"a-{number}" for number in range(found.revision)
    }
    assert found.revision >= lines - 1
    keep(store, cluster_of("after"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cluster.json", "lock"]

"""Files of a dump: found within bounds, uncompressed within bounds, links not followed."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from dovetail import errors
from dovetail.snapshot import object_files


def names_in(path: Path) -> dict[str, bytes]:
    files = object_files.ObjectFiles(str(path))
    return {file.name.removeprefix(f"{path}"): file.content for file in files.read()}


def archive_of(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(content), 1_700_000_000
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def test_a_directory_is_searched_by_name_and_the_rest_is_counted(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "pods.yaml").write_bytes(b"1")
    (tmp_path / "a" / "nodes.JSON").write_bytes(b"2")
    (tmp_path / "events.jsonl.gz").write_bytes(gzip.compress(b"3"))
    (tmp_path / "container.log").write_bytes(b"4")
    (tmp_path / "elsewhere.yaml").symlink_to("/etc/passwd")
    files = object_files.ObjectFiles(str(tmp_path))
    found = {file.name.removeprefix(f"{tmp_path}/"): file.content for file in files.read()}
    assert found == {"a/b/pods.yaml": b"1", "a/nodes.JSON": b"2", "events.jsonl.gz": b"3"}
    assert files.passed_over == 2


def test_a_named_file_may_be_called_anything(tmp_path: Path) -> None:
    path = tmp_path / "dump.txt"
    path.write_bytes(b"x")
    assert names_in(path) == {"": b"x"}
    assert next(object_files.ObjectFiles(str(path)).read()).modified_at is not None


@pytest.mark.parametrize("is_compressed", [True, False])
def test_archives_are_read_member_by_member(tmp_path: Path, is_compressed: bool) -> None:
    content = archive_of({"d/pods.yaml": b"1", "d/x.log": b"2", "d/e.json.gz": gzip.compress(b"3")})
    path = tmp_path / ("d.tgz" if is_compressed else "d.tar")
    path.write_bytes(content if is_compressed else gzip.decompress(content))
    assert names_in(path) == {": d/pods.yaml": b"1", ": d/e.json.gz": b"3"}
    assert len(names_in(tmp_path)) == 2  # in a directory too


def test_what_decompresses_beyond_the_bounds_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_files, "MAX_BYTES", 1_000_000)
    monkeypatch.setattr(object_files, "CHUNK_BYTES", 10_000)
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(bytes(2_000_000)))
    with pytest.raises(errors.InputError, match="more than 0 MiB in all; name a part of it"):
        names_in(tmp_path)
    (tmp_path / "a.json.gz").write_bytes(archive_of({"a.json": bytes(600_000)}))
    names_in(tmp_path)
    (tmp_path / "b.json").write_bytes(bytes(600_000))
    with pytest.raises(errors.InputError, match="in all"):
        names_in(tmp_path)


def test_numbers_of_files_and_depth_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_files, "MAX_FILES", 2)
    for name in "abc":
        (tmp_path / f"{name}.json").write_bytes(b"{}")
    with pytest.raises(errors.InputError, match="more than 2 files"):
        names_in(tmp_path)
    monkeypatch.setattr(object_files, "MAX_FILES", 9)
    monkeypatch.setattr(object_files, "MAX_DEPTH", 2)
    (tmp_path / "1" / "2" / "3").mkdir(parents=True)
    with pytest.raises(errors.InputError, match="more than 2 directories deep"):
        names_in(tmp_path)


@pytest.mark.parametrize("kept_bytes", [4, 20, 27])
def test_damaged_files_are_named(tmp_path: Path, kept_bytes: int) -> None:
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(b"x" * 999)[:kept_bytes])
    with pytest.raises(errors.InputError, match=r"a\.json\.gz: damaged gzip data"):
        names_in(path)
    (tmp_path / "good.json").write_bytes(b"{}")
    files = object_files.ObjectFiles(str(tmp_path))
    assert [file.content for file in files.read()] == [b"{}"]
    assert len(files.unreadable) == 1


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    whole = gzip.decompress(archive_of({"a.json": b"{}" * 5000}))
    path.write_bytes(whole[:2000])
    with pytest.raises(errors.InputError, match=r"a\.tar: damaged archive"):
        names_in(path)


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.InputError, match="there is no such file or directory"):
        names_in(tmp_path / "nowhere")
    with pytest.raises(errors.InputError, match="cannot be read"):
        names_in(Path("a\0b"))

"""What an agent does about the past: restarts of itself and of the node, damaged files, full disks."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from dovetail import errors
from dovetail.node.kubelet.claim_service import Failed, Prepared
from tests.node.claims.conftest import MakeNode
from tests.node.claims.node import Node, mps, time_slicing


def failed(answer: Prepared | Failed | None) -> str:
    assert isinstance(answer, Failed), answer
    return answer.message


def test_a_restarted_agent_knows_what_is_in_use(node: Node) -> None:
    first = node.prepared("eval", "gpu-0-mig-1g10gb-19-0")
    node.restart()
    assert "in use" in node.refused("other", "gpu-0")
    assert node.prepare("eval") == first
    assert node.unprepare("eval") is None
    node.assert_clean()


def test_a_restart_of_the_node_forgets_everything(node: Node) -> None:
    node.prepared("eval", "gpu-0-mig-1g10gb-19-0")
    node.prepared("train", "gpu-1")
    node.boot_id_file.write_text("boot-2\n", "ascii")
    node.hardware.reload_driver()  # what a boot does to partitions
    node.restart()
    node.assert_clean()
    assert node.checkpoint()["bootId"] == "boot-2"
    node.prepared("next", "gpu-0")
    assert node.unprepare("eval") is None, "the kubelet may still ask"
    assert len(node.cdi_files()) == 1


def test_an_agent_without_a_boot_id_does_not_start(node: Node) -> None:
    node.boot_id_file.unlink()
    with pytest.raises(errors.StateError, match="boot id"):
        node.restart()


# ---- checkpoints that cannot be trusted


@pytest.mark.parametrize("damage", ["flip", "truncate", "delete", "foreign"])
def test_nothing_is_prepared_beside_claims_a_damaged_checkpoint_no_longer_tells_of(
    node: Node, damage: str
) -> None:
    node.prepared("eval", "gpu-0-mig-1g10gb-19-0", configs=[])
    node.prepared("train", "gpu-1", configs=[mps()])
    path = node.plugin / "checkpoint.json"
    content = path.read_bytes()
    match damage:
        case "flip":
            path.write_bytes(content.replace(b"gpu-1", b"gpu-0"))
        case "truncate":
            path.write_bytes(content[: len(content) // 2])
        case "delete":
            path.unlink()
        case "foreign":
            path.write_text('{"v1": {"preparedClaims": {}}, "checksum": 1}', "ascii")
    before = path.read_bytes() if path.exists() else None

    node.restart()
    message = node.refused("next", "gpu-0-mig-1g10gb-19-4")
    assert str(path) in message
    assert "Drain the node" in message
    after = path.read_bytes() if path.exists() else None
    assert after == before, "a file that is not trusted is not overwritten"
    assert node.instances() == [("1g.10gb", 0)]

    assert node.unprepare("eval") is None
    assert node.instances() == []
    assert "Drain the node" in failed(node.prepare("next")), "one claim is left"
    assert node.unprepare("train") is None
    assert node.hardware.snapshot().mps_daemons == ()
    assert isinstance(node.prepare("next"), Prepared), "the node is drained, so the agent goes on"


def test_a_damaged_checkpoint_of_an_empty_node_is_set_aside_at_once(node: Node) -> None:
    node.prepared("train", "gpu-0")
    assert node.unprepare("train") is None
    path = node.plugin / "checkpoint.json"
    path.write_bytes(b"garbage")
    node.restart()
    node.prepared("next", "gpu-0")
    assert (node.plugin / "checkpoint.json.unreadable").read_bytes() == b"garbage"


def test_a_partition_that_no_file_explains_any_more_blocks_its_silicon(node: Node) -> None:
    node.prepared("eval", "gpu-0-mig-1g10gb-19-0")
    (node.plugin / "checkpoint.json").write_bytes(b"garbage")
    for path in node.cdi.iterdir():
        path.unlink()
    node.restart()
    assert "not made by the agent" in node.refused("over", "gpu-0")
    node.prepared("beside", "gpu-0-mig-1g10gb-19-1")
    assert node.unprepare("eval") is None
    assert node.instances() == [("1g.10gb", 0), ("1g.10gb", 1)]


def test_a_damaged_checkpoint_does_not_keep_two_daemons_of_a_claim_alive(node: Node) -> None:
    configs = [
        mps("MigDeviceConfig", {"requests": ["r0"]}),
        mps("MigDeviceConfig", {"requests": ["r1"]}),
    ]
    devices = ("gpu-0-mig-1g10gb-19-0", "gpu-0-mig-1g10gb-19-1")
    node.prepared("infer", *devices, configs=configs)
    (node.plugin / "checkpoint.json").write_bytes(b"garbage")
    node.restart()
    assert node.unprepare("infer") is None
    node.assert_clean()


def test_a_later_version_went_before(node: Node) -> None:
    node.prepared("train", "gpu-0")
    path = node.plugin / "checkpoint.json"
    tree = msgspec.json.decode(path.read_bytes())["data"]
    tree["oldestReader"] = 9
    data = msgspec.json.encode(tree)
    checksum = "sha256:" + hashlib.sha256(data).hexdigest()
    path.write_bytes(msgspec.json.encode({"checksum": checksum, "data": tree}))
    assert "a later version wrote it" in node.refused("next", "gpu-1")


# ---- disks and folders


@contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    """A disk of one block below the folder's path, with what was there, and full."""
    kept = folder.with_name(folder.name + "-kept")
    folder.rename(kept)
    folder.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tiny", folder], check=True)
    try:
        for path in kept.iterdir():
            if path.is_file():
                (folder / path.name).write_bytes(path.read_bytes())
        filler = folder / "filler"
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                pass
        yield
    finally:
        subprocess.run(["umount", folder], check=True)
        folder.rmdir()
        kept.rename(folder)


def can_mount(folder: Path) -> bool:
    place = folder / "try"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "tiny", place], capture_output=True, check=False)
    if done.returncode == 0:
        subprocess.run(["umount", place], check=True)
    place.rmdir()
    return done.returncode == 0


def test_a_full_disk_is_a_clear_failure_with_nothing_half_made(node: Node) -> None:
    if not can_mount(node.folder):
        pytest.skip("mounting needs root")
    node.prepared("train", "gpu-1")
    with full_disk(node.plugin):
        message = node.refused("eval", "gpu-0-mig-1g10gb-19-0", configs=[time_slicing("Long")])
        assert "No space left on device" in message
        assert "checkpoint.json" in message
        assert node.instances() == []
        assert not node.is_mig_on()
        assert [path.name for path in node.plugin.iterdir() if "new" in path.name] == []
        (node.plugin / "filler").unlink()
        assert isinstance(node.prepare("eval"), Prepared)
        assert node.unprepare("eval") is None


@pytest.mark.parametrize("lasts", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("failing", range(1, 6))
def test_a_disk_that_fails_at_any_write_leaves_nothing_half_made(
    node: Node, monkeypatch: pytest.MonkeyPatch, failing: int, lasts: bool
) -> None:
    written = 0
    real_replace = os.replace

    def replace(source: Path, target: Path) -> None:
        nonlocal written
        written += 1
        if written == failing or (lasts and written > failing):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        real_replace(source, target)

    node.prepared("train", "gpu-1")
    monkeypatch.setattr(os, "replace", replace)
    message = node.refused("eval", "gpu-0-mig-1g10gb-19-0")
    assert "No space left on device" in message
    assert node.instances() == []
    monkeypatch.undo()
    states = {claim["state"] for claim in node.checkpoint()["claims"].values()}
    assert lasts or states == {"PrepareCompleted"}, "the failed claim is forgotten"
    node.restart()
    assert len(node.checkpoint()["claims"]) == 1
    assert len(node.cdi_files()) == 1
    assert not node.is_mig_on()
    assert isinstance(node.prepare("eval"), Prepared)
    assert node.unprepare("eval") is None


@pytest.mark.parametrize("folder", ["cdi", "plugin"])
def test_a_read_only_folder_is_a_clear_failure_with_nothing_half_made(
    node: Node, folder: str
) -> None:
    if not can_mount(node.folder):
        pytest.skip("mounting needs root")
    path = node.cdi if folder == "cdi" else node.plugin
    path.mkdir(exist_ok=True)
    subprocess.run(["mount", "--bind", path, path], check=True)
    subprocess.run(["mount", "-o", "remount,ro,bind", path], check=True)
    try:
        message = node.refused("eval", "gpu-0-mig-1g10gb-19-0")
        assert "Read-only file system" in message
        assert str(path) in message
        assert node.instances() == []
        assert not node.is_mig_on()
    finally:
        subprocess.run(["umount", path], check=True)
    assert isinstance(node.prepare("eval"), Prepared)
    assert node.unprepare("eval") is None
    node.assert_clean()


def test_a_file_in_the_place_of_the_cdi_folder_is_a_clear_failure(make_node: MakeNode) -> None:
    node = make_node()
    node.cdi.write_text("in the way", "ascii")
    message = node.refused("train", "gpu-0")
    assert str(node.cdi) in message
    node.cdi.unlink()
    assert isinstance(node.prepare("train"), Prepared)


def test_what_a_killed_writer_left_is_removed(node: Node) -> None:
    node.prepared("train", "gpu-0")
    leftover = node.cdi / ".k8s.gpu.nvidia.com-claim_x.yaml.dovetail-new"
    leftover.write_text("half", "ascii")
    node.restart()
    assert not leftover.exists()
    assert os.listdir(node.cdi) == node.cdi_files()

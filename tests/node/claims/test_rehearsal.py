"""A dry run of a prepare: what would refuse a claim refuses it, and nothing of it stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.boot.node import node_requests
from dovetail.model.node_annotations import Rehearsal
from tests.node.claims.conftest import MakeNode
from tests.node.claims.node import Node

PARTITION = "gpu-0-mig-1g10gb-19-0"


def rehearsed(node: Node, *, partitions: tuple[str, ...] = ()) -> Rehearsal:
    """The agent's answer; each GPU is published, with these partitions of the first."""

    def devices_of(minor: int) -> tuple[str, ...]:
        return (f"gpu-{minor}", *(partitions if minor == 0 else ()))

    return node.run(node_requests.rehearsed(node.agent, devices_of, "r-1"))


def content(folder: Path) -> dict[str, bytes]:
    """Every file of the agent but its locks."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"]
    return {str(path): path.read_bytes() for path in files}


def test_a_whole_node_could_prepare_each_gpu_and_nothing_is_changed(node: Node) -> None:
    node.prepared("held", "gpu-1")
    before, changes = content(node.folder), len(node.hardware.history())
    answer = rehearsed(node)
    assert (answer.id, answer.result, answer.device) == ("r-1", "ok", "gpu-0")
    assert content(node.folder) == before
    assert len(node.hardware.history()) == changes


def test_a_node_whose_gpus_are_all_held_says_so(node: Node) -> None:
    for gpu in ("gpu-0", "gpu-1"):
        node.prepared(f"on-{gpu}", gpu)
    answer = rehearsed(node)
    assert (answer.result, answer.device) == ("ok", "")
    assert "claims hold every GPU" in answer.message


def test_where_an_administrator_partitions_a_partition_is_rehearsed(make_node: MakeNode) -> None:
    node = make_node(mig="static", mig_mode=True, gpus=1)
    refused = rehearsed(node, partitions=(PARTITION,))
    assert refused.result == "refused"
    assert "MIG mode is on" in refused.message
    node.hardware.create_mig(0, 19, 0)
    answer = rehearsed(node, partitions=(PARTITION,))
    assert (answer.result, answer.device) == ("ok", PARTITION)
    # What a container would get cannot be stated without it.
    (node.hardware.proc_root / "devices").unlink()
    refused = rehearsed(node, partitions=(PARTITION,))
    assert refused.message.startswith(str(node.hardware.proc_root / "devices"))


def test_what_an_administrator_left_on_a_gpu_refuses(node: Node) -> None:
    node.hardware.set_mig_mode(0, is_on=True)
    node.hardware.create_mig(0, 19, 0)
    answer = rehearsed(node)
    assert answer.result == "refused"
    assert "gpu-0" in answer.message


def test_a_lost_gpu_refuses(node: Node) -> None:
    node.hardware.lose(1)
    answer = rehearsed(node)
    assert answer.result == "refused"
    assert "1 GPUs cannot be read" in answer.message


def test_folders_that_cannot_be_written_refuse(node: Node) -> None:
    node.cdi.symlink_to("/proc/self")  # where even root makes no file
    answer = rehearsed(node)
    assert answer.result == "refused"
    assert str(node.cdi) in answer.message


def test_a_checkpoint_that_cannot_be_trusted_refuses(node: Node) -> None:
    node.prepared("held", "gpu-1")
    (node.plugin / "checkpoint.json").unlink()
    answer = rehearsed(node)
    assert answer.result == "refused"
    assert "checkpoint.json: is missing" in answer.message


@pytest.mark.parametrize("published", [True, False])
def test_a_gpu_that_is_not_published_refuses(node: Node, published: bool) -> None:
    names = (lambda minor: (f"gpu-{minor}",)) if published else (lambda minor: ())
    answer = node.run(node_requests.rehearsed(node.agent, names, "r-2"))
    assert answer.result == ("ok" if published else "refused")

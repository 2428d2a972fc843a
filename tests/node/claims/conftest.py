"""Nodes with fake GPUs. Without gcc there is no fake library, and the stories are skipped."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.devcluster.fake_gpus.hardware import Hardware
from tests.node.claims.node import Node

MakeNode = Callable[..., Node]


@pytest.fixture
def make_node() -> Iterator[MakeNode]:
    """Makes a node of a machine; its agent has started."""
    if shutil.which("gcc") is None:
        pytest.skip("the fake GPUs need gcc")
    nodes: list[Node] = []
    # Sockets of MPS daemons lie below the agent's folders, and their paths must be short: pytest's own are not.
    place = Path(tempfile.mkdtemp(prefix="node-"))
    # Memory spares long stories the wait for a disk. MPS daemons have a /dev/shm of their own and cannot be there.
    memory = tempfile.mkdtemp(prefix="node-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)

    def make(machine: str = "dgx-h100", *, gpus: int = 2, **options: Any) -> Node:
        mig_mode = options.pop("mig_mode", False)
        is_in_memory = options.pop("is_in_memory", False)
        folder = (Path(memory) if is_in_memory else place) / str(len(nodes))
        folder.mkdir()
        home = place / f"{len(nodes)}-hw"
        hardware = Hardware.create(home, machine=machine, gpus=gpus, mig=mig_mode)
        node = Node(folder, hardware, **options)
        nodes.append(node)
        node.start()
        return node

    yield make
    for node in nodes:
        node.close()
    shutil.rmtree(place)
    shutil.rmtree(memory)


@pytest.fixture
def node(make_node: MakeNode) -> Node:
    """Two H100 under dynamic MIG."""
    return make_node()

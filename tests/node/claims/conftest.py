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
    # Sockets of MPS daemons lie below it, and their paths must be short: pytest's own folders are not.
    place = Path(tempfile.mkdtemp(prefix="node-"))

    def make(machine: str = "dgx-h100", *, gpus: int = 2, **options: Any) -> Node:
        mig_mode = options.pop("mig_mode", False)
        folder = place / str(len(nodes))
        hardware = Hardware.create(folder / "hw", machine=machine, gpus=gpus, mig=mig_mode)
        node = Node(folder, hardware, **options)
        nodes.append(node)
        node.start()
        return node

    yield make
    for node in nodes:
        node.close()
    shutil.rmtree(place)


@pytest.fixture
def node(make_node: MakeNode) -> Node:
    """Two H100 under dynamic MIG."""
    return make_node()

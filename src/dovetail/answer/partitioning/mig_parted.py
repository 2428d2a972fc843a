"""The files that carry out proposals: the MIG manager's configuration, and the label of each node.

Given proposals. One named configuration for each distinct geometry of a node, in the format of mig-parted v1; the
manager applies one to a whole node. Its default configuration is kept. Returns trees; never writes them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from dovetail.answer.partitioning.partition_nodes import Geometry

CONFIG_LABEL: Final = "nvidia.com/mig.config"
CONFIG_KEY: Final = "config.yaml"
DEFAULT: Final = "all-disabled"  # what the GPU Operator gives nodes without a label
Boards = Sequence[tuple[int, Geometry]]  # index and partitions of every GPU of a node
Tree = dict[str, Any]


def config_name(boards: Boards) -> str:
    """The same name for the same geometry."""
    digest = hashlib.sha256(msgspec.json.encode(sorted(boards))).hexdigest()
    return f"dovetail-{digest[:10]}"


def configuration(geometries: Iterable[Boards]) -> Tree:
    """The file of the MIG manager."""
    named = {config_name(boards): entries(boards) for boards in geometries}
    disabled = [{"devices": "all", "mig-enabled": False}]
    return {"version": "v1", "mig-configs": {DEFAULT: disabled, **dict(sorted(named.items()))}}


def config_map(text: str, *, name: str, namespace: str) -> Tree:
    """The ConfigMap that `migManager.config.name` names."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": {CONFIG_KEY: text},
    }


def labelled_node(node: str, boards: Boards) -> Tree:
    """The node with its label, to be applied by the server."""
    labels = {CONFIG_LABEL: config_name(boards)}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": labels}}


def entries(boards: Boards) -> list[Tree]:
    """One configuration: GPUs with equal partitions share an entry."""
    by_geometry: dict[Geometry, list[int]] = {}
    for index, geometry in sorted(boards):
        by_geometry.setdefault(tuple(sorted(geometry)), []).append(index)
    listed = []
    for geometry, indexes in sorted(by_geometry.items(), key=lambda item: item[1]):
        entry: Tree = {"devices": indexes, "mig-enabled": bool(geometry)}
        if geometry:
            entry["mig-devices"] = dict(sorted(Counter(geometry).items()))
        listed.append(entry)
    return listed

"""Groups the nodes of a roll-out into units that are out of service together: nodes, racks, NVLink domains, pools.

Given a World and the names of the nodes. A node without the label of its kind of unit is a unit alone. Also reads
which driver a node has loaded, so that nodes which have the wanted one already are left out. Never changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from dovetail.answer.what_if import node_selection
from dovetail.kubetypes.core import nodes
from dovetail.model import node_pools
from dovetail.world.devices import gpu_ledger
from dovetail.world.world import World

# Labels of GPU feature discovery: the whole version, or its first parts.
DRIVER_FULL: Final = "nvidia.com/cuda.driver-version.full"
DRIVER_PARTS: Final = tuple(f"nvidia.com/cuda.driver.{part}" for part in ("major", "minor", "rev"))


class Unit(NamedTuple):
    """Nodes that go together."""

    name: str
    nodes: tuple[str, ...]


def units_of(world: World, names: Iterable[str], together: str) -> list[Unit]:
    """The units, by name."""
    label = _LABELS[together]
    members: dict[str, list[str]] = {}
    for name in sorted(names, key=node_selection.natural):
        value = label(world.nodes[name])
        members.setdefault(f"{together}/{value}" if value else f"node/{name}", []).append(name)
    units = [Unit(name, tuple(of_unit)) for name, of_unit in members.items()]
    return sorted(units, key=lambda unit: node_selection.natural(unit.nodes[0]))


def loaded_driver(world: World, name: str) -> str:
    """The driver version that a node's devices or labels state; empty where neither does."""
    for pool in world.view(name).pools:
        if not gpu_ledger.publishes_gpus(pool.driver):
            continue
        for value in pool.devices.column("driverVersion") or ():
            if value is not None and value.version_value:
                return value.version_value
    labels = world.nodes[name].metadata.labels
    if labels.get(DRIVER_FULL):
        return labels[DRIVER_FULL]
    parts = [labels[key] for key in DRIVER_PARTS if labels.get(key)]
    return ".".join(parts)


def is_same_version(loaded: str, wanted: str) -> bool:
    """Whether two versions are the same number: 580.95.05 is 580.95.5."""
    return _numbers(loaded) == _numbers(wanted)


def _numbers(text: str) -> tuple[str, ...]:
    return tuple(part.lstrip("0") or "0" for part in text.strip().removeprefix("v").split("."))


def _rack(node: nodes.Node) -> str:
    labels = node.metadata.labels
    named = [value for key, value in sorted(labels.items()) if key.rpartition("/")[2] == "rack"]
    return labels.get(node_pools.RACK) or next(iter(named), "")


_LABELS: Final[dict[str, Callable[[nodes.Node], str]]] = {
    "node": lambda node: "",
    "rack": _rack,
    "nvlink": lambda node: node.metadata.labels.get(node_pools.CLIQUE, ""),
    "pool": lambda node: node_pools.pool_of(node).name,
}

"""What allocation sees of one node: its pools, what of them is taken, what counters are left. Read only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dovetail.model import nodes
from dovetail.model.selectors import DeviceTaint
from dovetail.world.devices import Devices

DeviceId = tuple[str, str, str]  # driver, pool, device
Amounts = Mapping[str, int]  # name -> nanos of a Quantity


class PoolView(NamedTuple):
    """A pool as seen from one node. Masks have a bit per device of `devices`, lowest first."""

    name: str
    devices: Devices
    usable: int  # devices that may be used on this node
    is_complete: bool  # incomplete pools give no devices, and forbid requests for all of them
    problem: str | None  # why the pool is invalid: it gives no devices then
    used: int  # exclusive devices in use by anybody, on any node
    shared: Mapping[int, Amounts]  # what shares already consume, by device index
    counters_left: Mapping[str, Amounts]  # per counter set, less what devices in use consume
    extra_taints: Mapping[int, tuple[DeviceTaint, ...]]  # from DeviceTaintRules
    rules: Mapping[int, tuple[str, ...]] = {}  # by device, the names of the rules these taints are from
    barred: int = 0  # devices that belong to another scheduler

    @property
    def driver(self) -> str:
        """The driver that publishes the pool."""
        return self.devices.driver


class NodeView(NamedTuple):
    """A node and the pools visible from it, sorted by driver and name; pools with binding conditions last."""

    node: nodes.Node
    pools: tuple[PoolView, ...]

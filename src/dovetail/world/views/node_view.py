"""What allocation sees of one node: its pools, the devices in use, the remaining counters. Read only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.node_selectors import DeviceTaint
from dovetail.world.devices.device_columns import Devices

DeviceId = tuple[str, str, str]  # driver, pool, device
Amounts = Mapping[str, int]  # name -> nanos of a Quantity


class PoolView(NamedTuple):
    """A pool as seen from one node. Masks have a bit per device of `devices`, lowest first."""

    name: str
    devices: Devices
    usable: int  # devices that may be used on this node
    is_complete: bool  # incomplete pools give no devices, and forbid requests for all devices
    problem: str | None  # why the pool is invalid; an invalid pool gives no devices
    used: int  # devices allocated exclusively, on any node
    shared: Mapping[int, Amounts]  # device index -> what its shares consume
    counters_left: Mapping[str, Amounts]  # counter set -> counters less what devices in use draw
    extra_taints: Mapping[int, tuple[DeviceTaint, ...]]  # device index -> by DeviceTaintRules
    rules: Mapping[int, tuple[str, ...]] = {}  # device index -> the names of these rules
    barred: int = 0  # devices that belong to another scheduler

    @property
    def driver(self) -> str:
        """The driver that publishes the pool."""
        return self.devices.driver


class NodeView(NamedTuple):
    """A node and the pools visible from it, sorted by driver and name; pools with binding conditions last."""

    node: nodes.Node
    pools: tuple[PoolView, ...]

"""What the API server learns of a node's GPUs: slices, labels, taints of faulty devices, the Node's condition.

Given inventories and the faults of GPUs, has the newest of both written. Publishes nothing before `begin`, so that no
claim is allocated that the node could not prepare. Never decides what a fault means.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import msgspec

from dovetail.boot import clocks, first_answer
from dovetail.boot.node import node_agent, node_gpus, node_slices
from dovetail.kube import client, discovery
from dovetail.kube.http import transport
from dovetail.node.health import device_taints
from dovetail.node.health.gpu_health import GpuHealth
from dovetail.node.health.policy_table import HealthPolicy
from dovetail.node.inventory import Gpu, Inventory
from dovetail.node.nvml.watch import NO_DRIVER
from dovetail.node.slices import devices, feature_labels, layout, options
from dovetail.node.slices.label_writer import LabelWriter

COUNTERS_SECONDS: Final = 30.0

LOG = logging.getLogger("dovetail.node.slices")


class Publication:
    """The pool and the labels of one node."""

    def __init__(
        self,
        agent_options: node_agent.Options,
        carrier: transport.Transport,
        *,
        policy: HealthPolicy,
        clock: clocks.SystemClock,
    ) -> None:
        self._carrier = carrier
        self._clock = clock
        self._policy = policy
        self._options = slice_options(agent_options)
        self._node_name = agent_options.node_name
        self.publisher = node_slices.publisher_for(carrier, self._node_name, clock)
        self.labels = LabelWriter(
            client.KubeApi(carrier), node_name=agent_options.node_name, clock=clock
        )
        self._label_options = feature_labels.LabelOptions(
            machine_type=node_gpus.machine_type(agent_options)
        )
        self._inventory = NO_DRIVER
        self._healths: Mapping[int, GpuHealth] = {}
        self._is_begun = False
        self._names: dict[int, tuple[str, ...]] = {}
        self._named: dict[int, tuple[Gpu, options.SliceOptions]] = {}  # what the names follow from

    def update(self, inventory: Inventory) -> None:
        """These GPUs are there now."""
        self._inventory = with_lost(inventory, self._inventory)
        for gpu in self._inventory.gpus:
            facts = (gpu, self._options)
            if self._named.get(gpu.minor) == facts:
                continue  # a MIG device that comes or goes changes one GPU of eight
            offered = devices.offered(gpu, self._inventory, self._options)
            self._names[gpu.minor] = tuple(device.name for device in offered)
            self._named[gpu.minor] = facts
        self._publish()

    def judge(self, healths: Mapping[int, GpuHealth]) -> None:
        """These GPUs have these faults now."""
        self._healths = healths
        self._publish()

    def device_names(self, minor: int) -> tuple[str, ...]:
        """The devices of a GPU, also of one that is lost."""
        return self._names.get(minor, ())

    async def begin(self) -> None:
        """Publishes from now on. Waits for the API server's version, on which the layout depends."""
        version = await first_answer.first_answer(
            lambda: discovery.version(self._carrier), clock=self._clock, log=LOG
        )
        is_split = not any(version.number) or version.number >= (1, 35)
        self._options = msgspec.structs.replace(self._options, has_split_counters=is_split)
        self._is_begun = True
        self._publish()

    async def follow_slices(self) -> None:
        """Puts slices back that others change, such as a kubelet that starts and removes them all."""
        await node_slices.follow(self._carrier, self.publisher, self._node_name, self._clock)

    async def follow_counters(self) -> None:
        """Publishes whole GPUs only, where the server does not store what keeps partitions apart."""
        while True:
            await self.publisher.written()
            if self.publisher.has_dropped_counters and self._options.is_mig_dynamic:
                self._options = msgspec.structs.replace(self._options, is_mig_dynamic=False)
                self._publish()
            await self._clock.sleep(COUNTERS_SECONDS)

    def _publish(self) -> None:
        if not self._is_begun:
            return
        taints = {
            f"gpu-{minor}": device_taints.taints(health, self._policy)
            for minor, health in self._healths.items()
        }
        contents = layout.contents(self._inventory, self._options, taints=taints)
        self.publisher.publish(contents)
        self.labels.publish(feature_labels.labels(self._inventory, self._label_options))


def with_lost(inventory: Inventory, earlier: Inventory) -> Inventory:
    """With GPUs that were there and cannot be read now: they stay published, tainted, until they are gone or back."""
    present = {gpu.minor for gpu in inventory.gpus}
    unread = {gpu.minor for gpu in inventory.unread}
    is_unnamed = None in unread
    kept = [
        gpu
        for gpu in earlier.gpus
        if gpu.minor not in present and (gpu.minor in unread or is_unnamed)
    ]
    gpus: list[Gpu] = sorted([*inventory.gpus, *kept], key=lambda gpu: gpu.minor)
    return msgspec.structs.replace(inventory, gpus=tuple(gpus))


def slice_options(agent_options: node_agent.Options) -> options.SliceOptions:
    """The settings of the slices; `off` means what NVIDIA's driver calls disabled."""
    shares = "disabled" if agent_options.shares == "off" else agent_options.shares
    return options.SliceOptions(
        is_mig_dynamic=agent_options.mig == "dynamic", shares=options.shares_from(shares)
    )

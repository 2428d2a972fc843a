"""Who holds the GPUs of a node: the pods behind claims and counted resources, since when, and in which queue.

Given the objects of a cluster, pods included. A device plugin does not say which GPU a pod holds: pods are listed from
the first GPU on, as tiles show use. Returns structs, and text for a cell. Never prints.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Final, NamedTuple

from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.model import node_pools, pod_requests
from dovetail.tables import membership, text
from dovetail.tables.gpus import gpu_tiles, plugin_gpus, unavailable_gpus

BETWEEN: Final = "; "
AND: Final = " + "  # several holders of one GPU


POD, CLAIM = "pod", "claim"


class Held(NamedTuple):
    """What holds a device or a part of one: a pod, or a claim that no pod uses yet."""

    kind: str  # pod, claim, or the resource of another user of a claim
    namespace: str
    name: str
    since: str | None  # when the claim was allocated
    is_known: bool = True  # False: the object was not read


class Unit(NamedTuple):
    """A part of a GPU in use: the slice's profile, or the memory of a share, where these are known."""

    held: Held
    profile: str = ""
    memory_bytes: int = 0


class Holder(NamedTuple):
    """A holder as a cell shows it."""

    name: str
    since: str
    queue: str

    def __str__(self) -> str:
        details = ", ".join(filter(None, (self.since, self.queue)))
        return f"{self.name} ({details})" if details else self.name


class HeldGpus:
    """What holds the GPUs of a cluster."""

    def __init__(self, objects: object_set.ObjectSet) -> None:
        structs = [stored.struct for stored in objects.listed(registry.POD.name)]
        self._pods = [pod for pod in structs if isinstance(pod, pods.Pod)]
        self._pod_named = {(pod.metadata.namespace, pod.metadata.name): pod for pod in self._pods}
        self._by_device: dict[unavailable_gpus.DeviceId, list[Unit]] = {}
        for stored in objects.listed(registry.CLAIM.name):
            if isinstance(stored.struct, claims.ResourceClaim):
                self._note_claim(stored.struct)
        self._by_node: dict[str, list[pods.Pod]] = {}
        for pod in self._pods:
            if pods.occupies_node(pod):
                self._by_node.setdefault(pod.spec.node_name or "", []).append(pod)

    def pod_of(self, held: Held) -> pods.Pod | None:
        """The pod, if it is one that was read."""
        is_pod = held.kind == POD and held.is_known
        return self._pod_named[held.namespace, held.name] if is_pod else None

    def of_device(self, device: unavailable_gpus.DeviceId) -> list[Unit]:
        """What holds a published device: one unit for each user of each claim."""
        return self._by_device.get(device, [])

    def of_gpus(self, node: gpu_tiles.NodeGpus) -> list[list[Unit]]:
        """What is in use of each GPU, in the order of the tiles."""
        if node.pools:
            return [
                [unit for device in gpu.devices for unit in self.of_device(device)]
                for gpu in node.gpus
            ]
        counted = iter(self._counted(node))
        in_use = (gpu_tiles.USED, gpu_tiles.SLICED, gpu_tiles.SHARED)
        units: list[list[Unit]] = []
        for gpu in node.gpus:
            number = max(1, gpu.partitions) if gpu.state in in_use else 0
            units.append([unit for _, unit in zip(range(number), counted, strict=False)])
        return units

    def _counted(self, node: gpu_tiles.NodeGpus) -> Iterator[Unit]:
        """Every counted unit in use: whole GPUs first, as tiles show them."""
        names = node_pools.plugin_gpus(node.node)
        resources = plugin_gpus.resources_of(node.node, {})
        ordered = sorted(resources, key=lambda each: each.type != plugin_gpus.WHOLE)
        for resource in ordered:
            for pod in self._by_node.get(node.name, ()):
                amounts = dict(pod_requests.occupied(pod).scalars)
                held = Held(POD, pod.metadata.namespace, pod.metadata.name, None)
                for _ in range(min(amounts.get(resource.name, 0), names[resource.name])):
                    yield Unit(held, resource.profile)

    def _note_claim(self, claim: claims.ResourceClaim) -> None:
        allocation = claim.status.allocation
        if allocation is None:
            return
        users = list(self._users(claim))
        for result in allocation.devices.results:
            if result.admin_access:
                continue
            memory = result.consumed_capacity.get(gpu_tiles.MEMORY)
            memory_bytes = 0 if memory is None else memory.nanos // 10**9
            units = self._by_device.setdefault((result.driver, result.pool, result.device), [])
            units += [Unit(held, memory_bytes=memory_bytes) for held in users]

    def _users(self, claim: claims.ResourceClaim) -> Iterator[Held]:
        namespace = claim.metadata.namespace
        allocation = claim.status.allocation
        since = allocation.allocation_timestamp if allocation is not None else None
        if not claim.status.reserved_for:
            yield Held(CLAIM, namespace, claim.metadata.name, since)
        for user in claim.status.reserved_for:
            kind = POD if user.resource == "pods" else user.resource
            is_known = kind == POD and (namespace, user.name) in self._pod_named
            yield Held(kind, namespace, user.name, since, is_known)


class Holders:
    """The holders of all GPUs of a cluster, as text."""

    def __init__(self, objects: object_set.ObjectSet, now: datetime.datetime) -> None:
        self._now = now
        self._held_gpus = HeldGpus(objects)
        self._memberships = membership.Memberships(objects)

    def text_of(self, node: gpu_tiles.NodeGpus) -> str:
        """GPU numbers and their holders: `0-3 train/a-0 (2h, research); 5 default/b (3m)`."""
        by_number = []
        for units in self._held_gpus.of_gpus(node):
            holders = dict.fromkeys(self._holder(unit.held) for unit in units)
            by_number.append(AND.join(map(str, holders)))
        parts = []
        first = 0
        for number in range(1, len(by_number) + 1):
            if number < len(by_number) and by_number[number] == by_number[first]:
                continue
            if by_number[first]:
                last = number - 1
                span = str(first) if first == last else f"{first}-{last}"
                parts.append(f"{span} {by_number[first]}")
            first = number
        return BETWEEN.join(parts)

    def _holder(self, held: Held) -> Holder:
        pod = self._held_gpus.pod_of(held)
        if pod is not None:
            started = held.since or pod.status.start_time or pod.metadata.creation_timestamp
            queue = self._memberships.of(pod).queue
            return Holder(f"{held.namespace}/{held.name}", self._age(started), queue)
        kind = "" if held.kind == POD else f"{held.kind} "
        return Holder(f"{kind}{held.namespace}/{held.name}", self._age(held.since), "")

    def _age(self, since: str | None) -> str:
        return text.age(since, self._now) if since else ""

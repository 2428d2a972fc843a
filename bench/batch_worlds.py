"""The clusters the batch benchmark decides about: nodes of 8 GPUs in racks and zones, queues, and jobs in them.

Devices come as ResourceSlices with a claim for every pod, or as counts of a device plugin. Every object is decoded from
its JSON, as the API server sends it, so that nothing is shared between pods that would not be.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from dovetail.kubetypes import codec, registry
from dovetail.sim.fleet import fleet_objects, fleet_spec
from dovetail.world.events import Changed
from dovetail.world.world import World

Tree = dict[str, Any]

GPUS: Final = 8  # a node
NODES_PER_RACK: Final = 16
RACKS_PER_ZONE: Final = 8
NODES_PER_ZONE: Final = NODES_PER_RACK * RACKS_PER_ZONE
ZONE: Final = "topology.kubernetes.io/zone"
RACK: Final = "dovetail.dev/rack"
TOPOLOGY: Final = "rooms"
SPACE: Final = "bench"
PLUGIN: Final = "nvidia.com/gpu"
NOW: Final = datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC)
NO_MARKS: Final[Mapping[str, str]] = {}
_VERSIONS: Final = {
    "Queue": "dovetail.dev/v1alpha1",
    "Topology": "dovetail.dev/v1alpha1",
    "Pod": "v1",
}


class Devices(StrEnum):
    """How GPUs are published and asked for."""

    CLAIMS = "claims"  # ResourceSlices, one ResourceClaim per pod
    PLUGIN = "plugin"  # nvidia.com/gpu in the node's allocatable


class Site:
    """A World in the making, and which GPUs of it are taken."""

    def __init__(self, nodes: int, devices: Devices) -> None:
        self.world = World()
        self.devices = devices
        self.nodes: list[str] = []
        self._taken: dict[str, int] = {}
        self._number = 0
        pool = fleet_spec.Pool(
            name="h100", count=nodes, gpu="H100-SXM5-80GB", cpu="224", memory="2Ti"
        )
        for tree in fleet_objects.objects_of(fleet_spec.Fleet(name="bench", pools=(pool,))):
            self._publish(tree)
        self._put("Namespace", {"name": SPACE}, version="v1")
        levels = [{"nodeLabel": ZONE, "alias": "zone"}, {"nodeLabel": RACK, "alias": "rack"}]
        self._put("Topology", {"name": TOPOLOGY}, spec={"levels": levels})

    def zone(self, number: int) -> list[str]:
        """The nodes of a zone."""
        return self.nodes[number * NODES_PER_ZONE : (number + 1) * NODES_PER_ZONE]

    @property
    def zones(self) -> int:
        """How many there are; the last may be smaller."""
        return -(-len(self.nodes) // NODES_PER_ZONE)

    def queue(self, name: str, gpus: int, **more: Any) -> None:
        """A queue for every namespace with a quota of so many GPUs; its cpu and memory are unlimited."""
        resources = {"gpu": {"quota": str(gpus)}}
        self._put(
            "Queue", {"name": name}, spec={"resources": resources, "namespaceSelector": {}, **more}
        )

    def wait(
        self,
        queue: str,
        *,
        gpus: int = 1,
        cpu: str = "1",
        gang: str = "",
        pods: int = 1,
        marks: Mapping[str, str] = NO_MARKS,
    ) -> None:
        """A job that waits: one pod, or a gang of so many. Marks are annotations of ours."""
        said = dict(marks)
        if gang:
            said |= {"gang": gang, "gang-min": str(pods)}
        for _ in range(pods):
            self._pod(queue, gpus, marks=said, cpu=cpu)

    def run(
        self,
        queue: str,
        node: str,
        *,
        gpus: int = 1,
        cpu: str = "1",
        marks: Mapping[str, str] = NO_MARKS,
    ) -> None:
        """A job of one pod that runs on a node, on the first GPUs there that are free."""
        first = self._taken.get(node, 0)
        assert first + gpus <= GPUS, f"{node} is full"
        self._taken[node] = first + gpus
        self._pod(queue, gpus, marks=marks, node=node, first=first, cpu=cpu)

    def _publish(self, tree: Tree) -> None:
        if tree["kind"] == "ResourceSlice" and self.devices is Devices.PLUGIN:
            return
        if tree["kind"] == "Node":
            at = len(self.nodes)
            self.nodes.append(tree["metadata"]["name"])
            tree["metadata"]["labels"][RACK] = f"r{at // NODES_PER_RACK}"
            tree["metadata"]["labels"][ZONE] = f"z{at // NODES_PER_ZONE}"
            if self.devices is Devices.PLUGIN:
                tree["status"]["allocatable"] = {**tree["status"]["allocatable"], PLUGIN: str(GPUS)}
        self._apply(tree)

    def _pod(
        self,
        queue: str,
        gpus: int,
        *,
        marks: Mapping[str, str],
        node: str = "",
        first: int = 0,
        cpu: str = "1",
    ) -> None:
        """A pod of a Job of its own; the later it is made, the younger it is."""
        self._number += 1
        name = f"job-{self._number:06d}"
        created = (
            NOW - datetime.timedelta(days=7) + datetime.timedelta(seconds=self._number)
        ).isoformat()
        metadata = {
            "name": f"{name}-0",
            "namespace": SPACE,
            "uid": f"uid-{name}-0",
            "creationTimestamp": created,
            "labels": {f"dovetail.dev/{key}": marks[key] for key in marks if key == "gang"}
            | _queued(queue),
            "annotations": {f"dovetail.dev/{key}": marks[key] for key in marks if key != "gang"},
            "ownerReferences": [owner_of(name)],
        }
        wanted: Tree = {"cpu": cpu, "memory": "8Gi"}
        spec: Tree = {
            "nodeName": node,
            "containers": [{"name": "main", "image": "train", "resources": {}}],
        }
        if gpus and self.devices is Devices.CLAIMS:
            spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
            self._claim(name, gpus, node=node, first=first)
        elif gpus:
            wanted[PLUGIN] = str(gpus)
        spec["containers"][0]["resources"] = {"requests": wanted, "limits": wanted}
        status = {"phase": "Running", "startTime": created} if node else {"phase": "Pending"}
        self._put("Pod", metadata, spec=spec, status=status)

    def _claim(self, name: str, gpus: int, *, node: str, first: int) -> None:
        exactly = {
            "deviceClassName": "gpu.nvidia.com",
            "allocationMode": "ExactCount",
            "count": gpus,
        }
        requests = [{"name": "gpu", "exactly": exactly}]
        status: Tree = {}
        if node:
            given = [
                {"request": "gpu", "driver": "gpu.nvidia.com", "pool": node, "device": f"gpu-{at}"}
                for at in range(first, first + gpus)
            ]
            user = {"resource": "pods", "name": f"{name}-0", "uid": f"uid-{name}-0"}
            status = {"allocation": {"devices": {"results": given}}, "reservedFor": [user]}
        metadata = {"name": name, "namespace": SPACE, "uid": f"uid-claim-{name}"}
        self._put(
            "ResourceClaim", metadata, spec={"devices": {"requests": requests}}, status=status
        )

    def _put(self, kind: str, metadata: Tree, *, version: str = "", **parts: Tree) -> None:
        named = version or _VERSIONS.get(kind, registry.RESOURCE_V1)
        self._apply({"apiVersion": named, "kind": kind, "metadata": metadata, **parts})

    def _apply(self, tree: Tree) -> None:
        found = codec.decode(msgspec.json.decode(msgspec.json.encode(tree))).struct
        self.world.apply(Changed(found))  # type: ignore[arg-type]


def owner_of(name: str) -> Tree:
    """The Job that makes a pod again once it is evicted."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": name,
        "uid": f"uid-{name}",
        "controller": True,
    }


def _queued(queue: str) -> dict[str, str]:
    return {"dovetail.dev/queue": queue} if queue else {}

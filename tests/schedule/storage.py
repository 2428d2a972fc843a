"""Builders for stories about volumes: classes, volumes, claims, and pods that use them."""

from __future__ import annotations

from typing import Any

from dovetail.kubetypes import codec
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.storage import volumes
from dovetail.world.events import Changed
from dovetail.world.world import World
from tests.schedule import build

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
LOCAL = "local"  # the class of volumes that are there and wait for their first consumer
DRIVER = "disk.example.com"


def storage(kind: str, tree: dict[str, Any]) -> Any:
    """An object as the API would decode it."""
    version = "v1" if kind.startswith("Persistent") else "storage.k8s.io/v1"
    return codec.decode({"apiVersion": version, "kind": kind, **tree}).struct


def storage_class(
    name: str = LOCAL, *, provisioner: str = volumes.NO_PROVISIONER, **more: Any
) -> Any:
    """A class whose claims wait for their first consumer."""
    whole = {
        "provisioner": provisioner,
        "volumeBindingMode": volumes.WAIT_FOR_FIRST_CONSUMER,
    } | more
    return storage("StorageClass", {"metadata": {"name": name}, **whole})


def volume(
    name: str, *, on: str = "", size: str = "10Gi", **facts: Any
) -> volumes.PersistentVolume:
    """An unbound volume, on one node or, without any, within reach of all."""
    metadata = {"name": name, "uid": f"uid-of-volume-{name}"} | facts.pop("metadata", {})
    spec: dict[str, Any] = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": LOCAL,
    }
    if on:
        spec["nodeAffinity"] = near(HOSTNAME, on)
    status = {"phase": facts.pop("phase", "Available")}
    result: volumes.PersistentVolume = storage(
        "PersistentVolume", {"metadata": metadata, "spec": spec | facts, "status": status}
    )
    return result


def near(label: str, *values: str) -> dict[str, Any]:
    """An affinity to nodes with one of these values of a label."""
    test = {"key": label, "operator": "In", "values": list(values)}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [test]}]}}


def claim(
    name: str, *, volume: str = "", size: str = "5Gi", **facts: Any
) -> volumes.PersistentVolumeClaim:
    """A claim, with the volume it is bound to if it is."""
    annotations = facts.pop("annotations", {}) | ({volumes.BIND_COMPLETED: "yes"} if volume else {})
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-of-volume-claim-{name}",
        "annotations": annotations,
    }
    metadata |= facts.pop("metadata", {})
    status = {"phase": facts.pop("phase", "Bound" if volume else "Pending")}
    spec = {
        "resources": {"requests": {"storage": size}},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": LOCAL,
        "volumeName": volume,
    }
    volume_claim: volumes.PersistentVolumeClaim = storage(
        "PersistentVolumeClaim", {"metadata": metadata, "spec": spec | facts, "status": status}
    )
    return volume_claim


def given_to(name: str) -> dict[str, Any]:
    """What a volume says of the claim that has it."""
    uid = f"uid-of-volume-claim-{name}"
    ref = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name, "uid": uid}
    return {"claimRef": ref, "phase": "Bound"}


def csi_node(name: str, **limits: int | None) -> volumes.CSINode:
    """The drivers of a node and how many volumes each can attach there; dots are underscores."""
    drivers = [
        {"name": driver.replace("_", "."), "nodeID": name}
        | ({"allocatable": {"count": count}} if count is not None else {})
        for driver, count in limits.items()
    ]
    csinode: volumes.CSINode = storage(
        "CSINode", {"metadata": {"name": name}, "spec": {"drivers": drivers}}
    )
    return csinode


def pod(name: str, *claims: str, **spec: Any) -> pods.Pod:
    """A pod that uses these claims."""
    listed = [
        {"name": f"v{n}", "persistentVolumeClaim": {"claimName": one}}
        for n, one in enumerate(claims)
    ]
    return build.pod(name, volumes=[*listed, *spec.pop("volumes", [])], **spec)


def world(*given: Any, nodes: int = 2) -> World:
    """A world of so many nodes, a class for local volumes, and whatever else is given."""
    cluster = build.world(nodes=nodes, gpus=0)
    for item in (storage_class(), *given):
        cluster.apply(Changed(item))
    return cluster

"""Disks of nodes: local volumes that claims get when their pod is placed, and the task that cleans them afterwards.

Everything else about volumes is done by the real controllers: they make the claims of ephemeral volumes, bind them to
what the scheduler chose, and delete them with the pod. A disk whose claim is gone is wiped: it comes back as new.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tests.faults import client, history
from tests.faults.records import Tree

CLASS: Final = "disk"
PER_NODE: Final = 2
HOST: Final = "kubernetes.io/hostname"
CLASSES_PATH: Final = "/apis/storage.k8s.io/v1/storageclasses"
VOLUMES_PATH: Final = "/api/v1/persistentvolumes"


def storage_class() -> Tree:
    """The class of all disks."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": CLASS},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def volumes(node: str) -> list[Tree]:
    """The disks of a node."""
    place = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}
    spec = {
        "storageClassName": CLASS,
        "capacity": {"storage": "10Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "local": {"path": "/disk"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [place]}},
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"{node}-{index}"},
            "spec": spec,
        }
        for index in range(PER_NODE)
    ]


def of_pod() -> Tree:
    """The volume of a pod, with a claim of its own."""
    spec = {
        "storageClassName": CLASS,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}


async def wipe(api: client.Client, recorder: history.Recorder, nodes: Iterable[str]) -> None:
    """Runs until it is cancelled: deletes each disk whose claim is gone, and recreates each that is missing."""
    disks = {tree["metadata"]["name"]: tree for node in nodes for tree in volumes(node)}
    while True:
        known = recorder.objects["persistentvolumes"]
        for name, fresh in disks.items():
            there = known.get(name)
            if there is None:
                await api.create(VOLUMES_PATH, fresh)
            elif _is_used_up(there):
                await api.delete(f"{VOLUMES_PATH}/{name}", uid=there["metadata"]["uid"])
        await recorder.change(1.0)


def _is_used_up(volume: Tree) -> bool:
    is_leaving = volume["metadata"].get("deletionTimestamp")
    return not is_leaving and (volume.get("status") or {}).get("phase") in ("Released", "Failed")

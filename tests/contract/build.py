"""Small objects for the contract: just what a server insists on."""

from __future__ import annotations

from typing import Any

Tree = dict[str, Any]
STAY: Tree = {"finalizers": ["dovetail.dev/test"]}  # keeps an object until it is removed


def pod(name: str, *, spec: Tree | None = None, **metadata: Any) -> Tree:
    containers = {
        "containers": [{"name": "main", "image": "none"}],
        "terminationGracePeriodSeconds": 30,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": containers | (spec or {}),
    }


def claim(name: str, **metadata: Any) -> Tree:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, **metadata},
        "spec": {"devices": {"requests": [request]}},
    }


def node(name: str, **extra: Any) -> Tree:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, **extra}


def lease(name: str, holder: str = "a", **metadata: Any) -> Tree:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, **metadata},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 40},
    }


def allocation(device: str = "gpu-0") -> Tree:
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "n1", "device": device}
    return {"devices": {"results": [result]}}


def user(name: str = "p", uid: str = "8a4ad9a8-34aa-4c7e-8e57-0d0d5cd1a9ab") -> Tree:
    """A user of a kind no controller knows, so that none of them removes the reservation."""
    return {"apiGroup": "example.com", "resource": "trainings", "name": name, "uid": uid}

"""Claims with an allocation, as a scheduler leaves them behind: what a driver is asked to prepare.

Given devices of a node's pool, creates the claim in the API server and writes the allocation into its status. Nothing
checks that the devices are free: a driver has to refuse what is taken.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from tests.nvidia import dra_node
from tests.support import rest

Tree = dict[str, Any]


def allocated(
    api: rest.Rest,
    node: str,
    devices: Sequence[str],
    *,
    parameters: Mapping[str, Any] | None = None,
    namespace: str = "default",
) -> Tree:
    """A new claim for these devices of the node. `parameters` are the driver's opaque configuration."""
    name = f"claim-{uuid.uuid4().hex[:8]}"
    request = {
        "name": "gpus",
        "exactly": {
            "deviceClassName": "gpu.nvidia.com",
            "allocationMode": "ExactCount",
            "count": len(devices),
        },
    }
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"devices": {"requests": [request]}},
    }
    api.create("resourceclaims", claim, namespace)
    status = {"allocation": {"devices": _allocation(node, devices, parameters)}}
    return api.patch("resourceclaims", name, {"status": status}, namespace, "status")


def _allocation(node: str, devices: Sequence[str], parameters: Mapping[str, Any] | None) -> Tree:
    results = [
        {"request": "gpus", "driver": dra_node.DRIVER, "pool": node, "device": device}
        for device in devices
    ]
    if parameters is None:
        return {"results": results}
    opaque = {"driver": dra_node.DRIVER, "parameters": dict(parameters)}
    return {"results": results, "config": [{"source": "FromClaim", "opaque": opaque}]}

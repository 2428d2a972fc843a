"""`dovetail why` on growing fleets: CPU time of one answer, beside the decision that it rests on.

Run with `python -m bench.why`. Prints milliseconds, the ratio to one decision of the same cluster, and how both grow
with the number of nodes. Three questions: nothing is free, a selector matches nothing, a device plugin's GPUs are gone.
"""

from __future__ import annotations

import datetime
import gc
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from dovetail.answer.replica.patches import ObjectRef
from dovetail.answer.replica.replica import Replica
from dovetail.answer.why import why
from dovetail.kubetypes import codec, object_set, registry
from dovetail.model import policy

SIZES = (250, 500, 1000, 2000)
GPUS = 8
ROUNDS = 5
NOW = datetime.datetime(2026, 11, 17, 12, tzinfo=datetime.UTC)
DRIVER = "gpu.nvidia.com"
Tree = dict[str, Any]


def node(name: str) -> Tree:
    """A node with eight GPUs, of a device plugin and as devices."""
    amounts = {"cpu": "128", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(GPUS)}
    labels = {"kubernetes.io/hostname": name, "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def slice_(name: str) -> Tree:
    """The GPUs of a node as devices."""
    devices = [
        {
            "name": f"gpu-{index}",
            "attributes": {
                "architecture": {"string": "Hopper"},
                "uuid": {"string": f"GPU-{name}-{index}"},
            },
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for index in range(GPUS)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": registry.RESOURCE_V1,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{name}-gpus"},
        "spec": {"driver": DRIVER, "pool": pool, "nodeName": name, "devices": devices},
    }


def pod(name: str, *, node_name: str = "", claim: str = "", gpus: int = 0) -> Tree:
    """A pod that runs or waits, with GPUs of a claim or of a device plugin."""
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    resources = {"requests": {"cpu": "4", "memory": "16Gi"}, "limits": limits}
    spec: Tree = {"containers": [{"name": "main", "resources": resources}]}
    if claim:
        spec["resourceClaims"] = [{"name": "gpus", "resourceClaimName": claim}]
    if node_name:
        spec["nodeName"] = node_name
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}"}
    status = {"phase": "Running" if node_name else "Pending"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def claim(name: str, *, when: str = "", held_on: str = "", index: int = 0, count: int = 1) -> Tree:
    """A claim for GPUs, with the device it holds if any."""
    exactly: Tree = {
        "deviceClassName": DRIVER,
        "allocationMode": "ExactCount",
        "count": count,
        "selectors": [{"cel": {"expression": when}}] if when else [],
    }
    status: Tree = {}
    if held_on:
        result = {"request": "gpus", "driver": DRIVER, "pool": held_on, "device": f"gpu-{index}"}
        user = {"resource": "pods", "name": name, "uid": f"uid-{name}"}
        status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]}
    return {
        "apiVersion": registry.RESOURCE_V1,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-claim-{name}"},
        "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}},
        "status": status,
    }


def cluster(nodes: int) -> list[Tree]:
    """A fleet on which most GPUs are in use, in as many patterns as there are, and three pods that wait."""
    expression = f'device.driver == "{DRIVER}"'
    selectors = [{"cel": {"expression": expression}}]
    trees: list[Tree] = [
        {
            "apiVersion": registry.RESOURCE_V1,
            "kind": "DeviceClass",
            "metadata": {"name": DRIVER},
            "spec": {"selectors": selectors},
        }
    ]
    for number in range(nodes):
        name = f"node-{number:05}"
        trees += [node(name), slice_(name)]
        for index in range(GPUS):
            if number * 7 % 256 >> index & 1 or index < 2:  # in use; some are free everywhere
                held = f"{name}-{index}"
                trees += [claim(held, held_on=name, index=index)]
                trees += [pod(held, node_name=name, claim=held)]
        trees += [pod(f"{name}-plugin", node_name=name, gpus=GPUS)]
    wanted = f'device.attributes["{DRIVER}"].architecture == "hopper"'
    trees += [claim("eight", count=8), pod("busy", claim="eight")]
    trees += [claim("wrong", when=wanted), pod("selector", claim="wrong")]
    trees += [pod("plugin", gpus=4)]
    return trees


def replica_of(nodes: int) -> Replica:
    """The replica of such a cluster."""
    stored = [codec.decode(tree) for tree in cluster(nodes)]
    return Replica(object_set.of("bench", stored), policy.DEFAULT, NOW)


def measured(nodes: int) -> dict[str, float]:
    """Milliseconds of CPU: a decision, then one answer for each question, warm; and the first answer of all."""
    replica = replica_of(nodes)
    gc.collect()
    gc.freeze()  # as the command does: what was read lives until it ends
    figures = {"first": _milliseconds(lambda: _ask(replica, "busy"), rounds=1)}
    figures["decide"] = _milliseconds(replica.decide)
    for name in ("busy", "selector", "plugin"):
        figures[name] = _milliseconds(lambda name=name: _ask(replica, name))  # type: ignore[misc]
    return figures


def _ask(replica: Replica, name: str) -> None:
    answer = why.why(replica, ObjectRef(api_version="v1", kind="Pod", namespace="team", name=name))
    assert not answer.schedulable


def _milliseconds(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    taken = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        taken.append((time.process_time() - began) * 1000)
    return statistics.median(taken)


def main(sizes: tuple[int, ...] = SIZES) -> None:
    """Prints the table."""
    columns = ("first", "decide", "busy", "selector", "plugin")
    print("nodes   " + "".join(f"{name:>12}" for name in columns) + "   busy/decide   growth")
    before: dict[str, float] | None = None
    for nodes in sizes:
        figures = measured(nodes)
        cells = "".join(f"{figures[name]:>9.1f} ms" for name in columns)
        ratio = figures["busy"] / max(figures["decide"], 0.01)
        growth = "" if before is None else f"{figures['busy'] / before['busy']:8.2f}"
        print(f"{nodes:<8}{cells}{ratio:>14.2f}{growth}")
        before = figures


if __name__ == "__main__":
    main(tuple(map(int, sys.argv[1:])) or SIZES)

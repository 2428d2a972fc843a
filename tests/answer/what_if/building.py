"""Small clusters for questions, and the verbs of the tests."""

from __future__ import annotations

import datetime
from typing import Any

from dovetail.answer.replica.replica import Replica
from dovetail.answer.what_if import changes, consequences
from dovetail.answer.what_if import what_if_answer as answers
from dovetail.ask import catalogue_machines
from dovetail.kubetypes import codec, object_set
from dovetail.model import policy
from dovetail.sim.fleet import fleet_objects, fleet_spec

NOW = datetime.datetime(2026, 11, 17, 12, tzinfo=datetime.UTC)
OLD = "2026-11-17T08:00:00Z"
DAY = 86_400
Tree = dict[str, Any]


def fleet(*pools: fleet_spec.Pool) -> list[Tree]:
    """Nodes with devices, their classes, and the namespaces."""
    return fleet_objects.objects_of(fleet_spec.Fleet(name="test", pools=pools))


def h100(count: int, *, gpus: int = 8, name: str = "h100") -> fleet_spec.Pool:
    return fleet_spec.Pool(
        name=name, count=count, gpu="H100-SXM5-80GB", gpus_per_node=gpus, rack="r1"
    )


def plugin_node(name: str, *, gpus: int, labels: dict[str, str] | None = None) -> Tree:
    """A node whose device plugin counts its GPUs."""
    amounts = {"nvidia.com/gpu": str(gpus), "cpu": "64", "memory": "256Gi", "pods": "110"}
    known = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.count": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": known | (labels or {})},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def pod(
    name: str,
    *,
    gpus: int = 1,
    resource: str = "nvidia.com/gpu",
    node: str = "",
    priority: int = 0,
    job: str = "",
    queue: str = "",
    runtime: str = "",
    created: str = OLD,
) -> Tree:
    """A pod; with a node it runs there, with a job its owner creates it again."""
    container = {"name": "main", "resources": {"limits": {resource: str(gpus)}}}
    metadata: Tree = {
        "namespace": "default",
        "name": name,
        "uid": name,
        "creationTimestamp": created,
        "labels": {"dovetail.dev/queue": queue} if queue else {},
        "annotations": {"dovetail.dev/expected-runtime": runtime} if runtime else {},
    }
    if job:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": f"job-{job}"}
        metadata["ownerReferences"] = [owner | {"controller": True}]
    tree: Tree = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container], "priority": priority},
    }
    if node:
        tree["spec"]["nodeName"] = node
        tree["status"] = {"phase": "Running", "startTime": "2026-11-17T11:00:00Z"}
    return tree


def queue(name: str, *, quota: int, limit: int | None = None) -> Tree:
    share: Tree = {"quota": str(quota)}
    if limit is not None:
        share["limit"] = str(limit)
    return {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"resources": {"gpu": share}, "namespaceSelector": {}},
    }


def replica_of(*trees: Tree) -> Replica:
    stored = [codec.decode(tree) for tree in trees]
    return Replica(object_set.of("test", stored), policy.DEFAULT, NOW)


def asked(
    replica: Replica, *options: str, horizon: int = DAY, prices: Any = None
) -> answers.Answer:
    """The answer about changes written as options: `--add 2xh100`."""
    stated = []
    for option in options:
        verb, _, text = option.removeprefix("--").partition(" ")
        stated.append(changes.read(verb, text, namespace="default"))
    return consequences.consequences(
        replica,
        stated,
        horizon_seconds=horizon,
        build=catalogue_machines.build,
        prices=prices,
    )

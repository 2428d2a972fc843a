"""The Kubernetes objects of a study: nodes that count their GPUs, queues, and the pods of a job.

Given a fleet, queues and jobs. GPUs are counted as a device plugin counts them (`nvidia.com/gpu`), whole ones only.
Returns structs as the World takes them; never stores them.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any, Final, cast

from dovetail import errors, timestamps
from dovetail.kubetypes import codec
from dovetail.model import gangs, workload_annotations
from dovetail.sim.fleet import fleet_objects, fleet_spec
from dovetail.sim.virtual_clock import BEGINNING as BEGINNING
from dovetail.study.queueing import job_list, study_file
from dovetail.world.events import Object

NAMESPACE: Final = "default"
GPU: Final = "nvidia.com/gpu"

Tree = dict[str, Any]


def fleet_trees(fleet: fleet_spec.Fleet) -> list[Tree]:
    """The namespaces, and the nodes with their GPUs as a count."""
    divided = [pool.name for pool in fleet.pools if pool.mig or pool.shares]
    if divided:
        raise errors.InputError(
            f"fleet {fleet.name}: pool {divided[0]} divides its GPUs; "
            "a list of jobs needs whole ones: remove mig or shares"
        )
    gpus_by_pool = {pool.name: pool.gpus_per_node for pool in fleet.pools}
    trees = []
    for tree in fleet_objects.objects_of(fleet):
        if tree["kind"] == "Namespace":
            trees.append(tree)
        elif tree["kind"] == "Node":
            pool = tree["metadata"]["labels"][fleet_objects.POOL_LABEL]
            trees.append(_with_gpus(tree, gpus_by_pool[pool]))
    return trees


def _with_gpus(node: Tree, gpus: int) -> Tree:
    resources = {**node["status"]["allocatable"], GPU: str(gpus)}
    return node | {"status": node["status"] | {"capacity": resources, "allocatable": resources}}


def queue_tree(queue: study_file.StudyQueue) -> Tree:
    """A queue that every namespace may use."""
    amounts = {"quota": str(queue.quota), "weight": queue.weight}
    if queue.limit is not None:
        amounts["limit"] = str(queue.limit)
    return {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": queue.name},
        "spec": {"resources": {"gpu": amounts}, "namespaceSelector": {}},
    }


def pod_spec(job: job_list.Job) -> Tree:
    """What each pod of a job requests."""
    resources = {"cpu": "1", GPU: str(job.gpus_per_pod)}
    container = {
        "name": "main",
        "image": "work",
        "resources": {"requests": resources, "limits": resources},
    }
    return {"priority": job.priority, "containers": [container]}


def pods_of(job: job_list.Job, *, scheduler: str) -> list[Object]:
    """The pods of a job as they are submitted, pending."""
    submitted = BEGINNING + datetime.timedelta(seconds=job.submit_seconds)
    labels = {gangs.QUEUE_LABEL: job.queue} if job.queue else {}
    if job.pods > 1:
        labels |= {gangs.GANG_LABEL: job.name, gangs.MIN_LABEL: str(job.pods)}
    annotations = {}
    if job.expected_seconds is not None:
        annotations[workload_annotations.EXPECTED_RUNTIME] = str(job.expected_seconds)
    owner = {"apiVersion": "dovetail.dev/v1", "kind": "Work", "name": job.name}
    trees = (
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{job.name}-{number}",
                "namespace": NAMESPACE,
                "uid": f"{job.name}-{number}",
                "creationTimestamp": timestamps.to_text(submitted),
                "labels": labels,
                "annotations": annotations,
                "ownerReferences": [owner | {"uid": f"work-{job.name}", "controller": True}],
            },
            "spec": pod_spec(job) | {"schedulerName": scheduler},
            "status": {"phase": "Pending"},
        }
        for number in range(job.pods)
    )
    return structs(trees)


def structs(trees: Iterable[Tree]) -> list[Object]:
    """The objects as the World takes them."""
    return [cast(Object, codec.decode(tree).struct) for tree in trees]

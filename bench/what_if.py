"""How long `what-if` takes as a cluster grows: the question about one cluster, from its objects to the answer.

`python -m bench what-if` prints for every number of nodes and every change the processor seconds of the answer, and how
often that is what half the nodes took. Every node has eight GPUs; nineteen of twenty nodes are full, and for ten nodes
one job of eight GPUs waits. `replica` is the replica alone, which every question needs.
"""

from __future__ import annotations

import argparse
import datetime
import time
from typing import Any, Final

from dovetail.answer.replica.replica import Replica
from dovetail.answer.what_if import changes, consequences
from dovetail.ask import catalogue_machines
from dovetail.kubetypes import codec, object_set
from dovetail.model import policy
from dovetail.sim.fleet import fleet_objects, fleet_spec

NOW: Final = datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC)
SIZES: Final = (250, 500, 1000, 2000)
QUESTIONS: Final = {
    "add": ("add", "8xh100"),
    "drain": ("drain", "rack/r-0"),
    "quota": ("set", "queue/team-0.quota=64"),
    "mig": ("set", "rack/r-0.mig=3g.40gb,4g.40gb"),
}
QUEUES: Final = 4
DAY: Final = 86_400
Tree = dict[str, Any]


def main(arguments: list[str]) -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m bench what-if", description=__doc__)
    parser.add_argument("--changes", nargs="+", choices=list(QUESTIONS), default=list(QUESTIONS))
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of nodes")
    chosen = parser.parse_args(arguments)
    before: dict[str, float] = {}
    for size in chosen.sizes:
        objects = object_set.of("bench", [codec.decode(tree) for tree in cluster_of(size)])
        began = time.process_time()
        replica = Replica(objects, policy.DEFAULT, NOW)
        replica_seconds = time.process_time() - began
        for name in chosen.changes:
            verb, text = QUESTIONS[name]
            stated = changes.read(verb, text, namespace="default")
            began = time.process_time()
            answer = consequences.consequences(
                replica, [stated], horizon_seconds=DAY, build=catalogue_machines.build
            )
            seconds = time.process_time() - began
            growth = (
                f"  {seconds / before[name]:.2f} times the size before" if name in before else ""
            )
            before[name] = seconds
            print(
                f"{name:6} {size:5} nodes  answer {seconds:6.2f} s  replica {replica_seconds:5.2f} s"
                f"  starts {answer.before.starting_jobs} -> {answer.after.starting_jobs}{growth}",
                flush=True,
            )
    return 0


def cluster_of(size: int) -> list[Tree]:
    """A cluster of so many nodes, nearly full."""
    pool = fleet_spec.Pool(
        name="h100", count=size, gpu="H100-SXM5-80GB", rack="r", nodes_per_rack=10
    )
    trees = fleet_objects.objects_of(fleet_spec.Fleet(name="bench", pools=(pool,)))
    names = [tree["metadata"]["name"] for tree in trees if tree["kind"] == "Node"]
    trees += [_queue(number, size) for number in range(QUEUES)]
    for number, node in enumerate(names):
        if number % 20 != 19:  # two jobs of four GPUs, which end one after the other
            for half in (0, 4):
                trees += running(f"run-{number}-{half}", node, half, number)
    for number in range(max(size // 10, 1)):
        trees.append(pod(f"wait-{number}", number, gpus=8))
    return trees


def _queue(number: int, size: int) -> Tree:
    return {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": f"team-{number}"},
        "spec": {"resources": {"gpu": {"quota": str(2 * size)}}, "namespaceSelector": {}},
    }


def pod(name: str, number: int, *, gpus: int = 0) -> Tree:
    """A pod of a Job, in one of the queues."""
    container: Tree = {"name": "main"}
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"job-{name}"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": "default",
            "name": name,
            "uid": name,
            "labels": {"dovetail.dev/queue": f"team-{number % QUEUES}"},
            "annotations": {"dovetail.dev/expected-runtime": f"{2 + number % 30}h"},
            "creationTimestamp": "2026-05-31T20:00:00Z",
            "ownerReferences": [owner | {"controller": True}],
        },
        "spec": {"containers": [container]},
    }


def running(name: str, node: str, first: int, number: int) -> list[Tree]:
    """A pod that holds four GPUs of a node, and its claim."""
    bound = pod(name, number)
    bound["spec"] |= {
        "nodeName": node,
        "resourceClaims": [{"name": "gpus", "resourceClaimName": name}],
    }
    bound["status"] = {"phase": "Running", "startTime": "2026-05-31T23:00:00Z"}
    results = [
        {"request": "gpus", "driver": "gpu.nvidia.com", "pool": node, "device": f"gpu-{minor}"}
        for minor in range(first, first + 4)
    ]
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"namespace": "default", "name": name, "uid": f"claim-{name}"},
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "gpus",
                        "exactly": {
                            "deviceClassName": "gpu.nvidia.com",
                            "allocationMode": "ExactCount",
                            "count": 4,
                        },
                    }
                ]
            }
        },
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": name}],
        },
    }
    return [bound, claim]

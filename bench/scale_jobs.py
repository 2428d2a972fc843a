"""The jobs of the scale benchmark: when they arrive, how many GPUs they take, how long they run, which queue pays.

Given a seed and the size of the cluster. Arrivals are a Poisson process, runtimes are exponential, so that what runs at
the start may be drawn like what arrives later. Objects are decoded from JSON, as the API server sends them.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from bench.batch_worlds import NOW, SPACE, Tree, owner_of
from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims

QUEUES: Final = ("a", "b", "c", "d")
GPUS_OF_JOB: Final = {1: 0.55, 2: 0.2, 4: 0.15, 8: 0.1}  # parts of all jobs
MEAN_GPUS: Final = sum(gpus * part for gpus, part in GPUS_OF_JOB.items())
MEAN_SECONDS: Final = 3600.0


class Job(NamedTuple):
    """One pod with a claim for whole GPUs."""

    number: int
    queue: str
    gpus: int
    arrives: float  # seconds after the start
    runs: float  # seconds
    restarts: int = 0

    @property
    def name(self) -> str:
        """The name of its claim; each incarnation of its pod has another."""
        return f"job-{self.number:07d}-{self.restarts}"


class Objects(NamedTuple):
    """A job as the API server shows it."""

    pod: pods.Pod
    claim: claims.ResourceClaim


class Jobs:
    """Draws jobs."""

    def __init__(self, gpus: int, *, load: float, seed: int) -> None:
        self._dice = random.Random(seed)
        self._number = 0
        self._between = MEAN_GPUS * MEAN_SECONDS / (load * gpus)  # seconds between two arrivals
        self._load_gpus = load * gpus

    def at_start(self) -> Iterator[Job]:
        """Jobs that hold the load's part of the cluster."""
        held = 0
        while held < self._load_gpus:
            job = self._drawn(0.0)
            held += job.gpus
            yield job

    def arriving(self, count: int) -> Iterator[Job]:
        """Jobs that arrive later, in order."""
        time = 0.0
        for _ in range(count):
            time += self._dice.expovariate(1 / self._between)
            yield self._drawn(time)

    def _drawn(self, time: float) -> Job:
        self._number += 1
        (gpus,) = self._dice.choices(list(GPUS_OF_JOB), list(GPUS_OF_JOB.values()))
        runs = self._dice.expovariate(1 / MEAN_SECONDS)
        return Job(self._number, self._dice.choice(QUEUES), gpus, time, runs)


def instant(seconds: float) -> datetime.datetime:
    """The time so many seconds after the start."""
    return NOW + datetime.timedelta(seconds=seconds)


def objects_of(job: Job) -> Objects:
    """Its pod and its claim, pending."""
    created = instant(job.arrives).isoformat()
    name = job.name
    wanted = {"cpu": "1", "memory": "8Gi"}
    container = {"name": "main", "image": "train", "resources": {"requests": wanted}}
    pod: Tree = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-0",
            "namespace": SPACE,
            "uid": f"uid-{name}-0",
            "creationTimestamp": created,
            "labels": {"dovetail.dev/queue": job.queue},
            "ownerReferences": [owner_of(name)],
        },
        "spec": {
            "containers": [container],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
        },
        "status": {"phase": "Pending"},
    }
    exactly = {
        "deviceClassName": "gpu.nvidia.com",
        "allocationMode": "ExactCount",
        "count": job.gpus,
    }
    claim: Tree = {
        "apiVersion": registry.RESOURCE_V1,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": SPACE, "uid": f"uid-claim-{name}"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }
    return Objects(_decoded(pod), _decoded(claim))


def bound(objects: Objects, allocation: claims.AllocationResult, node: str, now: float) -> Objects:
    """The same once the pod runs on a node, with these devices."""
    replace = msgspec.structs.replace
    pod, claim = objects
    spec = replace(pod.spec, node_name=node)
    status = replace(pod.status, phase="Running", start_time=instant(now).isoformat())
    user = claims.ResourceClaimConsumerReference(
        resource="pods", name=pod.metadata.name, uid=pod.metadata.uid
    )
    held = replace(claim.status, allocation=allocation, reserved_for=(user,))
    return Objects(replace(pod, spec=spec, status=status), replace(claim, status=held))


def _decoded(tree: Tree) -> Any:
    return codec.decode(msgspec.json.decode(msgspec.json.encode(tree))).struct

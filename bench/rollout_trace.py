"""A cluster at one moment of a recorded trace: the jobs that were in progress then, on nodes of eight GPUs.

Given a file of jobs (submission, duration, GPUs) and a time. Jobs are put on nodes in the order of their submission,
the fullest node that has room first; a job of more than eight GPUs is a gang on whole nodes. Its expected runtime is
stated as recorded, or not at all. Never decides: the plan of the roll-out does.
"""

from __future__ import annotations

import csv
import datetime
import gzip
from pathlib import Path
from typing import Any, Final, NamedTuple

from dovetail import timestamps
from dovetail.sim.fleet import fleet_objects, fleet_spec

NODE_GPUS: Final = 8
GPU: Final = "nvidia.com/gpu"
Tree = dict[str, Any]


class Job(NamedTuple):
    """A job of the trace."""

    name: str
    submitted: datetime.datetime
    seconds: int
    gpus: int

    @property
    def end(self) -> datetime.datetime:
        """When it ended."""
        return self.submitted + datetime.timedelta(seconds=self.seconds)


def jobs_at(path: Path, at: datetime.datetime) -> list[Job]:
    """The jobs in progress at that time, by submission."""
    jobs = []
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for number, row in enumerate(csv.DictReader(file)):
            if not row["est_submit"] or not row["est_duration_s"]:
                continue  # eight rows have no estimate
            submitted = datetime.datetime.fromisoformat(row["est_submit"])
            submitted = submitted.replace(tzinfo=datetime.UTC)
            seconds = int(float(row["est_duration_s"]))
            job = Job(f"job-{number}", submitted, seconds, int(float(row["num_gpus"])))
            if job.submitted <= at < job.end:
                jobs.append(job)
    return sorted(jobs, key=lambda job: (job.submitted, job.name))


def cluster_of(
    jobs: list[Job], nodes: int, *, per_rack: int = 8, states_runtime: bool = True
) -> list[Tree]:
    """The nodes and the pods of the jobs; those without room wait."""
    pool = fleet_spec.Pool(
        name="p", count=nodes, gpu="H100-SXM5-80GB", rack="r", nodes_per_rack=per_rack
    )
    trees = fleet_objects.objects_of(fleet_spec.Fleet(name="trace", pools=(pool,)))
    kept = [tree for tree in trees if tree["kind"] == "Node"]
    free: dict[str, int] = {}
    for tree in kept:
        tree["status"]["allocatable"][GPU] = str(NODE_GPUS)
        free[tree["metadata"]["name"]] = NODE_GPUS
    for job in jobs:
        sizes = [min(NODE_GPUS, job.gpus - start) for start in range(0, job.gpus, NODE_GPUS)]
        places = _places(sizes, free)
        for index, gpus in enumerate(sizes):
            node = places[index] if places else ""
            pod = _pod(job, index, gpus, node, members=len(sizes), states_runtime=states_runtime)
            kept.append(pod)
    return kept


def _places(sizes: list[int], free: dict[str, int]) -> list[str]:
    """A node for each part, the fullest that has room; none at all where one part has none."""
    taken: list[tuple[str, int]] = []
    for gpus in sizes:
        roomy = [name for name, left in free.items() if left >= gpus]
        if not roomy:
            for name, amount in taken:
                free[name] += amount
            return []
        best = min(roomy, key=lambda name: (free[name], name))
        free[best] -= gpus
        taken.append((best, gpus))
    return [name for name, _ in taken]


def _pod(job: Job, index: int, gpus: int, node: str, *, members: int, states_runtime: bool) -> Tree:
    name = f"{job.name}-{index}"
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job.name, "uid": job.name}
    submitted = timestamps.to_text(job.submitted)
    metadata: Tree = {
        "namespace": "default",
        "name": name,
        "uid": name,
        "creationTimestamp": submitted,
        "ownerReferences": [owner | {"controller": True}],
    }
    if states_runtime:
        metadata["annotations"] = {"dovetail.dev/expected-runtime": f"{job.seconds}s"}
    if members > 1:
        labels = {"dovetail.dev/gang": job.name, "dovetail.dev/gang-min": str(members)}
        metadata["labels"] = labels
    container = {"name": "main", "resources": {"limits": {GPU: str(gpus)}}}
    status: Tree = {"phase": "Pending"}
    spec: Tree = {"containers": [container]}
    if node:
        spec["nodeName"] = node
        status = {"phase": "Running", "startTime": submitted}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}

"""How users would say what a scenario's job is: an object that owns its pods, with labels and annotations.

A job of one group is a Job, one of several groups a PyTorchJob with a role each, one whose groups hold equal groups a
JobSet. No controllers run for them here. Times are given by what they come to: a scenario has no clock. Given jobs
of a scenario; gives trees. Never writes.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from dovetail.model import gangs, workload_annotations
from dovetail.model.workloads import owner_gangs
from dovetail.replay.scenarios import scenario_format

Tree = dict[str, Any]
MANAGER = "example.com/stand-in"  # the manager named here creates a Job's pods, and the real controller does not
LONG = "8760h"  # longer than any test
ROLE = gangs.KUBEFLOW_TYPE


class Seat(NamedTuple):
    """What a pod says about where it belongs: its labels, and who controls it."""

    labels: dict[str, str]
    owner: tuple[str, str]  # plural and name


class JobObjects(NamedTuple):
    """A job as objects, the first of which carries its age."""

    source: str
    objects: list[tuple[str, Tree]]  # plural and tree
    seats: dict[str, Seat]  # by group


def problem(scenario: scenario_format.Scenario) -> str:
    """Why a server cannot run this scenario; empty if it can."""
    if any(claim.other_consumers for claim in scenario.claims):
        return "a claim has users that do not exist: the server takes them off"
    for queue in scenario.queues:
        if any(_is_above(queue, resource) for resource in ("gpu", "cpu", "memory")):
            return f"queue {queue.name} has a quota above its limit: the server refuses it"
    for job in scenario.jobs:
        if _kind(job) is None:
            return f"no kind of owner has the groups of job {job.name}"
    return ""


def _is_above(queue: scenario_format.Queue, resource: str) -> bool:
    quota, limit = getattr(queue.quota, resource), getattr(queue.limit, resource)
    return limit is not None and (quota is None or quota > limit)


def objects_of(job: scenario_format.Job, scenario: scenario_format.Scenario) -> JobObjects:
    """The objects that say what the job is."""
    match _kind(job):
        case gangs.JOB:
            return _job(job, scenario)
        case gangs.JOBSET:
            return _job_set(job, scenario)
        case _:
            return _training(job, scenario)


def _kind(job: scenario_format.Job) -> str | None:
    roots = [group for group in job.groups if group.parent is None]
    if job.min_groups != len(roots):
        return None
    if all(group.kind == "pods" for group in roots):
        is_plain = len(job.groups) == 1 and not _asks_place(roots[0].topology)
        return gangs.JOB if is_plain else gangs.KUBEFLOW["PyTorchJob"]
    return gangs.JOBSET if all(_is_replicated(group, job) for group in roots) else None


def _is_replicated(group: scenario_format.Group, job: scenario_format.Job) -> bool:
    """Whether its children are all alike and all needed."""
    below = _children(group, job)
    alike = {(item.kind, item.min, item.topology) for item in below}
    return (
        group.kind == "groups"
        and group.min == len(below)
        and alike == {("pods", below[0].min, None)}
    )


def _children(
    group: scenario_format.Group, job: scenario_format.Job
) -> list[scenario_format.Group]:
    return [item for item in job.groups if item.parent == group.name]


def _job(job: scenario_format.Job, scenario: scenario_format.Scenario) -> JobObjects:
    (group,) = job.groups
    tree = _batch(job.name, pods=max(group.min, len(job.pods)))
    tree["metadata"] |= _whole(job, scenario)
    tree["metadata"]["annotations"][workload_annotations.MIN] = str(group.min)
    return JobObjects(gangs.JOB, [("jobs", tree)], {group.name: Seat({}, ("jobs", job.name))})


def _training(job: scenario_format.Job, scenario: scenario_format.Scenario) -> JobObjects:
    counts = Counter(pod.group for pod in job.pods)
    roles = {
        group.name: {
            "replicas": max(group.min, counts[group.name]),
            "template": {
                "metadata": {
                    "annotations": {workload_annotations.MIN: str(group.min)}
                    | _place(group.topology)
                }
            },
        }
        for group in job.groups
    }
    tree = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": job.name} | _whole(job, scenario),
        "spec": {"pytorchReplicaSpecs": roles},
    }
    owner = ("pytorchjobs", job.name)
    seats = {group.name: Seat({ROLE: group.name}, owner) for group in job.groups}
    return JobObjects(gangs.KUBEFLOW["PyTorchJob"], [("pytorchjobs", tree)], seats)


def _job_set(job: scenario_format.Job, scenario: scenario_format.Scenario) -> JobObjects:
    seats: dict[str, Seat] = {}
    made: list[tuple[str, Tree]] = []
    replicated = []
    for group in (item for item in job.groups if item.parent is None):
        below = _children(group, job)
        notes = {workload_annotations.MIN: str(below[0].min)}
        template = {
            "metadata": {"annotations": _place(group.topology)},
            "spec": _job_spec(below[0].min, notes),
        }
        replicated.append({"name": group.name, "replicas": len(below), "template": template})
        for index, child in enumerate(below):
            name = f"{job.name}-{group.name}-{index}"
            made.append(("jobs", _batch(name, pods=below[0].min)))
            labels = {
                gangs.JOBSET_LABEL: job.name,
                gangs.JOBSET_JOB: group.name,
                gangs.JOBSET_INDEX: str(index),
            }
            seats[child.name] = Seat(labels, ("jobs", name))
    tree = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": job.name} | _whole(job, scenario),
        "spec": {"replicatedJobs": replicated},
    }
    return JobObjects(gangs.JOBSET, [("jobsets", tree), *made], seats)


def _batch(name: str, *, pods: int) -> Tree:
    """A Job whose pods the real controller does not create."""
    spec = _job_spec(pods, {}) | {"managedBy": MANAGER}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def _job_spec(pods: int, annotations: dict[str, str]) -> Tree:
    container = {"name": "main", "image": "example"}
    template = {
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    # Who is made to yield is not a failure: else such Jobs would yield after others.
    ignored = {
        "action": "Ignore",
        "onPodConditions": [{"type": owner_gangs.DISRUPTED, "status": "True"}],
    }
    spec = {"parallelism": pods, "completions": pods, "podFailurePolicy": {"rules": [ignored]}}
    return spec | {"template": template}


def _whole(job: scenario_format.Job, scenario: scenario_format.Scenario) -> Tree:
    """What is said about the job as a whole."""
    notes = {
        workload_annotations.PREEMPTIBLE: str(job.preemptible).lower(),
        workload_annotations.STALE_GRACE: _grace(job, scenario),
    }
    if job.may_evict_after_s > job.age_s:
        notes[workload_annotations.MAY_EVICT_AFTER] = LONG
    return {
        "labels": {workload_annotations.QUEUE: job.queue},
        "annotations": notes | _place(job.topology),
    }


def _grace(job: scenario_format.Job, scenario: scenario_format.Scenario) -> str:
    """Whether the job, if it is below its minimum, is so for too long already: a length of time that begins now."""
    grace = scenario.settings.stale_grace_s if job.stale_grace_s is None else job.stale_grace_s
    return "0s" if 0 <= grace <= (job.stale_for_s or 0) else "never"


def _place(wish: scenario_format.TopologyRequest | None) -> dict[str, str]:
    if not _asks_place(wish):
        return {}
    assert wish is not None
    words = {
        workload_annotations.TOPOLOGY: wish.topology,
        workload_annotations.TOPOLOGY_REQUIRED: wish.required,
        workload_annotations.TOPOLOGY_PREFERRED: wish.preferred,
    }
    return {key: word for key, word in words.items() if word}


def _asks_place(wish: scenario_format.TopologyRequest | None) -> bool:
    return wish is not None and bool(wish.required or wish.preferred)

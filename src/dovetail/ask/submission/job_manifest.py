"""The objects of `dovetail run`: an Indexed Job whose pods start together, and the template of their claims.

Given what the user wants; returns plain trees that `kubectl apply` would take as well. Never reads a cluster, never
writes.
"""

from __future__ import annotations

import getpass
import re
from typing import Any, Final

import msgspec

from dovetail.ask.submission import gpu_requests
from dovetail.kubetypes import registry
from dovetail.model import gangs, workload_annotations

CONTAINER: Final = "main"
JOB_NAME_LABEL: Final = "batch.kubernetes.io/job-name"  # of pods, by the Job controller
HOSTNAME: Final = "kubernetes.io/hostname"
BATCH_V1: Final = "batch/v1"
_NOT_IN_LABELS: Final = re.compile(r"[^A-Za-z0-9._-]+")

Tree = dict[str, Any]


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One job as its user describes it."""

    name: str
    namespace: str
    image: str
    command: tuple[str, ...]
    devices: gpu_requests.DeviceRequest
    nodes: int = 1
    queue: str = ""
    time: str = ""
    cpu: str = ""
    memory: str = ""
    priority_class: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    user: str = ""
    scheduler_name: str = "dovetail"

    @property
    def template_name(self) -> str:
        """The name of the claim template."""
        return f"{self.name}-{gpu_requests.REQUEST}"


def trees(request: RunRequest) -> list[Tree]:
    """The objects, in the order in which people read them."""
    job = {
        "apiVersion": BATCH_V1,
        "kind": "Job",
        "metadata": _metadata(request, request.name, _labels(request)) | _annotations(request),
        "spec": {
            "completionMode": "Indexed",
            "completions": request.nodes,
            "parallelism": request.nodes,
            # A failed pod ends the job; an eviction is no failure, and its pod starts again.
            "backoffLimit": 0,
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "Ignore",
                        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                    }
                ]
            },
            "template": {
                "metadata": {"labels": _labels(request)} if _labels(request) else {},
                "spec": _pod_spec(request),
            },
        },
    }
    if request.devices.claim is None:
        return [job]
    template = {
        "apiVersion": registry.RESOURCE_V1,
        "kind": "ResourceClaimTemplate",
        "metadata": _metadata(request, request.template_name, _labels(request)),
        "spec": {"spec": request.devices.claim},
    }
    return [template, job]


def user() -> str:
    """Who runs the command, as a label can hold it; empty where that is not known."""
    try:
        login = getpass.getuser()
    except (KeyError, OSError):
        return ""
    return _NOT_IN_LABELS.sub("-", login)[:63].strip("-._")


def my_selector() -> str:
    """The label selector of the work that this user submitted."""
    return f"{workload_annotations.USER_LABEL}={user()}"


def _metadata(request: RunRequest, name: str, labels: dict[str, str]) -> Tree:
    metadata: Tree = {"name": name, "namespace": request.namespace}
    return metadata | ({"labels": labels} if labels else {})


def _labels(request: RunRequest) -> dict[str, str]:
    labels = {gangs.QUEUE_LABEL: request.queue, workload_annotations.USER_LABEL: request.user}
    return {key: value for key, value in labels.items() if value}


def _annotations(request: RunRequest) -> Tree:
    """All pods start together or none; and how long the job may run."""
    annotations = {
        workload_annotations.MIN: "all",
        workload_annotations.MAX_RUNTIME: request.time,
    }
    stated = {key: value for key, value in annotations.items() if value}
    return {"annotations": stated} if stated else {}


def _pod_spec(request: RunRequest) -> Tree:
    spec: Tree = {"schedulerName": request.scheduler_name, "restartPolicy": "Never"}
    if request.priority_class:
        spec["priorityClassName"] = request.priority_class
    if affinity := _affinity(request):
        spec["affinity"] = affinity
    spec["containers"] = [_container(request)]
    if request.devices.claim is not None:
        spec["resourceClaims"] = [
            {
                "name": gpu_requests.REQUEST,
                "resourceClaimTemplateName": request.template_name,
            }
        ]
    return spec


def _container(request: RunRequest) -> Tree:
    container: Tree = {"name": CONTAINER, "image": request.image}
    if request.command:
        container["command"] = list(request.command)
    if request.environment:
        container["env"] = [{"name": name, "value": value} for name, value in request.environment]
    amounts = {"cpu": request.cpu, "memory": request.memory}
    requests = {name: amount for name, amount in amounts.items() if amount}
    resources: Tree = {}
    if requests:
        resources["requests"] = requests
    if request.devices.resources:
        resources["limits"] = dict(request.devices.resources)
    if request.devices.claim is not None:
        resources["claims"] = [{"name": gpu_requests.REQUEST}]
    if resources:
        container["resources"] = resources
    return container


def _affinity(request: RunRequest) -> Tree:
    """Every pod on a node of its own, and on nodes with the GPUs that a device plugin counts."""
    affinity: Tree = {}
    if request.devices.node_labels:
        # A node has one of these labels: each is a term, and one term must hold.
        terms = [
            {"matchExpressions": [{"key": label, "operator": "In", "values": list(values)}]}
            for label, values in request.devices.node_labels.items()
        ]
        required = {"nodeSelectorTerms": terms}
        affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    if request.nodes > 1:
        term = {
            "labelSelector": {"matchLabels": {JOB_NAME_LABEL: request.name}},
            "topologyKey": HOSTNAME,
        }
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return affinity

"""Builders of the objects that stories are made of, and the question they all ask."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

from dovetail.answer.replica import patches
from dovetail.answer.replica.replica import Replica
from dovetail.answer.why.cause_codes import CauseCode
from dovetail.answer.why.evidence import observed
from dovetail.answer.why.evidence.observation import Observed
from dovetail.kubetypes import codec, object_set
from dovetail.model import policy

Tree = dict[str, Any]

NOW = datetime.datetime(2026, 11, 17, 12, tzinfo=datetime.UTC)
GPU = "nvidia.com/gpu"
_serials = itertools.count()


def at(minutes_ago: float) -> str:
    """A time before now, as Kubernetes writes it."""
    moment = NOW - datetime.timedelta(minutes=minutes_ago)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def replica_of(*trees: Tree, policy_: policy.Policy = policy.DEFAULT) -> Replica:
    """The replica of these objects."""
    stored = [codec.decode(tree) for tree in trees]
    return Replica(object_set.of("test", stored), policy_, NOW)


def ref(tree: Tree) -> patches.ObjectRef:
    """The reference to an object."""
    metadata = tree["metadata"]
    return patches.ObjectRef(
        api_version=tree["apiVersion"],
        kind=tree["kind"],
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
    )


def observe(subject: Tree, *others: Tree) -> Observed | None:
    """What is observed about the first object among all of them."""
    return observed.observed(replica_of(subject, *others), ref(subject))


def seen(subject: Tree, *others: Tree) -> Observed:
    """As `observe`, where something must be observed."""
    answer = observe(subject, *others)
    assert answer is not None
    assert len(answer.cause.sentence) < 330, answer.cause.sentence
    assert all("\n" not in line for line in answer.evidence)
    return answer


def code(subject: Tree, *others: Tree) -> CauseCode:
    """The code of what is observed."""
    return seen(subject, *others).cause.code


def named(
    api_version: str, kind: str, name: str, *, namespace: str = "team", **fields: Any
) -> Tree:
    """An object of any kind."""
    metadata: Tree = {"name": name, "uid": f"uid-{kind}-{name}", "creationTimestamp": at(60)}
    if namespace:
        metadata["namespace"] = namespace
    metadata |= fields.pop("metadata", {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata} | fields


def pod(
    name: str = "train-0",
    *,
    resources: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    owner: Tree | None = None,
    status: Tree | None = None,
    image: str = "example/train:1",
    env: dict[str, str] | None = None,
    namespace: str = "team",
    **spec: Any,
) -> Tree:
    """A pod with one container."""
    variables = [{"name": key, "value": value} for key, value in (env or {}).items()]
    container = {
        "name": "main",
        "image": image,
        "resources": {"limits": resources or {}},
        "env": variables,
    }
    metadata: Tree = {"labels": labels or {}, "annotations": annotations or {}}
    if owner is not None:
        metadata["ownerReferences"] = [owner_reference(owner)]
    return named(
        "v1",
        "Pod",
        name,
        namespace=namespace,
        metadata=metadata,
        spec={"containers": [container], **spec},
        status={"phase": "Pending"} | (status or {}),
    )


def owner_reference(owner: Tree) -> Tree:
    """The reference by which an object names its controller."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }


def bound(name: str = "train-0", *, node: str = "gpu-1", **fields: Any) -> Tree:
    """A pod that a scheduler bound to a node."""
    status = {"conditions": [condition("PodScheduled", "True")]} | fields.pop("status", {})
    return pod(name, nodeName=node, status=status, **fields)


def waiting(reason: str, message: str = "", **fields: Any) -> Tree:
    """The status of a container that waits."""
    return {"name": "main", "state": {"waiting": {"reason": reason, "message": message}}} | fields


def condition(
    type_: str, status: str, reason: str = "", message: str = "", *, ago: float = 5
) -> Tree:
    """A condition."""
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": at(ago),
    }


def event(
    about: Tree,
    reason: str,
    message: str,
    *,
    ago: float = 5,
    by: str = "kubelet",
    count: int = 1,
    type_: str = "Warning",
    core: bool = False,
) -> Tree:
    """An event about an object, of events.k8s.io, or of core v1."""
    metadata = about["metadata"]
    subject = {"apiVersion": about["apiVersion"], "kind": about["kind"], "name": metadata["name"]}
    subject |= {"namespace": metadata.get("namespace", ""), "uid": metadata.get("uid", "")}
    name = f"{metadata['name']}.{next(_serials):x}"
    namespace = metadata.get("namespace", "default")
    if core:
        body: Tree = {
            "involvedObject": subject,
            "message": message,
            "source": {"component": by},
            "count": count,
            "lastTimestamp": at(ago),
        }
        version = "v1"
    else:
        body = {
            "regarding": subject,
            "note": message,
            "reportingController": by,
            "series": {"count": count, "lastObservedTime": at(ago)},
        }
        version = "events.k8s.io/v1"
    return named(version, "Event", name, namespace=namespace, reason=reason, type=type_, **body)


def node(
    name: str = "gpu-1",
    *,
    offers: dict[str, str] | None = None,
    capacity: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    conditions: list[Tree] | None = None,
) -> Tree:
    """A node with cpu and memory, and what else it offers."""
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110"} | (offers or {})
    status = {
        "allocatable": amounts,
        "capacity": amounts | (capacity or {}),
        "conditions": [condition("Ready", "True"), *(conditions or [])],
    }
    return named("v1", "Node", name, namespace="", metadata={"labels": labels or {}}, status=status)


GPU_NODE = {"feature.node.kubernetes.io/pci-10de.present": "true", "nvidia.com/gpu.present": "true"}


def component(
    labels: dict[str, str], *, on: str = "gpu-1", problem: str = "", message: str = ""
) -> Tree:
    """A pod of the GPU stack on a node: ready, or with a container that waits for a reason."""
    name = f"component-{next(_serials)}"
    if not problem:
        status: Tree = {"phase": "Running", "conditions": [condition("Ready", "True")]}
    else:
        status = {"phase": "Running", "conditions": [condition("Ready", "False")]}
        terminated = {"terminated": {"exitCode": 1, "message": message}}
        status["containerStatuses"] = [
            waiting(problem, "back-off 5m0s", restartCount=12, lastState=terminated)
        ]
    return pod(name, namespace="gpu-operator", labels=labels, nodeName=on, status=status)


DRIVER = {"app": "nvidia-driver-daemonset"}
TOOLKIT = {"app": "nvidia-container-toolkit-daemonset"}
PLUGIN = {"app": "nvidia-device-plugin-daemonset"}
DRA = {"app.kubernetes.io/name": "nvidia-dra-driver-gpu"}

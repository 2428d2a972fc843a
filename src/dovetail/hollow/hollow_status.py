"""Builds what a kubelet writes: a pod's status in each phase, a node's status, a node's lease.

Given structs and a time, returns JSON merge patches or documents as plain trees. Lists of conditions are complete, with
the conditions of other writers unchanged. Never sends anything, never decides when.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Iterable
from typing import Any, Final

from dovetail import timestamps
from dovetail.hollow import pod_stages
from dovetail.kubetypes import codec, meta
from dovetail.kubetypes.core import nodes, pods

LEASE_NAMESPACE: Final = "kube-node-lease"
LEASE_SECONDS: Final = 40  # kubelet's nodeLeaseDurationSeconds

Tree = dict[str, Any]


def pod_status(pod: pods.Pod, become: pod_stages.EnterPhase, *, now: datetime.datetime) -> Tree:
    """A merge patch of pods/status that conflicts if the pod has changed since it was read."""
    stamp = timestamps.to_text(now)
    container_statuses = [
        _container(pod, container, become=become, stamp=stamp) for container in pod.spec.containers
    ]
    status: Tree = {
        "phase": become.phase,
        "reason": become.reason or None,
        "message": become.message or None,
        "startTime": pod.status.start_time or stamp,
        "hostIP": address_of(pod.spec.node_name),
        "hostIPs": [{"ip": address_of(pod.spec.node_name)}],
        "conditions": _conditions(pod, become, stamp),
        "containerStatuses": container_statuses,
    }
    if become.phase == pod_stages.RUNNING:
        status |= {
            "podIP": address_of(pod.metadata.uid),
            "podIPs": [{"ip": address_of(pod.metadata.uid)}],
        }
    if pod.metadata.generation:
        status["observedGeneration"] = pod.metadata.generation
    if pod.spec.init_containers:
        status["initContainerStatuses"] = [
            _init_container(pod, container, become=become, stamp=stamp)
            for container in pod.spec.init_containers
        ]
    return {"metadata": _unchanged_since(pod.metadata), "status": status}


def node_status(node: nodes.Node, *, now: datetime.datetime) -> Tree:
    """A merge patch of nodes/status to Ready that conflicts if the node has changed since it was read."""
    status = {"conditions": node_conditions(node.status.conditions, now=now)}
    return {"metadata": _unchanged_since(node.metadata), "status": status}


def node_conditions(
    before: Iterable[nodes.NodeCondition] = (), *, now: datetime.datetime
) -> list[Tree]:
    """The conditions of a healthy node; conditions of other types stay."""
    stamp = timestamps.to_text(now)
    foreign = {condition.type: condition for condition in before}
    own: list[Tree] = []
    for type_, status, reason in (
        ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID"),
        ("Ready", "True", "KubeletReady"),
    ):
        condition = {
            "type": type_,
            "status": status,
            "reason": reason,
            "message": "a hollow node",
            "lastHeartbeatTime": stamp,
            "lastTransitionTime": _transition_time(foreign.pop(type_, None), status, stamp),
        }
        own.append(condition)
    return [*map(codec.tree_of, foreign.values()), *own]


def _transition_time(
    before: nodes.NodeCondition | pods.PodCondition | None, status: str, stamp: str
) -> str:
    """When the condition took this status: now, unless it has it already."""
    if before is None or before.status != status:
        return stamp
    return before.last_transition_time or stamp


def is_ready(node: nodes.Node) -> bool:
    """Whether the node has the condition Ready."""
    ready = [condition for condition in node.status.conditions if condition.type == "Ready"]
    return any(condition.status == "True" for condition in ready)


def is_unready(pod: pods.Pod) -> bool:
    """Whether the pod's Ready condition is not True."""
    ready = [condition for condition in pod.status.conditions if condition.type == "Ready"]
    return any(condition.status != "True" for condition in ready)


def lease(node: nodes.Node, *, now: datetime.datetime) -> Tree:
    """The complete lease of a node, deleted together with it."""
    name = node.metadata.name
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": name,
            "namespace": LEASE_NAMESPACE,
            "ownerReferences": [owner_reference(node)],
        },
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_SECONDS,
            **renewal(now)["spec"],
        },
    }


def renewal(now: datetime.datetime) -> Tree:
    """A merge patch of a node's lease."""
    return {"spec": {"renewTime": timestamps.to_micro_text(now)}}


def owner_reference(node: nodes.Node) -> Tree:
    """An owner reference that deletes an object together with its node."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "name": node.metadata.name,
        "uid": node.metadata.uid,
    }


def address_of(name: str) -> str:
    """A fake address, always the same for the same name."""
    digest = hashlib.sha256(name.encode()).digest()
    return f"10.{digest[0]}.{digest[1]}.{digest[2] % 254 + 1}"


def _unchanged_since(metadata: meta.ObjectMeta) -> Tree:
    return {"resourceVersion": metadata.resource_version, "uid": metadata.uid}


def _conditions(pod: pods.Pod, become: pod_stages.EnterPhase, stamp: str) -> list[Tree]:
    """The kubelet's conditions; PodScheduled and those of other writers stay."""
    is_running = become.phase == pod_stages.RUNNING
    completed = "PodCompleted" if become.phase == pod_stages.SUCCEEDED else ""
    not_ready = "" if is_running else completed or "PodFailed"
    ready = "True" if is_running else "False"
    own = {
        "PodReadyToStartContainers": (ready, ""),
        "Initialized": ("True", completed),
        "ContainersReady": (ready, not_ready),
        "Ready": (ready, not_ready),
    }

    before = {condition.type: condition for condition in pod.status.conditions}
    foreign = [condition for condition in pod.status.conditions if condition.type not in own]
    conditions: list[Tree] = [codec.tree_of(condition) for condition in foreign]
    for type_, (status, reason) in own.items():
        since = _transition_time(before.get(type_), status, stamp)
        condition = {"type": type_, "status": status, "lastTransitionTime": since}
        if reason:
            condition["reason"] = reason
        conditions.append(condition)
    return conditions


def _container(
    pod: pods.Pod, container: pods.Container, *, become: pod_stages.EnterPhase, stamp: str
) -> Tree:
    if become.phase == pod_stages.RUNNING:
        return _container_status(pod, container, is_ready=True, state=_running(pod, stamp))

    code, reason = become.exit_code, become.reason
    for end in become.containers:
        if end.name == container.name:
            code, reason = end.exit_code, end.reason
            break

    reason = reason or ("Error" if code else "Completed")
    state = _ended(pod, code, reason=reason, stamp=stamp)
    return _container_status(pod, container, is_ready=False, state=state)


def _init_container(
    pod: pods.Pod, container: pods.Container, *, become: pod_stages.EnterPhase, stamp: str
) -> Tree:
    """Sidecars run as long as the pod; other init containers have completed."""
    if container.restart_policy == "Always" and become.phase == pod_stages.RUNNING:
        return _container_status(pod, container, is_ready=True, state=_running(pod, stamp))
    state = _ended(pod, 0, reason="Completed", stamp=stamp)
    is_done = container.restart_policy != "Always"
    return _container_status(pod, container, is_ready=is_done, state=state)


def _container_status(
    pod: pods.Pod, container: pods.Container, *, is_ready: bool, state: Tree
) -> Tree:
    return {
        "name": container.name,
        "image": container.image,
        "imageID": container.image,
        "containerID": _container_id(pod, container.name),
        "ready": is_ready,
        "started": "running" in state,
        "restartCount": 0,
        "state": state,
    }


def _running(pod: pods.Pod, stamp: str) -> Tree:
    return {"running": {"startedAt": pod.status.start_time or stamp}}


def _ended(pod: pods.Pod, code: int, *, reason: str, stamp: str) -> Tree:
    started = pod.status.start_time or stamp
    terminated = {
        "exitCode": code,
        "reason": reason,
        "startedAt": started,
        "finishedAt": stamp,
    }
    return {"terminated": terminated}


def _container_id(pod: pods.Pod, name: str) -> str:
    return "hollow://" + hashlib.sha256(f"{pod.metadata.uid}/{name}".encode()).hexdigest()

"""What a kubelet would write: a pod's status in each phase, a node's status, a node's lease.

Given structs and a time, returns JSON merge patches or documents as plain trees. Lists of conditions are whole, with
the conditions others wrote left as they are. Never sends anything, never decides when.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Iterable
from typing import Any, Final

from dovetail.loops import stages
from dovetail.model import meta, nodes, objects, pods

LEASE_NAMESPACE: Final = "kube-node-lease"
LEASE_SECONDS: Final = 40  # kubelet's nodeLeaseDurationSeconds

Tree = dict[str, Any]


def pod_status(pod: pods.Pod, become: stages.Become, *, now: datetime.datetime) -> Tree:
    """A merge patch of pods/status that fails if somebody else wrote since the pod was read."""
    stamp = timestamp(now)
    status: Tree = {
        "phase": become.phase,
        "reason": become.reason or None,
        "message": become.message or None,
        "startTime": pod.status.start_time or stamp,
        "hostIP": address_of(pod.spec.node_name),
        "hostIPs": [{"ip": address_of(pod.spec.node_name)}],
        "conditions": _conditions(pod, become, stamp),
        "containerStatuses": [_container(pod, one, become=become, stamp=stamp) for one in pod.spec.containers],
    }
    if become.phase == stages.RUNNING:
        status |= {"podIP": address_of(pod.metadata.uid), "podIPs": [{"ip": address_of(pod.metadata.uid)}]}
    if pod.metadata.generation:
        status["observedGeneration"] = pod.metadata.generation
    if pod.spec.init_containers:
        status["initContainerStatuses"] = [
            _init_container(pod, one, become=become, stamp=stamp) for one in pod.spec.init_containers
        ]
    return {"metadata": _unchanged_since(pod.metadata), "status": status}


def node_status(node: nodes.Node, *, now: datetime.datetime) -> Tree:
    """A merge patch of nodes/status that says Ready, as long as nobody else wrote since the node was read."""
    status = {"conditions": node_conditions(node.status.conditions, now=now)}
    return {"metadata": _unchanged_since(node.metadata), "status": status}


def node_conditions(known: Iterable[nodes.NodeCondition] = (), *, now: datetime.datetime) -> list[Tree]:
    """All well; conditions of other types stay."""
    stamp = timestamp(now)
    before = {one.type: one for one in known}
    found = []
    for type_, status, reason in (
        ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID"),
        ("Ready", "True", "KubeletReady"),
    ):
        old = before.pop(type_, None)
        since = stamp if old is None or old.status != status else old.last_transition_time or stamp
        found.append(
            {
                "type": type_,
                "status": status,
                "reason": reason,
                "message": "a hollow node",
                "lastHeartbeatTime": stamp,
                "lastTransitionTime": since,
            }
        )
    return [*(objects.tree_of(one) for one in before.values()), *found]


def is_ready(node: nodes.Node) -> bool:
    """Whether the node's status says so."""
    return any(one.type == "Ready" and one.status == "True" for one in node.status.conditions)


def is_unready(pod: pods.Pod) -> bool:
    """Whether somebody says of a pod that it is not ready."""
    return any(one.type == "Ready" and one.status != "True" for one in pod.status.conditions)


def lease(node: nodes.Node, *, now: datetime.datetime) -> Tree:
    """The whole lease of a node, which goes when its node goes."""
    name = node.metadata.name
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner(node)]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, **renewal(now)["spec"]},
    }


def renewal(now: datetime.datetime) -> Tree:
    """A merge patch of a node's lease."""
    return {"spec": {"renewTime": now.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")}}


def owner(node: nodes.Node) -> Tree:
    """A reference that makes an object go when its node goes."""
    return {"apiVersion": "v1", "kind": "Node", "name": node.metadata.name, "uid": node.metadata.uid}


def timestamp(now: datetime.datetime) -> str:
    """As the API server writes times."""
    return now.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def address_of(name: str) -> str:
    """An address nobody listens on, the same one for the same name."""
    digest = hashlib.sha256(name.encode()).digest()
    return f"10.{digest[0]}.{digest[1]}.{digest[2] % 254 + 1}"


def _unchanged_since(metadata: meta.ObjectMeta) -> Tree:
    return {"resourceVersion": metadata.resource_version, "uid": metadata.uid}


def _conditions(pod: pods.Pod, become: stages.Become, stamp: str) -> list[Tree]:
    """A kubelet's own conditions; PodScheduled and others' stay."""
    is_running = become.phase == stages.RUNNING
    why = "" if is_running else "PodCompleted" if become.phase == stages.SUCCEEDED else "PodFailed"
    ready = "True" if is_running else "False"
    own = {
        "PodReadyToStartContainers": (ready, ""),
        "Initialized": ("True", "PodCompleted" if become.phase == stages.SUCCEEDED else ""),
        "ContainersReady": (ready, why),
        "Ready": (ready, why),
    }
    before = {one.type: one for one in pod.status.conditions}
    found = [objects.tree_of(one) for one in pod.status.conditions if one.type not in own]
    for type_, (status, reason) in own.items():
        old = before.get(type_)
        since = stamp if old is None or old.status != status else old.last_transition_time or stamp
        condition = {"type": type_, "status": status, "lastTransitionTime": since}
        found.append(condition | ({"reason": reason} if reason else {}))
    return found


def _container(pod: pods.Pod, container: pods.Container, *, become: stages.Become, stamp: str) -> Tree:
    if become.phase == stages.RUNNING:
        return _container_status(pod, container, is_ready=True, state=_running(pod, stamp))
    end = next((one for one in become.containers if one.name == container.name), None)
    code = become.exit_code if end is None else end.exit_code
    reason = (end.reason if end is not None else become.reason) or ("Error" if code else "Completed")
    return _container_status(pod, container, is_ready=False, state=_ended(pod, code, reason=reason, stamp=stamp))


def _init_container(pod: pods.Pod, container: pods.Container, *, become: stages.Become, stamp: str) -> Tree:
    """Sidecars live as long as the pod; other init containers have done their work."""
    if container.restart_policy == "Always" and become.phase == stages.RUNNING:
        return _container_status(pod, container, is_ready=True, state=_running(pod, stamp))
    state = _ended(pod, 0, reason="Completed", stamp=stamp)
    is_done = container.restart_policy != "Always"
    return _container_status(pod, container, is_ready=is_done, state=state)


def _container_status(pod: pods.Pod, container: pods.Container, *, is_ready: bool, state: Tree) -> Tree:
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
    began = pod.status.start_time or stamp
    return {"terminated": {"exitCode": code, "reason": reason, "startedAt": began, "finishedAt": stamp}}


def _container_id(pod: pods.Pod, name: str) -> str:
    return "hollow://" + hashlib.sha256(f"{pod.metadata.uid}/{name}".encode()).hexdigest()

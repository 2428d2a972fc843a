"""Two clusters with the same verbs: ours in memory, and a real API server with the real kube-controller-manager.

A script is a list of steps; each step works on either side. Nothing runs pods: a step sets their status, as a kubelet
would. `summary` reduces the objects of a side to what must be equal: status of owners without times, and the multiset
of children with names, labels and hashes made comparable.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from dovetail import timestamps
from dovetail.sim.controllers.object_index import key_of
from tests.sim.controllers import tiny_store
from tests.support import rest

Tree = dict[str, Any]

PATHS = {
    "Pod": "/api/v1/namespaces/{}/pods",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "DaemonSet": "/apis/apps/v1/namespaces/{}/daemonsets",
    "ControllerRevision": "/apis/apps/v1/namespaces/{}/controllerrevisions",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "CronJob": "/apis/batch/v1/namespaces/{}/cronjobs",
}
API_VERSIONS = {
    "Pod": "v1",
    "PersistentVolumeClaim": "v1",
    "ConfigMap": "v1",
    "Job": "batch/v1",
    "CronJob": "batch/v1",
}
OWNERS = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob")
TIMES = ("startTime", "completionTime", "lastScheduleTime", "lastSuccessfulTime")
# Which of these a rollout shows depends on what upstream's cache holds when it looks.
UNDER_WAY = ("NewReplicaSetCreated", "ReplicaSetUpdated", "FoundNewReplicaSet")
IGNORED_CONFIG_MAPS = ("kube-root-ca.crt",)


class Side(Protocol):
    """One of the two clusters, in a namespace of its own."""

    def create(self, tree: Tree) -> None: ...

    def patch(self, kind: str, name: str, patch: Tree) -> None: ...

    def delete(self, kind: str, name: str, propagation: str) -> None: ...

    def set_pod(self, name: str, status: Tree) -> None: ...

    def objects(self) -> list[Tree]: ...

    def now(self) -> datetime.datetime: ...

    def let_pass(self, seconds: float) -> None: ...


class Ours:
    """The controllers on a tiny store under virtual time."""

    def __init__(self) -> None:
        self.cluster = tiny_store.Cluster()
        self.cluster.store.fills_defaults = True

    def create(self, tree: Tree) -> None:
        self.cluster.apply(tree)

    def patch(self, kind: str, name: str, patch: Tree) -> None:
        self.cluster.patch(kind, name, patch)

    def delete(self, kind: str, name: str, propagation: str) -> None:
        self.cluster.delete(kind, name, propagation)

    def set_pod(self, name: str, status: Tree) -> None:
        pod = self.cluster.find("Pod", name)
        self.cluster.store.set_status(key_of(pod), status, uid=pod["metadata"]["uid"])
        self.cluster.settle()

    def objects(self) -> list[Tree]:
        return [tree for kind in PATHS for tree in self.cluster.every(kind)]

    def now(self) -> datetime.datetime:
        return self.cluster.store.now

    def let_pass(self, seconds: float) -> None:
        self.cluster.wait(seconds)


class Theirs:
    """The real controllers. Time passes by itself."""

    def __init__(self, api: rest.Rest, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    def create(self, tree: Tree) -> None:
        if tree["kind"] == "Node":
            self._api.ask("POST", "/api/v1/nodes", tree)
        else:
            self._api.ask("POST", self._path(tree["kind"]), tree)

    def patch(self, kind: str, name: str, patch: Tree) -> None:
        self._api.ask("PATCH", f"{self._path(kind)}/{name}", patch)

    def delete(self, kind: str, name: str, propagation: str) -> None:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        self._api.ask("DELETE", f"{self._path(kind)}/{name}", options)

    def set_pod(self, name: str, status: Tree) -> None:
        self._api.ask("PATCH", f"{self._path('Pod')}/{name}/status", {"status": status})

    def objects(self) -> list[Tree]:
        return [tree for kind in PATHS for tree in self._listed(kind)]

    def now(self) -> datetime.datetime:
        return datetime.datetime.now(datetime.UTC)

    def let_pass(self, seconds: float) -> None:
        """The comparison waits anyway."""

    def _listed(self, kind: str) -> list[Tree]:
        items = self._api.ask("GET", self._path(kind))["items"] or []
        version = API_VERSIONS.get(kind, "apps/v1")
        trees = [tree | {"kind": kind, "apiVersion": version} for tree in items]
        return [tree for tree in trees if tree["metadata"]["name"] not in IGNORED_CONFIG_MAPS]

    def _path(self, kind: str) -> str:
        return PATHS[kind].format(self._namespace)


# Steps


class Step(NamedTuple):
    """Something that happens, in words and as work on a side."""

    words: str
    do: Callable[[Side], None]


def create(tree: Tree) -> Step:
    return Step(f"create {tree['kind']}", lambda side: side.create(json.loads(json.dumps(tree))))


def patch(kind: str, name: str, change: Tree) -> Step:
    return Step(f"patch {kind} {change}", lambda side: side.patch(kind, name, change))


def delete(kind: str, name: str, propagation: str = "Background") -> Step:
    words = f"delete {kind} {propagation}"
    return Step(words, lambda side: side.delete(kind, name, propagation))


def let_pass(seconds: float) -> Step:
    return Step(f"{seconds} s pass", lambda side: side.let_pass(seconds))


def ready(count: int | None = None, *, prefix: str = "") -> Step:
    """Pending pods run and are ready: all, or the first few."""

    def do(side: Side) -> None:
        condition = {
            "type": "Ready",
            "status": "True",
            "lastTransitionTime": timestamps.to_text(side.now()),
        }
        for name in _pods(side, ("Pending",), prefix)[:count]:
            side.set_pod(name, {"phase": "Running", "conditions": [condition]})

    return Step(f"{count or 'all'} {prefix} ready", do)


def end(phase: str, count: int | None = None, *, prefix: str = "", exit_code: int = 0) -> Step:
    """Active pods end: all, or the first few."""

    def do(side: Side) -> None:
        stamp = timestamps.to_text(side.now())
        terminated = {"exitCode": exit_code, "finishedAt": stamp, "startedAt": stamp}
        container = {
            "name": "main",
            "image": "v1",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": terminated},
        }
        for name in _pods(side, ("Pending", "Running"), prefix)[:count]:
            side.set_pod(name, {"phase": phase, "containerStatuses": [container]})

    return Step(f"{count or 'all'} {prefix} {phase}", do)


def kill(count: int = 1, *, prefix: str = "") -> Step:
    """Users delete active pods."""

    def do(side: Side) -> None:
        for name in _pods(side, ("Pending", "Running"), prefix)[:count]:
            side.delete("Pod", name, "Background")

    return Step(f"kill {count} {prefix}", do)


def _pods(side: Side, phases: tuple[str, ...], prefix: str) -> list[str]:
    pods = [tree for tree in side.objects() if tree["kind"] == "Pod"]
    chosen = [
        pod
        for pod in pods
        if pod["status"]["phase"] in phases and not pod["metadata"].get("deletionTimestamp")
    ]
    names = sorted(pod["metadata"]["name"] for pod in chosen)
    return [name for name in names if name.startswith(prefix)]


# What must be equal


def summary(objects: Iterable[Tree]) -> list[str]:
    """One line per object, sorted."""
    trees = list(objects)
    names = _comparable_names(trees)
    lines = []
    for tree in trees:
        line = json.dumps(_line(tree), sort_keys=True)
        for text, replacement in names:
            line = line.replace(text, replacement)
        lines.append(re.sub(r"-[0-9]{7,}", "-MINUTE", line))
    return sorted(lines)


def _line(tree: Tree) -> Tree:
    metadata = tree["metadata"]
    annotations = metadata.get("annotations") or {}
    owners = [reference["kind"] for reference in metadata.get("ownerReferences") or ()]
    line: Tree = {
        "kind": tree["kind"],
        "name": _stable_name(metadata),
        "labels": _without(metadata.get("labels"), "pod-template-generation"),
        "owners": owners,
        "deleted": bool(metadata.get("deletionTimestamp")),
    }
    if tree["kind"] == "Pod":
        spec = tree["spec"]
        line |= {
            "phase": tree["status"]["phase"],
            "annotations": annotations,
            "finalizers": metadata.get("finalizers") or [],
            "hostname": spec.get("hostname"),
            "subdomain": spec.get("subdomain"),
            "claims": _claims(spec),
            "env": [container.get("env") for container in spec["containers"]],
            "affinity": _anonymous(spec.get("affinity")),
        }
    if tree["kind"] == "ReplicaSet":
        line |= {"annotations": annotations, "replicas": tree["spec"]["replicas"]}
    if tree["kind"] in OWNERS:
        line["status"] = _status(tree)
    return line


def _status(tree: Tree) -> Tree:
    status = dict(tree.get("status") or {})
    if "observedGeneration" in status:
        generation = tree["metadata"]["generation"]
        status["observedGeneration"] = status["observedGeneration"] == generation
    for name in TIMES:
        if name in status:
            status[name] = "a time"
    status["conditions"] = sorted(map(_condition, status.get("conditions") or ()))
    status["active"] = status.get("active") or 0
    if isinstance(status["active"], list):
        status["active"] = len(status["active"])
    return status


def _condition(condition: Tree) -> list[str]:
    names = ("type", "status", "reason", "message")
    if condition["reason"] in UNDER_WAY:
        names = ("type", "status")
    return [str(condition.get(name)) for name in names]


def _comparable_names(trees: list[Tree]) -> list[tuple[str, str]]:
    """Texts that differ by nature and what stands for them: hashes, revisions, uids; longest first."""
    names = {}
    for tree in trees:
        metadata = tree["metadata"]
        labels = metadata.get("labels") or {}
        names[metadata["uid"]] = "UID"
        names[metadata["namespace"]] = "NAMESPACE"
        if tree["kind"] == "Pod" and _stable_name(metadata) != metadata["name"]:
            names[metadata["name"]] = "POD"
        if tree["kind"] == "ReplicaSet" and "pod-template-hash" in labels:
            number = metadata["annotations"]["deployment.kubernetes.io/revision"]
            names[labels["pod-template-hash"]] = f"HASH{number}"
        if tree["kind"] == "ControllerRevision":
            for label in ("controller.kubernetes.io/hash", "controller-revision-hash"):
                if label in labels:
                    names[labels[label]] = f"REVISION{tree['revision']}"
    return sorted(names.items(), key=lambda entry: -len(entry[0]))


def _stable_name(metadata: Tree) -> str:
    name = str(metadata["name"])
    has_ordinal = "apps.kubernetes.io/pod-index" in (metadata.get("labels") or {})
    if metadata.get("generateName") and not has_ordinal:
        return f"{metadata['generateName']}*"
    return name


def _claims(spec: Tree) -> list[str]:
    volumes = spec.get("volumes") or ()
    claims = [volume.get("persistentVolumeClaim") or {} for volume in volumes]
    return [claim["claimName"] for claim in claims if claim]


def _anonymous(affinity: Tree | None) -> Any:
    """An affinity without the name of a node: in which order nodes are updated, upstream leaves to chance."""
    text = json.dumps(affinity)
    return json.loads(re.sub(r"agent-node-[a-z]", "NODE", text))


def _without(labels: dict[str, str] | None, *names: str) -> dict[str, str]:
    return {name: value for name, value in (labels or {}).items() if name not in names}

"""A small cluster: the object store without its rules, the controllers on it, virtual time, and pods played by hand.

Implements the Store protocol of the controllers on the real object store, with the real garbage collector. `Cluster` is
what stories talk to: apply, kill, finish, wait. Kubelets and schedulers are played by `start`, `finish` and `fail`. A
story fails if a controller could not read an object.
"""

from __future__ import annotations

import copy
import datetime
from collections.abc import Callable, Iterable
from typing import Any

from dovetail import timestamps
from dovetail.kubetypes import registry
from dovetail.ports import failures
from dovetail.sim.controllers import (
    controller_actions,
    object_index,
    pod_states,
    workload_controllers,
    workload_defaults,
)
from dovetail.sim.controllers.apps import daemon_nodes
from dovetail.sim.controllers.object_index import Key, key_of, uid_of
from dovetail.sim.server import garbage_collector, watchers
from dovetail.sim.server.object_store import Change, ObjectStore
from dovetail.sim.server.served_kinds import ServedKinds

Tree = dict[str, Any]
Admit = Callable[[Tree, "TinyStore"], None]

BEGINNING = datetime.datetime(2026, 3, 2, 12, 0, 0, tzinfo=datetime.UTC)
CLUSTER_SCOPED = {"Node", "Namespace"}


class TinyStore:
    """Objects by key, in an object store that refuses nothing but what is already there."""

    def __init__(self) -> None:
        self.now = BEGINNING
        self.events: list[controller_actions.Record] = []
        self.observers: list[Callable[..., None]] = []
        self.admit: Admit = lambda tree, store: None
        self.fills_defaults = False  # as an API server does; the controllers must not depend on it
        self.shelf = ObjectStore(lambda: self.now)
        self._served = ServedKinds()
        self.collector = garbage_collector.GarbageCollector(self.shelf, self._served.owner_kind)
        self.shelf.listen(self._notify)

    # The Store protocol

    def create(self, tree: Tree) -> Tree:
        key = key_of(tree)
        if key in self.trees:
            raise failures.AlreadyThere(f'{key.kind} "{key.name}" already exists', status=409)
        self.admit(tree, self)
        stored = self._filled(key, tree) if self.fills_defaults else tree
        if key.kind == "Pod":
            stored = stored | {"status": {"phase": "Pending"} | (stored.get("status") or {})}
        return self.shelf.put(self._kind(key), stored).tree

    def patch(self, key: Key, patch: Tree) -> Tree:
        old = self._found(key)
        uid = (patch.get("metadata") or {}).get("uid")
        if uid not in (None, uid_of(old)):
            raise failures.Conflict(f"{key}: another object", status=409)
        return self.shelf.put(self._kind(key), merged(old, patch)).tree

    def set_status(self, key: Key, status: Tree, *, uid: str) -> Tree:
        old = self._found(key)
        if uid != uid_of(old):
            raise failures.Conflict(f"{key}: another object", status=409)
        return self.shelf.put(self._kind(key), old | {"status": status}).tree

    def delete(self, key: Key, *, uid: str = "", propagation: str = "Background") -> None:
        tree = self._found(key)
        if uid and uid != uid_of(tree):
            raise failures.Conflict(f"{key}: another object", status=409)
        self.shelf.delete(self._kind(key), (key.namespace, key.name), propagation=propagation)

    def record(self, event: controller_actions.Record) -> None:
        assert event.reason != "UnreadableObject", event.message
        self.events.append(event)

    # Behind it

    @property
    def trees(self) -> dict[Key, Tree]:
        """All objects."""
        records = [record for _, table in self.shelf.tables() for record in table.all()]
        trees = [record.tree for record in records]
        return {key_of(tree): tree for tree in trees}

    def remove(self, key: Key) -> None:
        """A kubelet confirms that a deleted pod has ended."""
        self.shelf.delete(registry.POD, (key.namespace, key.name), grace_seconds=0)

    def _filled(self, key: Key, tree: Tree) -> Tree:
        """The new object with defaults; some of them are made from its uid."""
        uid = self.shelf.next_uid(self._kind(key), (key.namespace, key.name))
        return workload_defaults.with_defaults(tree | {"metadata": tree["metadata"] | {"uid": uid}})

    def _found(self, key: Key) -> Tree:
        record = self.shelf.find(self._kind(key), (key.namespace, key.name))
        if record is None:
            raise failures.Missing(f'{key.kind} "{key.name}" not found', status=404)
        return record.tree

    def _kind(self, key: Key) -> registry.Kind:
        for resource in self._served.all():
            kind = resource.kind
            if (object_index.group_of(kind.api_version), kind.name) == key[:2]:
                return kind
        raise AssertionError(f"no kind {key}")

    def _notify(self, change: Change) -> None:
        for observer in self.observers:
            observer(change.record.tree, is_deleted=change.event == watchers.DELETED)


class Cluster:
    """A store with its controllers, and the verbs of a story. Everything is in the namespace `default`."""

    def __init__(self) -> None:
        self.store = TinyStore()
        self.controllers = workload_controllers.WorkloadControllers(self.store)
        self.store.observers.append(self.controllers.observe)

    # What users do

    def apply(self, tree: Tree) -> Tree:
        """Creates an object, or sets its spec, labels and annotations; then the controllers act."""
        tree = copy.deepcopy(tree)
        if tree["kind"] not in CLUSTER_SCOPED:
            tree["metadata"].setdefault("namespace", "default")
        key = key_of(tree)
        if key in self.store.trees:
            self.store.patch(key, {"spec": None})
            self.store.patch(key, {name: tree[name] for name in ("metadata", "spec")})
        else:
            self.store.create(tree)
        self.settle()
        return self.store.trees.get(key, tree)

    def patch(self, kind: str, name: str, patch: Tree) -> None:
        self.store.patch(key_of(self.find(kind, name)), patch)
        self.settle()

    def scale(self, kind: str, name: str, replicas: int) -> None:
        self.patch(kind, name, {"spec": {"replicas": replicas}})

    def delete(self, kind: str, name: str, propagation: str = "Background") -> None:
        self.store.delete(key_of(self.find(kind, name)), propagation=propagation)
        self.settle()

    def wait(self, seconds: float) -> None:
        """Lets time pass; the controllers wake when they asked to."""
        end = self.store.now + datetime.timedelta(seconds=seconds)
        while (moment := self.controllers.next_wake_up) is not None and moment <= end:
            self.store.now = max(moment, self.store.now)
            self.settle()
        self.store.now = end
        self.settle()

    def settle(self) -> None:
        for _ in range(100):
            count = self.controllers.settle(self.store.now, limit=20_000)
            assert count < 20_000, "the controllers do not come to rest"
            self.store.collector.collect()
            if self.controllers.is_idle:
                return
        raise AssertionError("the controllers and the garbage collector do not come to rest")

    # What schedulers and kubelets do

    def start(self, *names: str) -> None:
        """Pods run and are ready; all that wait, if none is named. Deleted ones end."""
        for pod in self._chosen(names, self.pods):
            if pod["status"]["phase"] == "Pending" and not _is_deleted(pod):
                place = daemon_nodes.target_of(pod) or f"node-of-{_name(pod)}"
                self._set_pod(pod, phase="Running", is_ready=True, node=place)
        self.settle()

    def unready(self, *names: str) -> None:
        for pod in self._chosen(names, self.pods):
            self._set_pod(pod, phase="Running", is_ready=False)
        self.settle()

    def heal(self) -> None:
        """Pods that run without being ready become ready."""
        for pod in self.pods:
            if pod["status"]["phase"] == "Running" and not pod_states.is_ready(pod):
                self._set_pod(pod, phase="Running", is_ready=True)
        self.settle()

    def finish(self, *names: str) -> None:
        self._end(names, "Succeeded", 0)

    def fail(self, *names: str, exit_code: int = 1) -> None:
        self._end(names, "Failed", exit_code)

    def confirm_deletions(self) -> None:
        """Kubelets end the pods that were deleted."""
        for pod in self.every("Pod"):
            if _is_deleted(pod) and key_of(pod) in self.store.trees:
                self.store.remove(key_of(pod))
        self.settle()

    def run(self, rounds: int = 50) -> None:
        """Pods start and end as they should until nothing changes any more."""
        for _ in range(rounds):
            before = copy.copy(self.store.trees)
            self.start()
            self.heal()
            self.confirm_deletions()
            if self.store.trees == before:
                return
        raise AssertionError(f"still changing after {rounds} rounds")

    # Questions

    @property
    def pods(self) -> list[Tree]:
        """Pods that are not being deleted, by name."""
        return [pod for pod in self.every("Pod") if not _is_deleted(pod)]

    @property
    def pod_names(self) -> list[str]:
        return [_name(pod) for pod in self.pods]

    def every(self, kind: str) -> list[Tree]:
        keys = sorted(key for key in self.store.trees if key.kind == kind)
        return [self.store.trees[key] for key in keys]

    def find(self, kind: str, name: str) -> Tree:
        trees = [tree for tree in self.every(kind) if _name(tree) == name]
        assert trees, f"no {kind} {name}; there are {[_name(tree) for tree in self.every(kind)]}"
        return trees[0]

    def status(self, kind: str, name: str) -> Tree:
        return self.find(kind, name).get("status") or {}

    def condition(self, kind: str, name: str, type_: str) -> tuple[str, str] | None:
        """Status and reason of a condition."""
        for condition in self.status(kind, name).get("conditions") or ():
            if condition["type"] == type_:
                return condition["status"], condition["reason"]
        return None

    def reasons(self, kind: str, name: str) -> list[str]:
        """The reasons of the events about an object, in order."""
        return [
            event.reason
            for event in self.store.events
            if event.about["kind"] == kind and _name(event.about) == name
        ]

    # Behind it

    def _chosen(self, names: Iterable[str], otherwise: list[Tree]) -> list[Tree]:
        chosen = [self.find("Pod", name) for name in names]
        return chosen or otherwise

    def _end(self, names: Iterable[str], phase: str, exit_code: int) -> None:
        for pod in self._chosen(names, self.pods):
            end = {"exitCode": exit_code, "finishedAt": timestamps.to_text(self.store.now)}
            containers = [{"name": "main", "state": {"terminated": end}}]
            self._set_pod(pod, phase=phase, is_ready=False, containers=containers)
        self.settle()

    def _set_pod(
        self,
        pod: Tree,
        *,
        phase: str,
        is_ready: bool,
        node: str = "",
        containers: list[Tree] | None = None,
    ) -> None:
        key = key_of(pod)
        stored = self.store.trees[key]
        if node and not stored["spec"].get("nodeName"):
            self.store.patch(key, {"spec": {"nodeName": node}})
        ready = {
            "type": "Ready",
            "status": str(is_ready),
            "lastTransitionTime": timestamps.to_text(self.store.now),
        }
        status: Tree = {"phase": phase, "conditions": [ready]}
        if containers:
            status["containerStatuses"] = containers
        self.store.set_status(key, status, uid=uid_of(stored))


def merged(tree: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(tree) if isinstance(tree, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def template(app: str, image: str = "v1", **spec: Any) -> Tree:
    """A pod template with a label and one container."""
    containers = [{"name": "main", "image": image}]
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": containers} | spec}


def workload(kind: str, name: str = "web", *, image: str = "v1", **spec: Any) -> Tree:
    """A Deployment, ReplicaSet, StatefulSet or DaemonSet that selects its template's label."""
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template(name, image)}
        | spec,
    }


def job(name: str = "train", **spec: Any) -> Tree:
    """A Job; its pods are not restarted in place."""
    pod_template = {
        "metadata": {},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "v1"}]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": pod_template} | spec,
    }


def node(name: str, *, labels: dict[str, str] | None = None, taints: Any = ()) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"taints": list(taints)},
    }


def _is_running(pod: Tree) -> bool:
    is_bound = bool(pod["spec"].get("nodeName"))
    return is_bound and pod["status"]["phase"] not in ("Succeeded", "Failed")


def _is_deleted(tree: Tree) -> bool:
    return bool(tree["metadata"].get("deletionTimestamp"))


def _name(tree: Tree) -> str:
    return str(tree["metadata"]["name"])

"""A cluster in memory to try fixes on: the API server with its rules and controllers, without a scheduler.

Fixes are applied as people do, patch by patch through the server's own checks, and the engine is asked again about a
replica that is read afresh.
"""

from __future__ import annotations

import datetime
from typing import Any

from dovetail.answer.replica import patches, verdict
from dovetail.answer.replica.replica import Replica
from dovetail.answer.why.fixes import search
from dovetail.answer.why.why_answer import Fix
from dovetail.kubetypes import codec, object_set
from dovetail.model import policy
from dovetail.ports.api import Target
from dovetail.sim.server import api_server, write_rules
from dovetail.sim.workload_store import WorkloadStore

Tree = dict[str, Any]
NAMESPACE = "team"
DRIVER = "gpu.example.com"
GPU = "nvidia.com/gpu"


class Cluster:
    """Objects behind an API server, and the controllers that act on them."""

    def __init__(self, *trees: Tree, policy_: policy.Policy = policy.DEFAULT) -> None:
        self.api = api_server.SimApi(
            namespaces=(NAMESPACE,), is_complete=True, collects_all_kinds=True
        )
        self._controllers = WorkloadStore(self.api)
        self._policy = policy_
        for tree in trees:
            self.put(tree)

    def put(self, tree: Tree) -> None:
        """Creates an object; a pod with a node is bound to it, as a scheduler would."""
        spec = tree.get("spec") or {}
        if tree["kind"] == "Pod" and spec.get("nodeName") in self._node_names():
            self.api.put(tree | {"spec": {**spec, "nodeName": None}}, namespace=NAMESPACE)
            self.bind(tree["metadata"]["name"], spec["nodeName"])
        else:
            self.api.put(tree, namespace=NAMESPACE)
        self.settle()

    def _node_names(self) -> set[str]:
        return {record.struct.metadata.name for record in self._records("Node")}

    def bind(self, name: str, node: str) -> None:
        """Puts a pod onto a node, as a scheduler does."""
        kind = self.api.kind_of({"apiVersion": "v1", "kind": "Pod"})
        binding = {"target": {"kind": "Node", "name": node}}
        self.api.bind(Target(kind, NAMESPACE, name, "binding"), binding)

    def settle(self) -> None:
        """Lets the controllers act until they are done."""
        while not self._controllers.settle():
            pass
        self.api.settle()
        self._controllers.settle()

    def _records(self, kind: str) -> list[Any]:
        return [
            record
            for _, table in self.api.shelf.tables()
            if table.kind.name == kind
            for record in table.all()
        ]

    def replica(self) -> Replica:
        """A replica, read afresh."""
        stored = [
            codec.decode(record.tree)
            for _, table in self.api.shelf.tables()
            for record in table.all()
        ]
        now = self.api.clock.now() + datetime.timedelta(minutes=5)
        return Replica(object_set.of("trial", stored), self._policy, now)

    def fixes(self, name: str) -> tuple[Fix, ...]:
        """What is proposed for a pod."""
        replica = self.replica()
        pod_id = verdict.id_of(replica, NAMESPACE, name)
        assert pod_id is not None
        answer = verdict.verdict(replica, pod_id)
        return search.search(replica, pod_id, answer)

    def apply(self, fix: Fix) -> None:
        """Carries a fix out. Raises what the server answers to a patch that it refuses."""
        for patch in fix.patch:
            self._apply(patch)
            self.settle()

    def _apply(self, patch: patches.Patch) -> None:
        ref = patch.object
        kind = self.api.kind_of({"apiVersion": ref.api_version, "kind": ref.kind})
        target = Target(kind, ref.namespace, ref.name)
        if patch.delete:
            self.api.shelf.delete(kind, (ref.namespace, ref.name), grace_seconds=0)
        elif patch.create is not None:
            self.api.create_object(target._replace(name=""), patch.create)
        else:
            record = self.api.found(target)
            self.api.write(target, write_rules.merged(record.tree, patch.merge))

    def pod_names(self) -> list[str]:
        """The pods that have not ended."""
        return [record.struct.metadata.name for record in self._records("Pod")]

    def starts(self, name: str) -> verdict.Verdict:
        """What becomes of a pod now."""
        replica = self.replica()
        pod_id = verdict.id_of(replica, NAMESPACE, name)
        assert pod_id is not None, f"pod {name} is gone; there are {self.pod_names()}"
        return verdict.verdict(replica, pod_id)

    def tree(self, kind: str, name: str) -> Tree:
        """One object as it is stored."""
        return next(
            record.tree for record in self._records(kind) if record.struct.metadata.name == name
        )


# Objects


def node(name: str, *, labels: Tree | None = None, gpus: int = 8, **spec: Any) -> Tree:
    """A node of 64 cpus, 256Gi and GPUs that a device plugin counts."""
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    if gpus:
        amounts[GPU] = str(gpus)
    amounts |= spec.pop("allocatable", {})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def pod_spec(*, gpus: int = 0, requests: Tree | None = None, **spec: Any) -> Tree:
    """The spec of a pod of one container."""
    resources: Tree = {"requests": requests or {"cpu": "1"}}
    if gpus:
        resources["limits"] = {GPU: str(gpus)}
    container = {"name": "main", "image": "train:1", "resources": resources}
    return {"containers": [container], **spec}


def pod(name: str = "p", *, metadata: Tree | None = None, **spec: Any) -> Tree:
    """A pod of the team."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, **(metadata or {})},
        "spec": pod_spec(**spec),
    }


def workload(kind: str, name: str = "w", *, spec: Tree, **more: Any) -> Tree:
    """A workload of apps or batch whose pods have this spec."""
    version = "batch/v1" if kind in ("Job", "CronJob") else "apps/v1"
    metadata = {"name": name, "namespace": NAMESPACE, **more.pop("metadata", {})}
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    if kind == "Job":
        body: Tree = {"template": template | {"spec": {"restartPolicy": "Never", **spec}}}
    else:
        body = {"selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": body | more}


def gpu_slice(node_name: str, *, count: int = 4, memory: str = "80Gi", **attributes: Any) -> Tree:
    """The GPUs of a node as a driver publishes them."""
    shown = {
        "model": {"string": "H100"},
        "architecture": {"string": "Hopper"},
        **{name: {"string": value} for name, value in attributes.items()},
    }
    devices = [
        {
            "name": f"gpu-{index}",
            "attributes": {**shown, "root": {"string": f"root-{index // 2}"}},
            "capacity": {"memory": {"value": memory}},
        }
        for index in range(count)
    ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node_name}-slice"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node_name,
            "pool": {"name": node_name, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def device_class(name: str = "gpu", *, when: str = f'device.driver == "{DRIVER}"') -> Tree:
    """A class of devices."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": when}}]},
    }


def devices_wanted(*, count: int = 1, when: str = "", class_name: str = "gpu", **more: Any) -> Tree:
    """What a claim asks for."""
    exactly: Tree = {"deviceClassName": class_name, "count": count, **more.pop("exactly", {})}
    if when:
        exactly["selectors"] = [{"cel": {"expression": when}}]
    return {"devices": {"requests": [{"name": "gpus", "exactly": exactly}], **more}}


def claim(name: str = "c", **wanted: Any) -> Tree:
    """A claim that pods name."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": devices_wanted(**wanted),
    }


def template(name: str = "t", **wanted: Any) -> Tree:
    """A template for claims."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"spec": devices_wanted(**wanted)},
    }


def uses(template_name: str = "t") -> Tree:
    """The part of a pod's spec that uses a template."""
    return {
        "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": template_name}],
    }


def priority_class(name: str, value: int, **more: Any) -> Tree:
    """A priority class."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        **more,
    }


def queue(name: str, *, resources: Tree | None = None, **spec: Any) -> Tree:
    """A queue that every namespace may use."""
    return {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "resources": resources or {}, **spec},
    }

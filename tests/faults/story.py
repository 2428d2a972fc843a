"""Hand-written histories for the tests of the checker: verbs that append revisions, one second apart.

A history has three writers: `one` and `two` are our instances, `control` is every controller of others.
"""

from __future__ import annotations

import copy
from typing import Any

from tests.faults import checker_scene
from tests.faults.records import History, Revision, Tree

DRIVER = "gpu.example.com"
RESULT = {"request": "r", "driver": DRIVER}


class HistoryBuilder:
    """Revisions so far."""

    def __init__(self) -> None:
        self.revisions: list[Revision] = []
        self.now = 0.0
        self._objects: dict[tuple[str, str], Tree] = {}

    def history(self) -> History:
        return History(tuple(self.revisions), self.now)

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def put(self, kind: str, tree: Tree, *, by: str = "control") -> None:
        """Stores an object, new or changed."""
        key = checker_scene.key_of(tree)
        tree = copy.deepcopy(tree)
        tree["metadata"].setdefault("uid", f"{kind}-{key}")
        self._objects[kind, key] = tree
        self._append(kind, key, tree, by=by)

    def change(self, kind: str, key: str, *, by: str = "control", **parts: Any) -> None:
        """Merges into top-level parts of a stored object: `status={...}`."""
        tree = copy.deepcopy(self._objects[kind, key])
        for name, part in parts.items():
            tree[name] = {**(tree.get(name) or {}), **part}
        self._objects[kind, key] = tree
        self._append(kind, key, tree, by=by)

    def delete(self, kind: str, key: str, *, by: str = "control") -> None:
        self._append(kind, key, self._objects.pop((kind, key)), by=by, is_deleted=True)

    def _append(
        self, kind: str, key: str, tree: Tree, *, by: str, is_deleted: bool = False
    ) -> None:
        self.now += 1
        number = len(self.revisions) + 101
        self.revisions.append(Revision(number, self.now, kind, key, tree, is_deleted, by))

    # What a cluster is made of.

    def node(self, name: str, **spec: Any) -> None:
        allocatable = {"cpu": "8", "memory": "64Gi", "pods": "10", "example.com/port": "2"}
        self.put(
            "nodes",
            {"metadata": {"name": name}, "spec": spec, "status": {"allocatable": allocatable}},
        )

    def pool(
        self,
        node: str,
        devices: list[Tree],
        *,
        counters: list[Tree] | None = None,
        generation: int = 1,
    ) -> None:
        parts: list[Tree] = [{"devices": devices}] + (
            [{"sharedCounters": counters}] if counters else []
        )
        about = {"name": node, "generation": generation, "resourceSliceCount": len(parts)}
        for index, part in enumerate(parts):
            spec = {"driver": DRIVER, "nodeName": node, "pool": about, **part}
            self.put("resourceslices", {"metadata": {"name": f"{node}-{index}"}, "spec": spec})

    def pod(
        self,
        name: str,
        *,
        claims: tuple[str, ...] = (),
        scheduler: str = "dovetail",
        asks: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        """A pod of one container that asks for resources, and uses claims by their names."""
        spec = {
            "schedulerName": scheduler,
            "containers": [{"name": "main", "resources": {"requests": asks or {}}}],
            "resourceClaims": [{"name": claim, "resourceClaimName": claim} for claim in claims],
            **more,
        }
        self.put("pods", {"metadata": {"name": name, "namespace": "t"}, "spec": spec, "status": {}})

    def claim(self, name: str, *, owner: str = "") -> None:
        meta: Tree = {"name": name, "namespace": "t"}
        if owner:
            uid = self._objects["pods", f"t/{owner}"]["metadata"]["uid"]
            meta["ownerReferences"] = [
                {"kind": "Pod", "controller": True, "name": owner, "uid": uid}
            ]
        self.put("resourceclaims", {"metadata": meta, "spec": {}, "status": {}})

    def allocate(
        self, claim: str, *results: Tree, pods: tuple[str, ...], node: str, by: str = "one"
    ) -> None:
        """Finalizer, then allocation and reservation in one write."""
        self.change(
            "resourceclaims",
            f"t/{claim}",
            metadata={"finalizers": [checker_scene.FINALIZER]},
            by=by,
        )
        status = {
            "allocation": {
                "devices": {"results": [{"pool": node, **RESULT, **result} for result in results]},
                "nodeSelector": selector(node),
            },
            "reservedFor": [self.reference(pod) for pod in pods],
        }
        self.change("resourceclaims", f"t/{claim}", status=status, by=by)

    def reference(self, pod: str) -> Tree:
        return {"resource": "pods", "name": pod, "uid": f"pods-t/{pod}"}

    def bind(self, pod: str, node: str, *, by: str = "one") -> None:
        self.change("pods", f"t/{pod}", spec={"nodeName": node}, by=by)

    def refuse(self, pod: str, text: str, *, by: str = "one") -> None:
        """Condition and event."""
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": text,
        }
        self.change("pods", f"t/{pod}", status={"conditions": [condition]}, by=by)
        about = {"namespace": "t", "name": f"{pod}.{len(self.revisions)}"}
        event = {
            "reason": "FailedScheduling",
            "message": text,
            "involvedObject": {"uid": f"pods-t/{pod}"},
        }
        self.put("events", {"metadata": about, **event}, by=by)

    def release(self, claim: str) -> None:
        """As the controllers do when the last user has gone."""
        self.change("resourceclaims", f"t/{claim}", status={"allocation": None, "reservedFor": []})
        self.change("resourceclaims", f"t/{claim}", metadata={"finalizers": []})

    def lead(self, who: str, *, by: str | None = None) -> None:
        lease = {
            "metadata": {"namespace": "system", "name": "dovetail"},
            "spec": {"holderIdentity": who},
        }
        self.put("leases", lease, by=by or who)


def selector(node: str) -> Tree:
    return {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        ]
    }


def partition(name: str, slices: int) -> Tree:
    """A device that draws on the one counter set."""
    return {
        "name": name,
        "consumesCounters": [{"counterSet": "set", "counters": {"slices": {"value": str(slices)}}}],
    }


def shareable(name: str, memory: str) -> Tree:
    return {
        "name": name,
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": memory}},
    }


def share(device: str, memory: str, *, identity: str) -> Tree:
    return {"device": device, "shareID": identity, "consumedCapacity": {"memory": memory}}

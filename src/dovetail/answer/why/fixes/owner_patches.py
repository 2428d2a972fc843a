"""Which object a person wrote for a pod, where its pod template is, and how a change of it reaches the pod.

Given a replica. Follows the controllers of a pod up to the last: a change belongs there, because controllers revert
what is changed below. Knows which fields an API server lets a writer change in place. Never changes an object.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from dovetail.answer.replica.replica import Replica
from dovetail.answer.why.fixes import tree_paths
from dovetail.answer.why.fixes.tree_paths import Path, Tree
from dovetail.kubetypes import codec, meta, object_set, registry
from dovetail.kubetypes.core import pods
from dovetail.model import gangs
from dovetail.world import events

MOST_OWNERS: Final = 8  # above one pod

# What a question about fixes reads besides what the World is made of: without these, pods of such owners are changed
# only in place, and no priority is proposed.
KINDS: Final = (
    registry.Kind("apps/v1", "Deployment", "deployments", True, codec.Generic),
    registry.Kind("apps/v1", "ReplicaSet", "replicasets", True, codec.Generic),
    registry.Kind("apps/v1", "DaemonSet", "daemonsets", True, codec.Generic),
    registry.Kind("batch/v1", "CronJob", "cronjobs", True, codec.Generic),
    registry.Kind("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", False, codec.Generic),
)


class Way(Enum):
    """How a change of the template reaches the pods that wait."""

    POD = "the pod has no controller: it is changed itself, or created again"
    ROLLOUT = "the controller replaces its pods"
    PODS_DELETED = "the controller recreates the pods once those that wait are deleted"
    RECREATED = "the template cannot be changed: the object is created again, and so are its pods"
    FIXED = "the template is not known: only what can be changed in the pod itself"


class Author(NamedTuple):
    """The object a person wrote, and its pod templates by role."""

    way: Way
    key: object_set.Key | None = None
    templates: tuple[tuple[str, Path], ...] = ()
    # A CronJob is changed for its next Jobs; the Job that waits is created again.
    also: tuple[object_set.Key, Path] | None = None

    def path_of(self, role: str) -> Path | None:
        """Where the template of a role is; of the only one, whatever the role."""
        if len(self.templates) == 1:
            return self.templates[0][1]
        return dict(self.templates).get(role)


_POD_ALONE: Final = Author(Way.POD)
_UNKNOWN: Final = Author(Way.FIXED)
_TEMPLATE: Final[Path] = ("spec", "template")
_RAY_CLUSTER: Final[dict[str, Path]] = {
    "RayCluster": ("spec",),
    "RayJob": ("spec", "rayClusterSpec"),
    "RayService": ("spec", "rayClusterConfig"),
}
_TRAINING: Final = frozenset(gangs.KUBEFLOW)
_WAYS: Final = {
    ("apps", "Deployment"): Way.ROLLOUT,
    ("apps", "DaemonSet"): Way.ROLLOUT,
    ("apps", "ReplicaSet"): Way.PODS_DELETED,  # it keeps the pods it has
    ("apps", "StatefulSet"): Way.PODS_DELETED,  # in order, it waits for the pod that cannot start
    ("batch", "Job"): Way.RECREATED,
    ("jobset.x-k8s.io", "JobSet"): Way.RECREATED,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): Way.ROLLOUT,
    ("ray.io", "RayCluster"): Way.PODS_DELETED,
    ("ray.io", "RayJob"): Way.RECREATED,
    ("ray.io", "RayService"): Way.ROLLOUT,
    **{("kubeflow.org", kind): Way.RECREATED for kind in _TRAINING},
}
_JOB: Final = registry.JOB.unique_name
_MUTABLE_JOB: Final = frozenset(  # batch/v1, of a Job that runs
    {"parallelism", "suspend", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"}
)
# Kinds whose spec cannot be changed, except for these fields.
_MUTABLE_FIELDS: Final[dict[str, frozenset[str]]] = {
    registry.CLAIM.unique_name: frozenset(),
    registry.TEMPLATE.unique_name: frozenset(),
    registry.VOLUME_CLAIM.unique_name: frozenset({"resources"}),
    registry.POD_GROUP.unique_name: frozenset(),
    _JOB: _MUTABLE_JOB,
    registry.JOB_SET.unique_name: frozenset({"suspend"}),
    registry.RAY_JOB.unique_name: frozenset({"suspend"}),
    **{kind: frozenset() for kind in _TRAINING},
}


class Authors:
    """The authors of pods of one replica. Valid while its objects are the same."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._authors: dict[str, Author] = {}

    def of(self, pod: pods.Pod) -> Author:
        """The object that a person wrote for a pod."""
        pod_id = events.pod_id(pod)
        author = self._authors.get(pod_id)
        if author is None:
            author = self._authors[pod_id] = self._topmost(pod.metadata)
        return author

    def pods_of(self, author: Author, namespace: str) -> list[pods.Pod]:
        """The pods of an author that have not ended."""
        return [
            pod
            for pod in self._replica.world.pods.values()
            if pod.metadata.namespace == namespace
            and pod.metadata.owner_references
            and pod.status.phase not in pods.TERMINAL_PHASES
            and self.of(pod).key == author.key
        ]

    def _topmost(self, metadata: meta.ObjectMeta) -> Author:
        chain: list[codec.Stored] = []
        owner = _controller(metadata)
        if owner is None:
            return _POD_ALONE
        while owner is not None and len(chain) < MOST_OWNERS:
            kind = object_set.unique_kind(owner.api_version, owner.kind)
            stored = self._replica.get(object_set.Key(kind, metadata.namespace, owner.name))
            if stored is None:
                return _UNKNOWN
            chain.append(stored)
            owner = _controller(stored.struct.metadata)
        return _author(chain)


def _controller(metadata: meta.ObjectMeta) -> meta.OwnerReference | None:
    return next((owner for owner in metadata.owner_references if owner.controller), None)


def _author(chain: list[codec.Stored]) -> Author:
    top = chain[-1]
    if top.struct.kind == "CronJob" and len(chain) > 1:
        job = object_set.key_of(chain[-2].struct)
        path: Path = ("spec", "jobTemplate", *_TEMPLATE)
        also = (object_set.key_of(top.struct), path)
        return Author(Way.RECREATED, job, (("", _TEMPLATE),), also)
    group = top.struct.api_version.rpartition("/")[0]
    way = _WAYS.get((group, top.struct.kind))
    if way is None:
        return _UNKNOWN
    templates = tuple(_templates(top.struct.kind, tree_paths.tree_of(top)).items())
    return Author(way, object_set.key_of(top.struct), templates) if templates else _UNKNOWN


def _templates(kind: str, tree: Tree) -> dict[str, Path]:
    """The pod templates of an owner, by role."""
    if kind == "JobSet":
        jobs = tree_paths.objects(tree, ("spec", "replicatedJobs"))
        return {
            str(job.get("name")): ("spec", "replicatedJobs", place, "template", *_TEMPLATE)
            for place, job in jobs
        }
    if kind == "LeaderWorkerSet":
        base: Path = ("spec", "leaderWorkerTemplate")
        worker: Path = (*base, "workerTemplate")
        leader: Path = (*base, "leaderTemplate")
        return {
            gangs.LEADER: leader if tree_paths.at(tree, leader) else worker,
            gangs.WORKER: worker,
        }
    if kind in _TRAINING:
        return _training_templates(tree)
    if kind in _RAY_CLUSTER:
        return _ray_templates(tree, _RAY_CLUSTER[kind])
    return {"": _TEMPLATE}


def _training_templates(tree: Tree) -> dict[str, Path]:
    spec = _spec(tree)
    return {
        role.lower(): ("spec", field, role, "template")
        for field, roles in spec.items()
        if field.endswith("ReplicaSpecs") and isinstance(roles, dict)
        for role in roles
    }


def _ray_templates(tree: Tree, base: Path) -> dict[str, Path]:
    workers = tree_paths.objects(tree, (*base, "workerGroupSpecs"))
    templates: dict[str, Path] = {"headgroup": (*base, "headGroupSpec", "template")}
    for place, group in workers:
        name = str(group.get("groupName"))
        templates[name] = (*base, "workerGroupSpecs", place, "template")
    return templates


def role_of(pod: pods.Pod) -> str:
    """The role of a pod in its workload, by the labels that controllers write; empty where there is but one."""
    labels = pod.metadata.labels
    if job := labels.get(gangs.JOBSET_JOB):
        return job
    if gangs.LWS_LABEL in labels:
        return gangs.LEADER if labels.get(gangs.LWS_WORKER, "0") == "0" else gangs.WORKER
    if role := labels.get(gangs.KUBEFLOW_TYPE) or labels.get(gangs.KUBEFLOW_ROLE):
        return role.lower()
    return labels.get(gangs.RAY_GROUP, "")


def is_mutable(key: object_set.Key, before: Tree, after: Tree) -> bool:
    """Whether an API server lets a writer turn the one into the other."""
    old_spec, new_spec = _spec(before), _spec(after)
    if key.kind == registry.POD.unique_name:
        return _is_mutable_pod(old_spec, new_spec)
    fields = _MUTABLE_FIELDS.get(key.kind)
    if fields is None:
        return True
    changed = {
        name
        for name in old_spec.keys() | new_spec.keys()
        if old_spec.get(name) != new_spec.get(name)
    }
    return changed <= fields


def _spec(tree: Tree) -> Tree:
    spec = tree.get("spec")
    return spec if isinstance(spec, dict) else {}


def _is_mutable_pod(old_spec: Tree, new_spec: Tree) -> bool:
    """Tolerations may be added and gates removed; labels and annotations are free."""
    changed = {
        name
        for name in old_spec.keys() | new_spec.keys()
        if old_spec.get(name) != new_spec.get(name)
    }
    if not changed <= {"tolerations", "schedulingGates"}:
        return False
    new_tolerations = new_spec.get("tolerations") or ()
    old_gates = old_spec.get("schedulingGates") or ()
    has_all = all(entry in new_tolerations for entry in old_spec.get("tolerations") or ())
    adds_gate = any(gate not in old_gates for gate in new_spec.get("schedulingGates") or ())
    return has_all and not adds_gate

"""From what a question names to the pods it is about: a pod, or the pods that a workload owns and that wait.

Given a replica. Owners are followed downwards by owner references, any kind, any depth. Never decides.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from dovetail.answer.replica.patches import ObjectRef
from dovetail.answer.replica.replica import Replica
from dovetail.answer.why import near_values
from dovetail.answer.why.evidence.sources import object_events
from dovetail.kubetypes import codec, object_set, registry
from dovetail.kubetypes.core import pods
from dovetail.world import events

POD: Final = "Pod"
MOST_LEVELS: Final = 8  # of owners above a pod
# Workloads that scheduling itself does not read.
MORE_KINDS: Final = (
    registry.Kind("apps/v1", "Deployment", "deployments", True, codec.Generic),
    registry.Kind("apps/v1", "ReplicaSet", "replicasets", True, codec.Generic),
    registry.Kind("apps/v1", "DaemonSet", "daemonsets", True, codec.Generic),
    registry.Kind("batch/v1", "CronJob", "cronjobs", True, codec.Generic),
)
_SHORT_NAMES: Final = {
    "po": "pod",
    "deploy": "deployment",
    "rs": "replicaset",
    "sts": "statefulset",
    "ds": "daemonset",
    "cj": "cronjob",
    "lws": "leaderworkerset",
}


def named(replica: Replica, word: str, name: str, namespace: str) -> ObjectRef | None:
    """The object that a word for its kind and a name mean; None if there is none.

    A pod that its workload could not create means that workload.
    """
    kinds = _kinds(word)
    for kind in kinds:
        key = object_set.Key(_unique(kind), namespace, name)
        stored = replica.get(key)
        if stored is not None:
            return ObjectRef(
                api_version=kind.api_version, kind=kind.name, namespace=namespace, name=name
            )
    return _refused(replica, name, namespace) if registry.POD in kinds else None


def _refused(replica: Replica, name: str, namespace: str) -> ObjectRef | None:
    """The workload that could not create a pod of this name, by its events; None where none says so."""
    for kind, owner in object_events.refused_creations(replica, namespace, name):
        subject = named(replica, kind, owner, namespace) if kind != POD else None
        if subject is not None:
            return subject
    return None


def missing(replica: Replica, word: str, name: str, namespace: str) -> str:
    """What is wrong with a name that means no object, and what was probably meant."""
    kinds = _kinds(word)
    if not kinds:
        return f'"{word}" is no kind of workload; known: {", ".join(_words())}'
    names: dict[str, set[str]] = defaultdict(set)  # namespaces by name
    for kind in kinds:
        for stored in replica.listed(_unique(kind)):
            names[stored.struct.metadata.name].add(stored.struct.metadata.namespace)
    kind_name = kinds[0].name.lower()
    text = f"{kind_name} {namespace}/{name} does not exist"
    if name in names:
        return f"{text}; there is one in namespace {min(names[name])}: give -n {min(names[name])}"
    near = near_values.nearest(name, [key for key, places in names.items() if namespace in places])
    return f"{text}; did you mean {near}?" if near else text


def _kinds(word: str) -> list[registry.Kind]:
    """The kinds that a word means: singular, plural, short, with or without the group."""
    wanted, _, group = _SHORT_NAMES.get(word.lower(), word.lower()).partition(".")
    return [
        kind
        for kind in (*registry.ALL, *MORE_KINDS)
        if kind.is_namespaced
        and wanted in (kind.name.lower(), kind.plural)
        and (not group or group == kind.group)
        and kind in _ASKED
    ]


def _words() -> list[str]:
    return list(dict.fromkeys(kind.name.lower() for kind in _ASKED))


def _unique(kind: registry.Kind) -> str:
    return object_set.unique_kind(kind.api_version, kind.name)


_ASKED: Final = (registry.POD, *registry.OWNERS, *registry.PARENTS, *MORE_KINDS)


def pod_of(replica: Replica, subject: ObjectRef) -> pods.Pod | None:
    """The pod to ask about: the subject itself, or the first pod of a workload that waits; None if none does."""
    if subject.kind == POD:
        return replica.pod(subject.namespace, subject.name)
    owned = owned_pods(replica, subject)
    waiting = [pod for pod in owned if is_waiting(pod)]
    return min(waiting, key=_name, default=None)


def owned_pods(replica: Replica, subject: ObjectRef) -> list[pods.Pod]:
    """The pods that a workload owns, directly or through objects it owns."""
    owner = replica.get(subject.key)
    if owner is None:
        return []
    children: dict[str, list[str]] = defaultdict(list)
    pods_by_owner: dict[str, list[pods.Pod]] = defaultdict(list)
    for kind in (*registry.ALL, *MORE_KINDS):
        for stored in replica.listed(_unique(kind), namespace=subject.namespace):
            struct = stored.struct
            for reference in struct.metadata.owner_references:
                if isinstance(struct, pods.Pod):
                    pods_by_owner[reference.uid].append(struct)
                else:
                    children[reference.uid].append(struct.metadata.uid)
    owned: list[pods.Pod] = []
    uids = [owner.struct.metadata.uid]
    for _ in range(MOST_LEVELS):
        owned += [pod for uid in uids for pod in pods_by_owner[uid]]
        uids = [child for uid in uids for child in children[uid]]
    return owned


def is_waiting(pod: pods.Pod) -> bool:
    """Whether a pod has no node yet, and no end."""
    is_over = pod.status.phase in pods.TERMINAL_PHASES
    return not pod.spec.node_name and not is_over and pod.metadata.deletion_timestamp is None


def waiting_pods(replica: Replica, namespace: str | None = None) -> list[pods.Pod]:
    """Every pod that waits, of one namespace or all, by name."""
    return sorted(
        (
            pod
            for pod in replica.world.pending()
            if namespace in (None, pod.metadata.namespace) and is_waiting(pod)
        ),
        key=_name,
    )


def _name(pod: pods.Pod) -> tuple[str, str]:
    return events.key_of(pod)

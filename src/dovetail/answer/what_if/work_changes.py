"""Changes of work: another priority, work that is over, work that does not exist yet.

Given a replica; returns edits. A workload is named by kind, namespace and name; its pods are those it owns, directly or
through another object, and those of the gang of that name. Never decides what starts.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dovetail import errors
from dovetail.answer.replica.replica import Edit, Replica
from dovetail.answer.what_if import changes, displaced_pods, effect, near_names
from dovetail.answer.what_if.effect import Effect
from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.model import reservations
from dovetail.world import events

TEMPLATE_HASH: Final = "pod-template-hash"  # label of a Deployment's pods


def prioritised(replica: Replica, change: changes.SetPriority) -> Effect:
    """Another priority of all pods of a workload, running or not."""
    members = pods_of(replica, change.work)
    edits: list[Edit] = []
    for pod in members:
        stored = replica.get(object_set.key_of(pod))
        assert stored is not None, "a pod of the World that was never stored"
        spec = msgspec.structs.replace(pod.spec, priority=change.priority)
        edits.append(effect.changed(stored, msgspec.structs.replace(pod, spec=spec)))
    before = sorted({pod.spec.priority or 0 for pod in members})
    text = " and ".join(map(str, before))
    number = effect.counted(len(members), "pod")
    return Effect(
        edits,
        f"{change.work}: {number} as if submitted with priority {change.priority} instead of {text}",
    )


def ended(replica: Replica, change: changes.EndWork) -> Effect:
    """The workload is over: its pods and what owns them are gone, and nothing is created again."""
    members = pods_of(replica, change.work)
    edits = [effect.deleted(pod) for pod in members]
    made_claims: set[object_set.Key] = set()
    for pod in members:
        for namespace, name in reservations.used_claims(pod):
            key = object_set.Key(registry.CLAIM.unique_name, namespace, name)
            stored = replica.get(key)
            if stored is None or not isinstance(stored.struct, claims.ResourceClaim):
                continue
            if reservations.is_made_for(stored.struct, pod):
                made_claims.add(key)
    edits += [Edit(key, None) for key in sorted(made_claims)]
    for edit in displaced_pods.released(replica, members):
        if edit.key not in made_claims:
            edits.append(edit)
    if (owner := _owner_key(replica, change.work)) is not None:
        edits.append(Edit(owner, None))
    running = sum(bool(pod.spec.node_name) for pod in members)
    number = effect.counted(len(members), "pod")
    return Effect(edits, f"{change.work} ends now, with {number}, {running} running")


def submitted(replica: Replica, change: changes.NewWork) -> Effect:
    """Objects that do not exist yet, with the pods that controllers create for them."""
    edits: list[Edit] = []
    count = 0
    for stored in change.objects:
        key = object_set.key_of(stored.struct)
        if replica.get(key) is not None:
            raise errors.InputError(
                f"{change.file}: {key} exists already; give it another name, or leave it out"
            )
        edits.append(Edit(key, stored))
        count += isinstance(stored.struct, pods.Pod)
    if not count:
        return Effect(edits, f"{change.file}: {effect.counted(len(edits), 'object')}, no pods")
    return Effect(edits, f"{change.file} submitted now: {effect.counted(count, 'pod')}")


def pods_of(replica: Replica, work: changes.Work) -> list[pods.Pod]:
    """The pods of a workload that have not ended, by name. Raises InputError where there are none."""
    world = replica.world
    in_namespace = [
        pod
        for pod in world.pods.values()
        if pod.metadata.namespace == work.namespace and pod.status.phase not in pods.TERMINAL_PHASES
    ]
    by_gang = set(world.gangs.members((work.namespace, f"{work.kind}/{work.name}")))
    members = [
        pod
        for pod in in_namespace
        if events.pod_id(pod) in by_gang or work.name in _names(pod, work.kind)
    ]
    if members:
        return sorted(members, key=lambda pod: pod.metadata.name)
    known = sorted({name for pod in in_namespace for name in _names(pod, work.kind)})
    if not in_namespace:
        namespaces = {pod.metadata.namespace for pod in world.pods.values()}
        raise near_names.unknown("namespace with pods", work.namespace, namespaces)
    what = work.kind if work.kind == changes.POD else f"{work.kind} with pods"
    where = f" in namespace {work.namespace}"
    raise near_names.unknown(what, work.name, known, where=where)


def _names(pod: pods.Pod, kind: str) -> set[str]:
    """Under which names of a kind the pod is known."""
    if kind == changes.POD:
        return {pod.metadata.name}
    names: set[str] = set()
    for owner in pod.metadata.owner_references:
        if owner.kind.lower() == kind:
            names.add(owner.name)
        template = pod.metadata.labels.get(TEMPLATE_HASH)
        if kind == "deployment" and owner.kind == "ReplicaSet" and template:
            names.add(owner.name.removesuffix(f"-{template}"))
    return names


def _owner_key(replica: Replica, work: changes.Work) -> object_set.Key | None:
    """The object that owns the pods, where the replica has it."""
    for kind in (*registry.OWNERS, *registry.PARENTS):
        if kind.name.lower() == work.kind:
            key = object_set.Key(kind.unique_name, work.namespace, work.name)
            if replica.get(key) is not None:
                return key
    return None

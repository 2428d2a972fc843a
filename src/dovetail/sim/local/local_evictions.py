"""What becomes of pods that have to yield in the cluster in memory: they go at once, and what they held is given back.

A pod whose controller would make another is there again, new and waiting; one without a controller is gone. Given a
cluster and evictions; answers the cluster afterwards. Never chooses who yields.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import msgspec

from dovetail.kubetypes import codec
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.model import plan, reservations
from dovetail.sim.local import local_cluster
from dovetail.sim.server import controllers


def evicted(
    cluster: local_cluster.Cluster, evictions: Iterable[plan.Eviction], *, now: str
) -> local_cluster.Cluster:
    """The cluster without these pods, and with those that take their place."""
    for one in evictions:
        key = local_cluster.Key("Pod", one.pod.namespace, one.pod.name)
        record = cluster.records.get(key)
        if record is None:
            continue
        stored = local_cluster.decoded(record)
        cluster = local_cluster.delete(cluster, key) or cluster
        cluster = given_back(cluster, (stored,), now)
        if any(owner.controller for owner in stored.struct.metadata.owner_references):
            cluster = local_cluster.written(cluster, [_anew(stored)], now=now)
            made = local_cluster.Record(
                cluster.records[key].document, record.applied
            )  # its manifest is still its own
            cluster = msgspec.structs.replace(cluster, records={**cluster.records, key: made})
    return cluster


def nominated(
    cluster: local_cluster.Cluster, nominations: Iterable[plan.Nomination]
) -> Iterator[codec.Stored]:
    """Pods that wait for a node kept for them, as they say it."""
    for one in nominations:
        stored = local_cluster.get(
            cluster, local_cluster.Key("Pod", one.pod.namespace, one.pod.name)
        )
        if stored is not None and isinstance(stored.struct, pods.Pod):
            status = msgspec.structs.replace(stored.struct.status, nominated_node_name=one.node)
            yield codec.replace(stored, msgspec.structs.replace(stored.struct, status=status))


def given_back(
    cluster: local_cluster.Cluster, gone: Collection[codec.Stored], stamp: str
) -> local_cluster.Cluster:
    """The cluster after the claim controller saw that these pods have ended, and the scheduler that a group has.

    A user that is not here keeps what it reserved: a snapshot need not hold every pod.
    """
    ended = {stored.struct.metadata.uid for stored in gone}
    emptied = _emptied(cluster, gone)
    for stored in list(_held_by(cluster, ended, emptied)):
        claim = stored.struct
        assert isinstance(claim, claims.ResourceClaim)
        namespace = claim.metadata.namespace
        left = {user.uid for user in claim.status.reserved_for if _is_of(user, namespace, emptied)}
        staying = {user.uid for user in claim.status.reserved_for} - ended - left
        owner = controllers.owner_pod(claim)
        if owner is not None and owner.uid in ended and not staying:
            cluster = local_cluster.delete(cluster, local_cluster.key_of(claim)) or cluster
            continue
        *_, free = controllers.releases(stored.tree, staying)
        cluster = local_cluster.written(cluster, [codec.decode(free)], now=stamp)
    return cluster


def _emptied(
    cluster: local_cluster.Cluster, gone: Collection[codec.Stored]
) -> set[tuple[str, str]]:
    """The PodGroups of these pods none of whose pods is on a node any more, by namespace and name."""
    found = {place for stored in gone if (place := _group_of(stored.struct)) is not None}
    for stored in local_cluster.listed(cluster, "Pod") if found else ():
        pod = stored.struct
        if (
            isinstance(pod, pods.Pod)
            and pod.spec.node_name
            and pod.status.phase not in pods.TERMINAL_PHASES
        ):
            found.discard(_group_of(pod) or ("", ""))
    return found


def _group_of(pod: codec.Object) -> tuple[str, str] | None:
    native = pod.spec.scheduling_group if isinstance(pod, pods.Pod) else None
    return (
        (pod.metadata.namespace, native.pod_group_name)
        if native is not None and native.pod_group_name
        else None
    )


def _is_of(
    user: claims.ResourceClaimConsumerReference, namespace: str, groups: set[tuple[str, str]]
) -> bool:
    return reservations.is_group(user) and (namespace, user.name) in groups


def _held_by(
    cluster: local_cluster.Cluster, users: set[str], groups: set[tuple[str, str]]
) -> Iterator[codec.Stored]:
    """Claims that these pods or groups use or that were made for the pods."""
    for stored in local_cluster.listed(cluster, "ResourceClaim") if users else ():
        claim = stored.struct
        if isinstance(claim, claims.ResourceClaim):
            owner = controllers.owner_pod(claim)
            reserved, namespace = claim.status.reserved_for, claim.metadata.namespace
            is_held = any(user.uid in users or _is_of(user, namespace, groups) for user in reserved)
            if is_held or (owner is not None and owner.uid in users):
                yield stored


def _anew(stored: codec.Stored) -> codec.Stored:
    """The pod a controller makes in place of one that went. Under its name: whoever looks finds it again."""
    tree = stored.tree
    metadata = {
        name: value
        for name, value in tree["metadata"].items()
        if name not in ("uid", "resourceVersion")
    }
    spec = {name: value for name, value in tree["spec"].items() if name != "nodeName"}
    return codec.decode(tree | {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})

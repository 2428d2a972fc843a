"""What becomes of pods that have to yield in the cluster in memory: they go at once, and what they held is given back.

A pod whose controller would make another is there again, new and waiting; one without a controller is gone. Given a
cluster and evictions; answers the cluster afterwards. Never chooses who yields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from dovetail.model import claims, objects, plan, pods
from dovetail.sim import caretaking
from dovetail.sim import cluster as clusters


def evicted(cluster: clusters.Cluster, evictions: Iterable[plan.Eviction], *, now: str) -> clusters.Cluster:
    """The cluster without these pods, and with those that take their place."""
    for one in evictions:
        key = clusters.Key("Pod", one.pod.namespace, one.pod.name)
        record = cluster.records.get(key)
        if record is None:
            continue
        stored = clusters.decoded(record)
        cluster = clusters.delete(cluster, key) or cluster
        cluster = given_back(cluster, {stored.struct.metadata.uid}, now)
        if any(owner.controller for owner in stored.struct.metadata.owner_references):
            cluster = clusters.written(cluster, [_anew(stored)], now=now)
            made = clusters.Record(cluster.records[key].document, record.applied)  # its manifest is still its own
            cluster = msgspec.structs.replace(cluster, records={**cluster.records, key: made})
    return cluster


def nominated(cluster: clusters.Cluster, nominations: Iterable[plan.Nomination]) -> Iterator[objects.Stored]:
    """Pods that wait for a node kept for them, as they say it."""
    for one in nominations:
        stored = clusters.get(cluster, clusters.Key("Pod", one.pod.namespace, one.pod.name))
        if stored is not None and isinstance(stored.struct, pods.Pod):
            status = msgspec.structs.replace(stored.struct.status, nominated_node_name=one.node)
            yield objects.replace(stored, msgspec.structs.replace(stored.struct, status=status))


def given_back(cluster: clusters.Cluster, ended: set[str], stamp: str) -> clusters.Cluster:
    """The cluster after the claim controller saw that pods of these uids have ended.

    A user that is not here keeps what it reserved: a snapshot need not hold every pod.
    """
    for stored in list(_held_by(cluster, ended)):
        claim = stored.struct
        assert isinstance(claim, claims.ResourceClaim)
        staying = {user.uid for user in claim.status.reserved_for} - ended
        owner = caretaking.made_for(claim)
        if owner is not None and owner.uid in ended and not staying:
            cluster = clusters.delete(cluster, clusters.key_of(claim)) or cluster
            continue
        *_, free = caretaking.given_back(stored.tree, staying)
        cluster = clusters.written(cluster, [objects.decode(free)], now=stamp)
    return cluster


def _held_by(cluster: clusters.Cluster, users: set[str]) -> Iterator[objects.Stored]:
    """Claims that these pods use or that were made for them."""
    for stored in clusters.listed(cluster, "ResourceClaim") if users else ():
        claim = stored.struct
        if isinstance(claim, claims.ResourceClaim):
            owner = caretaking.made_for(claim)
            if (owner is not None and owner.uid in users) or any(u.uid in users for u in claim.status.reserved_for):
                yield stored


def _anew(stored: objects.Stored) -> objects.Stored:
    """The pod a controller makes in place of one that went. Under its name: whoever looks finds it again."""
    tree = stored.tree
    metadata = {name: value for name, value in tree["metadata"].items() if name not in ("uid", "resourceVersion")}
    spec = {name: value for name, value in tree["spec"].items() if name != "nodeName"}
    return objects.decode(tree | {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})

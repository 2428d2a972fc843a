"""Makes the claims that pods of the cluster in memory name templates for, as kube-controller-manager would.

A pod gets a claim of its own, unless its PodGroup lists the same claim: then all pods of the group that do share one,
made for the group. Given a cluster; answers what to store. Never allocates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from dovetail import errors
from dovetail.kubetypes import codec, meta, names, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.kubetypes.workloads import owners
from dovetail.model import reservations
from dovetail.sim.local import local_cluster

POD_CLAIM_ANNOTATION: Final = "resource.kubernetes.io/pod-claim-name"


class Owner(NamedTuple):
    """For whom a claim is made."""

    api_version: str
    kind: str
    metadata: meta.ObjectMeta


def claims_of(cluster: local_cluster.Cluster) -> Iterator[codec.Stored]:
    """Claims for pods that name templates, each followed by the pod that records its name."""
    shared: set[str] = set()
    for stored in local_cluster.listed(cluster, "Pod"):
        pod = stored.struct
        if not isinstance(pod, pods.Pod) or pod.status.phase in ("Succeeded", "Failed"):
            continue
        made = list(pod.status.resource_claim_statuses)
        known = {status.name for status in made}
        for entry in pod.spec.resource_claims:
            template = _template(cluster, pod, entry) if entry.name not in known else None
            if template is None:
                continue
            owner = _owner(cluster, pod, entry)
            claim = _from_template(owner, entry.name, template)
            name = claim.metadata.name
            made.append(pods.PodResourceClaimStatus(name=entry.name, resource_claim_name=name))
            is_there = (
                local_cluster.get(cluster, local_cluster.key_of(claim)) is not None
                or name in shared
            )
            if owner.kind == reservations.GROUP_KIND and is_there:
                continue
            shared.add(name)
            yield codec.store(claim)
        if len(made) > len(known):
            status = msgspec.structs.replace(pod.status, resource_claim_statuses=tuple(made))
            yield codec.replace(stored, msgspec.structs.replace(pod, status=status))


def generated(base: str, *parts: str) -> str:
    """The name a server would make of a generateName: five letters more, the same ones for the same parts."""
    alphabet = "bcdfghjklmnpqrstvwxz2456789"  # apimachinery's safe letters and digits
    digest = hashlib.sha256("/".join(parts).encode()).digest()
    return base[: names.MAX_GENERATED_BASE] + "".join(
        alphabet[byte % len(alphabet)] for byte in digest[:5]
    )


def _owner(cluster: local_cluster.Cluster, pod: pods.Pod, entry: pods.PodResourceClaim) -> Owner:
    """The PodGroup that lists the claim, else the pod."""
    native = pod.spec.scheduling_group
    if native is not None and native.pod_group_name:
        key = local_cluster.Key(
            reservations.GROUP_KIND, pod.metadata.namespace, native.pod_group_name
        )
        group = _group(local_cluster.get(cluster, key))
        if group is not None and entry in group.spec.resource_claims:
            return Owner(group.api_version, group.kind, group.metadata)
    return Owner("v1", "Pod", pod.metadata)


def _group(stored: codec.Stored | None) -> owners.PodGroup | None:
    if stored is None or not stored.struct.api_version.startswith(f"{reservations.GROUP_API}/"):
        return None
    try:
        return codec.decode_struct(owners.PodGroup, stored.document)
    except errors.InputError:
        return None


def _template(
    cluster: local_cluster.Cluster, pod: pods.Pod, entry: pods.PodResourceClaim
) -> claims.ResourceClaimTemplate | None:
    name = entry.resource_claim_template_name
    found = (
        local_cluster.get(
            cluster, local_cluster.Key("ResourceClaimTemplate", pod.metadata.namespace, name)
        )
        if name
        else None
    )
    return (
        found.struct if found and isinstance(found.struct, claims.ResourceClaimTemplate) else None
    )


def _from_template(
    owner: Owner, entry: str, template: claims.ResourceClaimTemplate
) -> claims.ResourceClaim:
    wanted = template.spec
    base = f"{owner.metadata.name}-{entry}-"[: names.MAX_GENERATED_BASE]
    reference = meta.OwnerReference(
        api_version=owner.api_version,
        kind=owner.kind,
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )
    metadata = meta.ObjectMeta(
        name=generated(base, owner.metadata.uid, entry),
        generate_name=base,
        namespace=owner.metadata.namespace,
        labels=wanted.metadata.labels,
        annotations=wanted.metadata.annotations | {POD_CLAIM_ANNOTATION: entry},
        owner_references=(reference,),
    )
    return claims.ResourceClaim(
        api_version=registry.RESOURCE_V1, kind="ResourceClaim", metadata=metadata, spec=wanted.spec
    )

"""Who holds which silicon of a node: claims and pods, by the uuid of a GPU or MIG device.

Given the claims that are prepared and the pods that use them. A claim that several pods use has several holders; one
whose pods are not known has one, without a pod. Claims with admin access hold nothing. Never reads a claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dovetail.node.claims import checkpoint


class HolderPod(NamedTuple):
    """A pod as a claim's status names it; the namespace is the claim's."""

    name: str
    uid: str


class Holder(NamedTuple):
    """One pod that holds one device through one claim."""

    namespace: str
    claim: str
    claim_uid: str
    pool: str
    device: str
    pod: HolderPod | None = None
    profile: str = ""
    mig_uuid: str = ""


def holders(
    claims: Iterable[checkpoint.Claim], pods: Mapping[str, Sequence[HolderPod]]
) -> dict[str, tuple[Holder, ...]]:
    """Holders by uuid. `pods` are those of each claim, by the claim's uid."""
    by_uuid: dict[str, list[Holder]] = {}
    for claim in sorted(claims, key=lambda claim: (claim.namespace, claim.name, claim.uid)):
        if claim.state is not checkpoint.State.COMPLETED:
            continue
        for held in claim.devices:
            if held.is_admin:
                continue
            uuid = silicon_uuid(held)
            if uuid:
                by_uuid.setdefault(uuid, []).extend(_of(claim, held, pods.get(claim.uid, ())))
    return {uuid: tuple(sorted(set(each), key=_order)) for uuid, each in by_uuid.items()}


def silicon_uuid(held: checkpoint.HeldDevice) -> str:
    """Of the MIG device, or of the whole GPU; empty for a partition that is not made yet."""
    if held.slice_count:
        return held.instance.uuid if held.instance is not None else ""
    return held.gpu_uuid


def _of(
    claim: checkpoint.Claim, held: checkpoint.HeldDevice, pods: Sequence[HolderPod]
) -> list[Holder]:
    bare = Holder(
        namespace=claim.namespace,
        claim=claim.name,
        claim_uid=claim.uid,
        pool=held.pool,
        device=held.device,
        profile=held.profile,
        mig_uuid=held.instance.uuid if held.instance is not None else "",
    )
    return [bare._replace(pod=pod) for pod in pods] or [bare]


def _order(holder: Holder) -> tuple[str, ...]:
    pod = holder.pod or HolderPod("", "")
    return (holder.namespace, holder.claim, pod.name, pod.uid, holder.device)

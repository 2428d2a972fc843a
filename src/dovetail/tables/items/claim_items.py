"""Claims as rows: what `dovetail get claims -o wide` shows, as structs. Never prints."""

from __future__ import annotations

import msgspec

from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.resource import claims
from dovetail.tables import claim_tables


class ClaimItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One claim: what it requests, what it got, and for whom."""

    namespace: str
    name: str
    requests: str  # 1 x gpu.nvidia.com [2 selectors]
    state: str  # allocated or pending; then reserved, deleting
    devices: tuple[str, ...]  # pool/device
    pods: tuple[str, ...]
    created: str | None


def items_of(objects: object_set.ObjectSet) -> tuple[ClaimItem, ...]:
    """All claims, by namespace and name."""
    structs = [stored.struct for stored in objects.listed(registry.CLAIM.name)]
    return tuple(item_of(claim) for claim in structs if isinstance(claim, claims.ResourceClaim))


def item_of(claim: claims.ResourceClaim) -> ClaimItem:
    """One claim."""
    return ClaimItem(
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        requests=claim_tables.requests_summary(claim.spec.devices),
        state=claim_tables.state_of(claim),
        devices=tuple(f"{each.pool}/{each.device}" for each in claim_tables.results_of(claim)),
        pods=tuple(user.name for user in claim.status.reserved_for),
        created=claim.metadata.creation_timestamp,
    )

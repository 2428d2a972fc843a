"""Decides what to write to a claim next: its finalizer, its devices and user, or their removal.

Pure step functions for `write_retry.Settler.brought_about`: a claim in, a patch out, or done, or giving
up. Every patch carries uid and resourceVersion, so that it applies to the claim as examined or not at
all. An existing allocation is never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from dovetail.kubetypes import codec
from dovetail.kubetypes.resource import claims
from dovetail.live.bind import write_retry
from dovetail.live.bind.write_retry import Done, GiveUp, Patch

STATUS: Final = "status"
RECREATED: Final = "the claim was deleted and created again"
Step = write_retry.Step[claims.ResourceClaim]


def reserve(
    uid: str,
    result: claims.AllocationResult | None,
    user: claims.ResourceClaimConsumerReference,
    *,
    expected: claims.AllocationResult | None,
) -> Callable[[claims.ResourceClaim], Step]:
    """Towards a claim with these devices, reserved for the user.

    `result` is None if the claim has its devices already; then it must still have the `expected` ones.
    """

    def step(claim: claims.ResourceClaim) -> Step:
        if claim.metadata.uid != uid:
            return GiveUp(RECREATED, is_gone=True)
        if claim.metadata.deletion_timestamp is not None:
            return GiveUp("the claim is being deleted")

        stored = claim.status.allocation
        if stored is None and result is None:
            return GiveUp("the claim lost its devices")
        if stored is not None:
            if not same_devices(stored, result if result is not None else expected):
                return GiveUp("another writer gave the claim other devices")
            if is_user(claim, user.uid):
                return Done(claim)

        if len(claim.status.reserved_for) >= claims.MAX_RESERVED_FOR:
            return GiveUp("the claim has as many users as the API allows")
        if claims.DELETE_PROTECTION_FINALIZER not in claim.metadata.finalizers:
            return _protected(claim)
        status: dict[str, Any] = {"reservedFor": _trees((*claim.status.reserved_for, user))}
        if stored is None and result is not None:
            # Raw: parameters of drivers are passed on letter by letter, as their author wrote them.
            status["allocation"] = msgspec.Raw(codec.encode_struct(result))
        return _status_patch(claim, status)._replace(adds=True)

    return step


def release(uid: str, *user_uids: str) -> Callable[[claims.ResourceClaim], Step]:
    """Towards a claim that these users no longer reserve; without other users it loses its devices."""

    def step(claim: claims.ResourceClaim) -> Step:
        if claim.metadata.uid != uid:
            return GiveUp(RECREATED, is_gone=True)
        users = claim.status.reserved_for
        remaining = tuple(user for user in users if user.uid not in user_uids)
        if remaining and len(remaining) == len(users):
            return Done(claim)
        if remaining:
            return _status_patch(claim, {"reservedFor": _trees(remaining)})
        if claim.status.allocation is None:
            return Done(claim)
        empty: dict[str, Any] = {"allocation": None, "reservedFor": None}
        if claim.status.devices:
            empty["devices"] = None
        return _status_patch(claim, empty)

    return step


def is_user(claim: claims.ResourceClaim, uid: str) -> bool:
    """Whether the claim is reserved for the user."""
    return any(user.uid == uid for user in claim.status.reserved_for)


def same_devices(stored: claims.AllocationResult, ours: claims.AllocationResult | None) -> bool:
    """Whether two allocations give the same devices to the same requests."""
    if ours is None:
        return False
    if any(result.share_id for result in stored.devices.results):
        return _devices(stored) == _devices(ours)
    # A server that knows no shares drops their ids: the devices are still ours, and
    # `dropped_fields` reports it.
    without_shares = {device[:-1] for device in _devices(stored)}
    return without_shares == {device[:-1] for device in _devices(ours)}


def dropped_fields(
    sent: claims.AllocationResult, stored: claims.AllocationResult | None
) -> tuple[str, ...]:
    """Fields that the server did not store: it drops them silently if the feature is off."""
    if stored is None:
        return ("status.allocation",)
    return tuple(sorted(set(_dropped(sent, stored))))


def _dropped(sent: claims.AllocationResult, stored: claims.AllocationResult) -> Iterator[str]:
    has_conditions = any(result.binding_conditions for result in sent.devices.results)
    if has_conditions and sent.allocation_timestamp and not stored.allocation_timestamp:
        yield "allocationTimestamp"
    if sent.node_selector != stored.node_selector:
        yield "nodeSelector"
    if len(sent.devices.config) != len(stored.devices.config):
        yield "devices.config"
    if len(sent.devices.results) != len(stored.devices.results):
        yield "devices.results"
        return
    for ours, theirs in zip(sent.devices.results, stored.devices.results, strict=True):
        for field in _differing_fields(ours, theirs):
            yield f"devices.results[].{field}"


def _differing_fields(
    ours: claims.DeviceRequestAllocationResult, theirs: claims.DeviceRequestAllocationResult
) -> Iterator[str]:
    # Quantities are compared as amounts: the server may write the same amount differently.
    if _amounts(ours) != _amounts(theirs):
        yield "consumedCapacity"
    for name in ours.__struct_fields__:
        if name != "consumed_capacity" and getattr(ours, name) != getattr(theirs, name):
            yield _WIRE_NAMES[name]


_WIRE_NAMES: Final = {
    field.name: field.encode_name
    for field in msgspec.structs.fields(claims.DeviceRequestAllocationResult)
}


def _amounts(result: claims.DeviceRequestAllocationResult) -> dict[str, int]:
    return {name: amount.nanos for name, amount in result.consumed_capacity.items()}


def _devices(allocation: claims.AllocationResult) -> set[tuple[str, str, str, str, str | None]]:
    return {
        (result.request, result.driver, result.pool, result.device, result.share_id)
        for result in allocation.devices.results
    }


def _protected(claim: claims.ResourceClaim) -> Patch[claims.ResourceClaim]:
    finalizers = (*claim.metadata.finalizers, claims.DELETE_PROTECTION_FINALIZER)
    metadata = msgspec.structs.replace(claim.metadata, finalizers=finalizers)
    after = msgspec.structs.replace(claim, metadata=metadata)
    patch = {"metadata": {**_identity(claim), "finalizers": list(finalizers)}}
    # A strategic patch makes the server rewrite parameters of drivers, keys sorted, and then refuse
    # that as a changed spec. A merge patch does so only if they were written with spaces: then
    # `finalizer` lets the writer fall back to another request.
    has_parameters = bool(claim.spec.devices.config)
    finalizer = claims.DELETE_PROTECTION_FINALIZER if has_parameters else ""
    return Patch(
        codec.encode_tree(patch), after=after, adds=not has_parameters, finalizer=finalizer
    )


def _status_patch(
    claim: claims.ResourceClaim, status: dict[str, Any]
) -> Patch[claims.ResourceClaim]:
    return Patch(
        codec.encode_tree({"metadata": _identity(claim), "status": status}), subresource=STATUS
    )


def _identity(claim: claims.ResourceClaim) -> dict[str, Any]:
    return {"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version}


def _trees(users: tuple[claims.ResourceClaimConsumerReference, ...]) -> list[dict[str, Any]]:
    return [codec.tree_of(user) for user in users]

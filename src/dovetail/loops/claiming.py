"""Decides what to write to a claim next: protect it, give it devices and a user, or take them back.

Pure steps for `settle`: a claim in, a patch out, or done, or giving up. Every patch carries uid and resourceVersion,
so that it applies to what was judged or not at all. An allocation that is there is never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from dovetail.loops import settle
from dovetail.loops.settle import Done, GiveUp, Patch
from dovetail.model import claims, objects

STATUS: Final = "status"
Step = settle.Step[claims.ResourceClaim]


def reserve(
    uid: str,
    result: claims.AllocationResult | None,
    user: claims.ResourceClaimConsumerReference,
    *,
    expected: claims.AllocationResult | None,
) -> Callable[[claims.ResourceClaim], Step]:
    """Towards a claim with these devices, reserved for the user. `expected` is what a claim already held."""

    def step(claim: claims.ResourceClaim) -> Step:
        if claim.metadata.uid != uid:
            return GiveUp("the claim was made anew", is_gone=True)
        if claim.metadata.deletion_timestamp is not None:
            return GiveUp("the claim is being deleted")
        held = claim.status.allocation
        if held is None and result is None:
            return GiveUp("the claim lost its devices")
        if held is not None and not same_devices(held, result if result is not None else expected):
            return GiveUp("somebody else gave the claim other devices")
        if held is not None and is_user(claim, user.uid):
            return Done(claim)
        if len(claim.status.reserved_for) >= claims.MAX_RESERVED_FOR:
            return GiveUp("the claim has as many users as it can")
        if claims.DELETE_PROTECTION_FINALIZER not in claim.metadata.finalizers:
            return _protected(claim)
        status: dict[str, Any] = {"reservedFor": _trees((*claim.status.reserved_for, user))}
        if held is None and result is not None:
            # Raw: parameters of drivers are passed on letter by letter, whatever their author wrote there.
            status["allocation"] = msgspec.Raw(objects.encode_struct(result))
        return _status_patch(claim, status)._replace(adds=True)

    return step


def release(uid: str, *user_uids: str) -> Callable[[claims.ResourceClaim], Step]:
    """Towards a claim that these users no longer reserve; without other users it loses its devices."""

    def step(claim: claims.ResourceClaim) -> Step:
        if claim.metadata.uid != uid:
            return GiveUp("the claim was made anew", is_gone=True)
        others = tuple(one for one in claim.status.reserved_for if one.uid not in user_uids)
        if others:
            if len(others) == len(claim.status.reserved_for):
                return Done(claim)
            return _status_patch(claim, {"reservedFor": _trees(others)})
        if claim.status.allocation is None:
            return Done(claim)
        emptied = {"allocation": None, "reservedFor": None} | ({"devices": None} if claim.status.devices else {})
        return _status_patch(claim, emptied)

    return step


def is_user(claim: claims.ResourceClaim, uid: str) -> bool:
    """Whether the claim is reserved for the user."""
    return any(one.uid == uid for one in claim.status.reserved_for)


def same_devices(stored: claims.AllocationResult, other: claims.AllocationResult | None) -> bool:
    """Whether two allocations give the same devices to the same requests."""
    if other is None:
        return False
    if any(one.share_id for one in stored.devices.results):
        return _places(stored) == _places(other)
    # A server that knows no shares leaves out whose share it is: still ours, and `dropped_fields` tells.
    return {place[:-1] for place in _places(stored)} == {place[:-1] for place in _places(other)}


def dropped_fields(sent: claims.AllocationResult, stored: claims.AllocationResult | None) -> tuple[str, ...]:
    """Fields a server left out of what was sent: it does so silently where the feature is off."""
    if stored is None:
        return ("status.allocation",)
    return tuple(sorted(set(_dropped(sent, stored))))


def _dropped(sent: claims.AllocationResult, stored: claims.AllocationResult) -> Iterator[str]:
    waits = any(one.binding_conditions for one in sent.devices.results)
    if waits and sent.allocation_timestamp and not stored.allocation_timestamp:
        yield "allocationTimestamp"
    if sent.node_selector != stored.node_selector:
        yield "nodeSelector"
    if len(sent.devices.config) != len(stored.devices.config):
        yield "devices.config"
    if len(sent.devices.results) != len(stored.devices.results):
        yield "devices.results"
        return
    for ours, theirs in zip(sent.devices.results, stored.devices.results, strict=True):
        if _amounts(ours) != _amounts(theirs):
            yield "devices.results[].consumedCapacity"
        for name in ours.__struct_fields__:
            if name != "consumed_capacity" and getattr(ours, name) != getattr(theirs, name):
                yield f"devices.results[].{_WIRE_NAMES[name]}"


_WIRE_NAMES: Final = {one.name: one.encode_name for one in msgspec.structs.fields(claims.DeviceRequestAllocationResult)}


def _amounts(result: claims.DeviceRequestAllocationResult) -> dict[str, int]:
    return {name: amount.nanos for name, amount in result.consumed_capacity.items()}


def _places(allocation: claims.AllocationResult) -> set[tuple[str, str, str, str, str | None]]:
    return {(one.request, one.driver, one.pool, one.device, one.share_id) for one in allocation.devices.results}


def _protected(claim: claims.ResourceClaim) -> Patch[claims.ResourceClaim]:
    finalizers = (*claim.metadata.finalizers, claims.DELETE_PROTECTION_FINALIZER)
    metadata = msgspec.structs.replace(claim.metadata, finalizers=finalizers)
    after = msgspec.structs.replace(claim, metadata=metadata)
    patch = {"metadata": {**_identity(claim), "finalizers": list(finalizers)}}
    # A strategic patch makes the server write parameters of drivers anew, keys sorted, and call that a changed spec. A
    # merge patch does so only where they were written with spaces: then the finalizer goes another way.
    has_parameters = bool(claim.spec.devices.config)
    finalizer = claims.DELETE_PROTECTION_FINALIZER if has_parameters else ""
    return Patch(objects.encode_tree(patch), after=after, adds=not has_parameters, finalizer=finalizer)


def _status_patch(claim: claims.ResourceClaim, status: dict[str, Any]) -> Patch[claims.ResourceClaim]:
    return Patch(objects.encode_tree({"metadata": _identity(claim), "status": status}), subresource=STATUS)


def _identity(claim: claims.ResourceClaim) -> dict[str, Any]:
    return {"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version}


def _trees(users: tuple[claims.ResourceClaimConsumerReference, ...]) -> list[dict[str, Any]]:
    return [objects.tree_of(one) for one in users]

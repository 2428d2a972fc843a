"""The next patch of a claim: every step from untouched to reserved and back, and when to stop."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.kubetypes import meta
from dovetail.kubetypes.resource import claims
from dovetail.live.bind import claim_patches, write_retry
from dovetail.quantity import quantity

POD = claims.ResourceClaimConsumerReference(resource="pods", name="train-0", uid="pod-uid")
OTHER = claims.ResourceClaimConsumerReference(resource="pods", name="other", uid="other-uid")
GPU_0 = claims.AllocationResult(
    devices=claims.DeviceAllocationResult(
        results=(
            claims.DeviceRequestAllocationResult(
                request="gpu", driver="d", pool="p", device="gpu-0"
            ),
        )
    )
)
GPU_1 = claims.AllocationResult(
    devices=claims.DeviceAllocationResult(
        results=(
            claims.DeviceRequestAllocationResult(
                request="gpu", driver="d", pool="p", device="gpu-1"
            ),
        )
    )
)


def claim(**status: Any) -> claims.ResourceClaim:
    finalizers = (claims.DELETE_PROTECTION_FINALIZER,) if status.pop("protected", True) else ()
    deleted = status.pop("deleted", None)
    metadata = meta.ObjectMeta(
        namespace="team",
        name="gpu",
        uid="claim-uid",
        resource_version="7",
        finalizers=finalizers,
        deletion_timestamp=deleted,
    )
    return claims.ResourceClaim(metadata=metadata, status=claims.ResourceClaimStatus(**status))


def patch(step: claim_patches.Step) -> dict[str, Any]:
    assert isinstance(step, write_retry.Patch)
    tree: dict[str, Any] = msgspec.json.decode(step.patch)
    assert tree["metadata"]["uid"] == "claim-uid"
    assert tree["metadata"]["resourceVersion"] == "7"
    return tree


def fresh(result: claims.AllocationResult | None = GPU_0) -> Any:
    return claim_patches.reserve("claim-uid", result, POD, expected=None)


def test_the_finalizer_comes_before_the_allocation() -> None:
    step = fresh()(claim(protected=False))
    assert patch(step)["metadata"]["finalizers"] == [claims.DELETE_PROTECTION_FINALIZER]
    assert "status" not in patch(step)
    assert step.subresource == ""


def test_allocation_and_reservation_are_one_status_write() -> None:
    step = fresh()(claim())
    status = patch(step)["status"]
    assert step.subresource == "status"
    assert status["allocation"]["devices"]["results"][0]["device"] == "gpu-0"
    assert [user["uid"] for user in status["reservedFor"]] == ["pod-uid"]


def test_a_claim_that_is_as_wanted_is_done() -> None:
    assert isinstance(fresh()(claim(allocation=GPU_0, reserved_for=(POD,))), write_retry.Done)


def test_a_shared_claim_gets_one_more_user_and_keeps_its_devices() -> None:
    follow = claim_patches.reserve("claim-uid", None, POD, expected=GPU_0)
    status = patch(follow(claim(allocation=GPU_0, reserved_for=(OTHER,))))["status"]
    assert "allocation" not in status
    assert [user["uid"] for user in status["reservedFor"]] == ["other-uid", "pod-uid"]


def test_it_gives_up_when_the_claim_is_no_longer_what_was_decided_about() -> None:
    follow = claim_patches.reserve("claim-uid", None, POD, expected=GPU_0)
    assert isinstance(fresh()(claim(allocation=GPU_1)), write_retry.GiveUp)
    assert isinstance(follow(claim(allocation=GPU_1)), write_retry.GiveUp)
    assert isinstance(follow(claim()), write_retry.GiveUp)
    assert isinstance(fresh()(claim(deleted="2026-01-01T00:00:00Z")), write_retry.GiveUp)
    of_another_claim = claim_patches.reserve("another-uid", GPU_0, POD, expected=None)
    assert isinstance(of_another_claim(claim()), write_retry.GiveUp)
    many = tuple(msgspec.structs.replace(OTHER, uid=str(n)) for n in range(claims.MAX_RESERVED_FOR))
    assert isinstance(follow(claim(allocation=GPU_0, reserved_for=many)), write_retry.GiveUp)


def test_release_clears_the_devices_only_for_the_last_user() -> None:
    release = claim_patches.release("claim-uid", "pod-uid")
    alone = patch(release(claim(allocation=GPU_0, reserved_for=(POD,))))["status"]
    assert alone == {"allocation": None, "reservedFor": None}
    shared = patch(release(claim(allocation=GPU_0, reserved_for=(OTHER, POD))))["status"]
    assert [user["uid"] for user in shared["reservedFor"]] == ["other-uid"]
    assert "allocation" not in shared
    assert isinstance(release(claim(allocation=GPU_0, reserved_for=(OTHER,))), write_retry.Done)
    assert isinstance(release(claim()), write_retry.Done)


def test_fields_a_server_leaves_out_are_named() -> None:
    sent = result(
        share_id="s",
        consumed_capacity={"memory": quantity.parse("10Gi")},
        binding_conditions=("Ready",),
    )
    assert claim_patches.dropped_fields(sent, sent) == ()
    same_amount = result(
        share_id="s",
        consumed_capacity={"memory": quantity.parse("10240Mi")},
        binding_conditions=("Ready",),
    )
    assert claim_patches.dropped_fields(sent, same_amount) == ()
    assert claim_patches.dropped_fields(sent, result()) == (
        "devices.results[].bindingConditions",
        "devices.results[].consumedCapacity",
        "devices.results[].shareID",
    )
    assert claim_patches.dropped_fields(sent, None) == ("status.allocation",)


def result(**fields: Any) -> claims.AllocationResult:
    allocation = claims.DeviceRequestAllocationResult(
        request="gpu", driver="d", pool="p", device="gpu-0", **fields
    )
    return claims.AllocationResult(devices=claims.DeviceAllocationResult(results=(allocation,)))


def test_a_share_the_server_dropped_is_still_our_write_and_is_reported() -> None:
    """A server without consumable capacity keeps the device and drops whose share it is."""
    (whole,) = GPU_0.devices.results
    share = msgspec.structs.replace(whole, share_id="11111111-2222-3333-4444-555555555555")
    sent = msgspec.structs.replace(GPU_0, devices=claims.DeviceAllocationResult(results=(share,)))
    assert isinstance(fresh(sent)(claim(allocation=GPU_0, reserved_for=(POD,))), write_retry.Done)
    assert claim_patches.dropped_fields(sent, GPU_0) == ("devices.results[].shareID",)
    other = msgspec.structs.replace(share, share_id="99999999-2222-3333-4444-555555555555")
    theirs = msgspec.structs.replace(GPU_0, devices=claims.DeviceAllocationResult(results=(other,)))
    assert isinstance(
        fresh(sent)(claim(allocation=theirs, reserved_for=(POD,))), write_retry.GiveUp
    )

"""A dry run of preparing a claim: everything that may refuse it is asked, and nothing is allocated or kept.

Given the node's execution and the devices that it publishes. Reads driver and GPUs, the checkpoint, and what a claim's
CDI file would say; writes one small file in each folder and removes it again. A GPU that a claim holds has shown that
it can be prepared, and is left alone. All calls block; the caller holds the lock of the GPU. Never records a claim.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from dovetail import errors
from dovetail.kubetypes import meta
from dovetail.kubetypes.resource import claims
from dovetail.node.cdi import claim_specs
from dovetail.node.claims import configs, plan_prepare, recovery
from dovetail.node.claims.execution import Execution

_REQUEST: Final = "rehearsal"

DevicesOf = Callable[[int], Sequence[str]]  # the published devices of a GPU, by its minor number


class Unready(errors.DovetailError):
    """A claim could not be prepared; the message says why."""


class Rehearsed(NamedTuple):
    """A device that could be prepared."""

    device: str
    steps: int  # on the hardware


def free_gpus(execution: Execution) -> tuple[int, ...]:
    """The GPUs that no claim holds, once driver, checkpoint and folders are in order. Raises Unready and its kin."""
    inventory = execution.inventory()
    if not inventory.driver_version:
        raise Unready("no NVIDIA driver answers")
    if inventory.unread:
        first = inventory.unread[0]
        raise Unready(
            f"{len(inventory.unread)} GPUs cannot be read, the first at index {first.index}: "
            f"{first.reason}"
        )
    if not inventory.gpus:
        raise Unready(f"driver {inventory.driver_version} has no GPU")
    known = recovery.trusted(execution)
    execution.file.rehearse_write()
    execution.specs.rehearse_write()
    held = {
        device.gpu_minor
        for claim in known.claims.values()
        for device in claim.devices
        if not device.is_admin
    }
    return tuple(gpu.minor for gpu in inventory.gpus if gpu.minor not in held)


def rehearse(
    execution: Execution, settings: plan_prepare.Settings, minor: int, devices: Sequence[str]
) -> Rehearsed:
    """The first device of a GPU that could be prepared, whole GPUs before partitions. Raises Unready and its kin."""
    if not devices:
        raise Unready(f"gpu-{minor} is not published")
    known = recovery.trusted(execution)
    inventory, live = execution.inventory(), execution.live([minor])
    refusals: list[str] = []
    for device in sorted(devices, key=len):
        claim = _claim(device, settings)
        plan = plan_prepare.plan_prepare(
            claim, settings=settings, inventory=inventory, live=live, known=known
        )
        if isinstance(plan, plan_prepare.Plan):
            _render(execution, plan)
            return Rehearsed(device, len(plan.steps))
        refusals.append(plan.reason)
    raise Unready(refusals[0])


def _claim(device: str, settings: plan_prepare.Settings) -> claims.ResourceClaim:
    """A claim that was allocated this device, and that no API server has."""
    result = claims.DeviceRequestAllocationResult(
        request=_REQUEST, driver=configs.DRIVER, pool=settings.pool, device=device
    )
    allocation = claims.AllocationResult(devices=claims.DeviceAllocationResult(results=(result,)))
    return claims.ResourceClaim(
        metadata=meta.ObjectMeta(name=_REQUEST, uid=_REQUEST),
        status=claims.ResourceClaimStatus(allocation=allocation),
    )


def _render(execution: Execution, plan: plan_prepare.Plan) -> None:
    """What containers would get: fails where libraries or device nodes of the driver are missing."""
    held = plan.claim.devices[0]
    instance = (held.instance.gi_id, held.instance.ci_id) if held.instance is not None else None
    entry = claim_specs.ClaimDevice(
        name=held.device, minor=held.gpu_minor, pci_bus_id=held.pci_bus_id, instance=instance
    )
    version = execution.inventory().driver_version
    execution.specs.content(plan.claim.uid, [entry], driver_version=version)

"""What an API server with default gates leaves out of an object before judging it: fields of alpha features.

Given an object and what was stored; a field the stored object already uses is kept, so that turning a feature
off loses nothing. Gates off by default in Kubernetes 1.37: list attributes, compatibility groups, node
allocatable resources, partition types, optional node operations, derived attributes. Never adds anything.
"""

from typing import TypeVar

import msgspec

from dovetail.kubetypes.resource import claims, slices

R = TypeVar("R", claims.ExactDeviceRequest, claims.DeviceSubRequest)


def slice_spec(
    spec: slices.ResourceSliceSpec, old: slices.ResourceSliceSpec | None
) -> slices.ResourceSliceSpec:
    """The spec without alpha fields, except those the stored spec uses already."""
    before = slices.ResourceSliceSpec() if old is None else old
    devices = _devices(spec.devices, before.devices)
    partition_type = spec.partition_type_attribute
    if before.partition_type_attribute is None:
        partition_type = None
    operations = spec.skip_node_operations if before.skip_node_operations else ()

    is_unchanged = (
        devices is spec.devices
        and partition_type == spec.partition_type_attribute
        and operations == spec.skip_node_operations
    )
    if is_unchanged:
        return spec
    return msgspec.structs.replace(
        spec,
        devices=devices,
        partition_type_attribute=partition_type,
        skip_node_operations=operations,
    )


def _devices(
    devices: tuple[slices.Device, ...], before: tuple[slices.Device, ...]
) -> tuple[slices.Device, ...]:
    """The devices without alpha fields no device used before; the same tuple where there are none."""
    for uses, without in (
        (_has_lists, _without_lists),
        (_has_groups, _without_groups),
        (_has_node_resources, _without_node_resources),
    ):
        if any(map(uses, devices)) and not any(map(uses, before)):
            devices = tuple(map(without, devices))
    return devices


def _has_node_resources(device: slices.Device) -> bool:
    return bool(device.node_allocatable_resources)


def _without_node_resources(device: slices.Device) -> slices.Device:
    return msgspec.structs.replace(device, node_allocatable_resources={})


def claim_spec(
    spec: claims.ResourceClaimSpec, old: claims.ResourceClaimSpec | None
) -> claims.ResourceClaimSpec:
    """The spec without derived attributes, unless the stored one has some."""
    if (old is not None and _derives(old)) or not _derives(spec):
        return spec
    requests = tuple(
        msgspec.structs.replace(
            request,
            exactly=None if request.exactly is None else _underived(request.exactly),
            first_available=tuple(map(_underived, request.first_available)),
        )
        for request in spec.devices.requests
    )
    return claims.ResourceClaimSpec(
        devices=msgspec.structs.replace(spec.devices, requests=requests)
    )


def claim_status(
    status: claims.ResourceClaimStatus, old: claims.ResourceClaimStatus
) -> claims.ResourceClaimStatus:
    """The status without skipped node operations, unless the stored one has some."""
    if _skips(old) or not _skips(status):
        return status
    assert status.allocation is not None
    allocated = status.allocation.devices
    results = tuple(
        msgspec.structs.replace(result, skip_node_operations=()) for result in allocated.results
    )
    devices = msgspec.structs.replace(allocated, results=results)
    allocation = msgspec.structs.replace(status.allocation, devices=devices)
    return msgspec.structs.replace(status, allocation=allocation)


def _has_lists(device: slices.Device) -> bool:
    for attribute in device.attributes.values():
        if (
            attribute.int_values is not None
            or attribute.string_values is not None
            or attribute.bool_values is not None
            or attribute.version_values is not None
        ):
            return True
    return False


def _without_lists(device: slices.Device) -> slices.Device:
    attributes = {
        name: msgspec.structs.replace(
            attribute, int_values=None, bool_values=None, string_values=None, version_values=None
        )
        for name, attribute in device.attributes.items()
    }
    return msgspec.structs.replace(device, attributes=attributes)


def _has_groups(device: slices.Device) -> bool:
    entries = device.consumes_counters
    return bool(entries) and any(entry.compatibility_groups for entry in entries)


def _without_groups(device: slices.Device) -> slices.Device:
    consumption = tuple(
        msgspec.structs.replace(entry, compatibility_groups=())
        for entry in device.consumes_counters
    )
    return msgspec.structs.replace(device, consumes_counters=consumption)


def _derives(spec: claims.ResourceClaimSpec) -> bool:
    return any(
        (request.exactly is not None and request.exactly.derived_attributes)
        or any(option.derived_attributes for option in request.first_available)
        for request in spec.devices.requests
    )


def _underived(request: R) -> R:
    return msgspec.structs.replace(request, derived_attributes=())


def _skips(status: claims.ResourceClaimStatus) -> bool:
    allocation = status.allocation
    return allocation is not None and any(
        result.skip_node_operations for result in allocation.devices.results
    )

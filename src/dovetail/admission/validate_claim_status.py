"""Rules for the status of a ResourceClaim: what is allocated, reserved and reported, and what may not change.

Given the claim as sent and as stored; adds a problem for each rule broken. An allocation is set or cleared,
never changed. Never asks whether a device exists or is free.
"""

from dovetail.admission import (
    validate_claims,
    validate_classes,
    validate_metadata,
    validate_placement,
)
from dovetail.kubetypes import field_errors, names
from dovetail.kubetypes.field_errors import Problems
from dovetail.kubetypes.resource import claims, device_classes

CONFIG_SOURCES = ("FromClaim", "FromClass")
DeviceId = tuple[str, str, str, str | None]


def check_update(
    problems: Problems,
    new: claims.ResourceClaim,
    old: claims.ResourceClaim,
    *,
    terms: field_errors.Terms,
) -> None:
    """A new status for a stored claim."""
    _check_admin_results(problems, new.status, old.status, terms=terms)
    validate_metadata.check_update(problems, new.metadata, old.metadata, is_namespaced=True)
    _check_reservations(problems, new, old)
    _check_device_reports(problems, new.status, "status.devices")
    allocation = new.status.allocation
    if allocation is None:
        return
    if old.status.allocation is None:
        declared = validate_claims.request_names(new.spec.devices)
        _check_allocation(problems, allocation, "status.allocation", declared=declared)
    elif allocation != old.status.allocation:
        field_errors.invalid(problems, "status.allocation", "cannot be changed, only cleared")


def device_ids(allocation: claims.AllocationResult | None) -> set[DeviceId]:
    """The devices of an allocation; shares of one device are distinct."""
    if allocation is None:
        return set()
    return {
        (device.driver, device.pool, device.device, device.share_id)
        for device in allocation.devices.results
    }


def _check_admin_results(
    problems: Problems,
    new: claims.ResourceClaimStatus,
    old: claims.ResourceClaimStatus,
    *,
    terms: field_errors.Terms,
) -> None:
    if terms.namespace_has_admin_label or new.allocation is None:
        return
    if old.allocation is not None and any(
        result.admin_access for result in old.allocation.devices.results
    ):
        return
    for index, result in enumerate(new.allocation.devices.results):
        if result.admin_access:
            path = f"status.allocation.devices.results[{index}].adminAccess"
            field_errors.forbidden(problems, path, validate_claims.admin_message())
            return


def _check_reservations(
    problems: Problems, new: claims.ResourceClaim, old: claims.ResourceClaim
) -> None:
    reserved, path = new.status.reserved_for, "status.reservedFor"
    if len(reserved) > claims.MAX_RESERVED_FOR:
        field_errors.too_many(problems, path, len(reserved), limit=claims.MAX_RESERVED_FOR)
    else:
        for index, user in enumerate(reserved):
            for name, value in (
                ("resource", user.resource),
                ("name", user.name),
                ("uid", user.uid),
            ):
                if not value:
                    field_errors.required(problems, f"{path}[{index}].{name}")
        validate_placement.check_unique(problems, tuple(user.uid for user in reserved), path)
    if not reserved:
        return
    if new.status.allocation is None:
        field_errors.forbidden(problems, path, "needs an allocation")
    elif new.metadata.deletion_timestamp is not None and set(reserved) - set(
        old.status.reserved_for
    ):
        field_errors.forbidden(
            problems, path, "nothing can be added while the claim is being deleted"
        )


def _check_allocation(
    problems: Problems,
    allocation: claims.AllocationResult,
    path: str,
    *,
    declared: validate_claims.RequestNames,
) -> None:
    results, configs, at = allocation.devices.results, allocation.devices.config, f"{path}.devices"
    if len(results) > claims.MAX_RESULTS:
        field_errors.too_many(problems, f"{at}.results", len(results), limit=claims.MAX_RESULTS)
    else:
        for index, result in enumerate(results):
            _check_result(problems, result, f"{at}.results[{index}]", declared=declared)
    limit = 2 * device_classes.MAX_CONFIGS  # of the class and of the claim
    if len(configs) > limit:
        field_errors.too_many(problems, f"{at}.config", len(configs), limit=limit)
    else:
        for index, config in enumerate(configs):
            _check_config(problems, config, f"{at}.config[{index}]", declared=declared)
    if allocation.node_selector is not None:
        validate_placement.check_node_selector(
            problems, allocation.node_selector, f"{path}.nodeSelector"
        )


def _check_result(
    problems: Problems,
    result: claims.DeviceRequestAllocationResult,
    path: str,
    *,
    declared: validate_claims.RequestNames,
) -> None:
    validate_claims.check_reference(problems, result.request, f"{path}.request", declared=declared)
    names.check_driver(problems, f"{path}.driver", result.driver)
    names.check_pool(problems, f"{path}.pool", result.pool)
    names.check_label(problems, f"{path}.device", result.device)
    validate_placement.check_binding_conditions(
        problems, result.binding_conditions, result.binding_failure_conditions, path=path
    )
    validate_placement.check_tolerations(problems, result.tolerations, f"{path}.tolerations")
    _check_share(problems, result.share_id, f"{path}.shareID")
    if result.skip_node_operations:
        validate_placement.check_skipped_operations(
            problems, result.skip_node_operations, f"{path}.skipNodeOperations"
        )


def _check_config(
    problems: Problems,
    config: claims.DeviceAllocationConfiguration,
    path: str,
    *,
    declared: validate_claims.RequestNames,
) -> None:
    if not config.source:
        field_errors.required(problems, f"{path}.source")
    elif config.source not in CONFIG_SOURCES:
        field_errors.not_supported(problems, f"{path}.source", config.source, CONFIG_SOURCES)
    validate_claims.check_request_list(
        problems, config.requests, f"{path}.requests", declared=declared
    )
    validate_classes.check_opaque(problems, config.opaque, path)


def _check_device_reports(
    problems: Problems, status: claims.ResourceClaimStatus, path: str
) -> None:
    allocated = device_ids(status.allocation)
    reported: set[DeviceId] = set()
    for index, report in enumerate(status.devices):
        at = f"{path}[{index}]"
        device_id = (report.driver, report.pool, report.device, report.share_id)
        if device_id not in allocated:
            field_errors.invalid(problems, at, "is no device allocated to the claim")
        if device_id in reported:
            field_errors.duplicate(problems, at, "/".join(device_id[:3]))
        reported.add(device_id)
        _check_report(problems, report, at)


def _check_report(problems: Problems, report: claims.AllocatedDeviceStatus, path: str) -> None:
    names.check_driver(problems, f"{path}.driver", report.driver)
    names.check_pool(problems, f"{path}.pool", report.pool)
    names.check_label(problems, f"{path}.device", report.device)
    _check_share(problems, report.share_id, f"{path}.shareID")
    if len(report.conditions) > claims.MAX_DEVICE_CONDITIONS:
        limit = claims.MAX_DEVICE_CONDITIONS
        field_errors.too_many(problems, f"{path}.conditions", len(report.conditions), limit=limit)
    validate_metadata.check_conditions(problems, report.conditions, f"{path}.conditions")
    if bytes(report.data) not in (b"", b"null"):
        limit = claims.MAX_DEVICE_DATA_BYTES
        validate_classes.check_json_object(problems, report.data, f"{path}.data", limit=limit)
    if report.network_data is not None:
        _check_network(problems, report.network_data, f"{path}.networkData")


def _check_network(problems: Problems, data: claims.NetworkDeviceData, path: str) -> None:
    for name, text, limit in (
        ("interfaceName", data.interface_name, claims.MAX_INTERFACE_NAME_BYTES),
        ("hardwareAddress", data.hardware_address, claims.MAX_HARDWARE_ADDRESS_BYTES),
    ):
        if field_errors.byte_length(text) > limit:
            field_errors.too_long(problems, f"{path}.{name}", limit)
    if len(data.ips) > claims.MAX_NETWORK_IPS:
        field_errors.too_many(problems, f"{path}.ips", len(data.ips), limit=claims.MAX_NETWORK_IPS)
        return
    for index, address in enumerate(data.ips):
        if not names.is_interface_address(address):
            field_errors.invalid(
                problems, f"{path}.ips[{index}]", "must be an address in CIDR form: 10.9.8.7/24"
            )
    validate_placement.check_unique(problems, data.ips, f"{path}.ips")


def _check_share(problems: Problems, share_id: str | None, path: str) -> None:
    if share_id is not None and not names.is_uuid(share_id):
        field_errors.invalid(problems, path, "must be a lower-case UUID")

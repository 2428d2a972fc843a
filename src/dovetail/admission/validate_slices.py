"""Rules for a ResourceSlice: driver and pool, the nodes it is for, its devices or shared counters.

Given the slice and, at an update, what was stored; adds a problem for each rule broken. A slice holds devices
or counters, never both. Never looks at other slices of the pool.
"""

from dovetail.admission import validate_devices, validate_metadata, validate_placement
from dovetail.kubetypes import field_errors, meta, names
from dovetail.kubetypes.field_errors import Problems
from dovetail.kubetypes.resource import slices


def check_create(problems: Problems, new: slices.ResourceSlice) -> None:
    """A slice a driver publishes for the first time."""
    validate_metadata.check_create(problems, new.metadata, is_namespaced=False)
    _check_spec(problems, new.spec, old=None)


def check_update(problems: Problems, new: slices.ResourceSlice, old: slices.ResourceSlice) -> None:
    """A slice published again: driver, pool name and node name stay."""
    validate_metadata.check_update(problems, new.metadata, old.metadata, is_namespaced=False)
    _check_spec(problems, new.spec, old=old.spec)
    for name, is_changed in (
        ("pool.name", new.spec.pool.name != old.spec.pool.name),
        ("driver", new.spec.driver != old.spec.driver),
        ("nodeName", new.spec.node_name != old.spec.node_name),
    ):
        if is_changed:
            field_errors.invalid(problems, f"spec.{name}", "cannot be changed")


def _check_spec(
    problems: Problems, spec: slices.ResourceSliceSpec, *, old: slices.ResourceSliceSpec | None
) -> None:
    names.check_driver(problems, "spec.driver", spec.driver)
    names.check_pool(problems, "spec.pool.name", spec.pool.name)
    if spec.pool.resource_slice_count <= 0:
        field_errors.invalid(problems, "spec.pool.resourceSliceCount", "must be greater than zero")
    if spec.pool.generation < 0:
        field_errors.invalid(problems, "spec.pool.generation", "must not be negative")
    _check_nodes(problems, spec)
    if spec.shared_counters is not meta.NO_ITEMS and spec.devices is not meta.NO_ITEMS:
        field_errors.invalid(
            problems, "spec", "has devices and sharedCounters; a slice holds one of them"
        )
    _check_devices(problems, spec, old=old)
    _check_counters(problems, spec)
    if spec.partition_type_attribute is not None:
        _check_partition_type(problems, spec, old=old)
    if spec.skip_node_operations:
        validate_placement.check_skipped_operations(
            problems, spec.skip_node_operations, "spec.skipNodeOperations"
        )


def _check_nodes(problems: Problems, spec: slices.ResourceSliceSpec) -> None:
    chosen = 0
    if spec.node_name:
        chosen += 1
        names.check_subdomain(problems, "spec.nodeName", spec.node_name)
    elif spec.node_name is not None:
        field_errors.invalid(problems, "spec.nodeName", "must be absent or not empty")
    if spec.node_selector is not None:
        chosen += 1
        validate_placement.check_node_selector(problems, spec.node_selector, "spec.nodeSelector")
        if len(spec.node_selector.node_selector_terms) != 1:
            field_errors.invalid(
                problems, "spec.nodeSelector.nodeSelectorTerms", "must be exactly one term"
            )
    flags = {
        "allNodes": spec.all_nodes,
        "perDeviceNodeSelection": spec.per_device_node_selection,
    }
    for name, flag in flags.items():
        if flag:
            chosen += 1
        elif flag is not None:
            field_errors.invalid(problems, f"spec.{name}", "must be true or absent")

    choices = "nodeName, nodeSelector, allNodes, perDeviceNodeSelection"
    if chosen == 0:
        field_errors.required(problems, "spec", f"needs one of {choices}")
    elif chosen > 1:
        field_errors.invalid(problems, "spec", f"needs exactly one of {choices}")


def _check_devices(
    problems: Problems, spec: slices.ResourceSliceSpec, *, old: slices.ResourceSliceSpec | None
) -> None:
    limit = _device_limit(spec)
    is_too_long = len(spec.devices) > limit
    if is_too_long:
        field_errors.too_many(problems, "spec.devices", len(spec.devices), limit=limit)
    if (is_too_long and old is None) or (old is not None and spec.devices != old.devices):
        for index, device in enumerate(spec.devices):
            validate_devices.check_declared(problems, device, f"spec.devices[{index}]")
    if is_too_long:
        return
    before = {} if old is None else {device.name: device for device in reversed(old.devices)}
    selects_nodes = spec.per_device_node_selection is True
    for index, device in enumerate(spec.devices):
        validate_devices.check_device(
            problems,
            device,
            f"spec.devices[{index}]",
            old=before.get(device.name),
            selects_nodes=selects_nodes,
        )
    validate_placement.check_unique(
        problems, tuple(device.name for device in spec.devices), "spec.devices"
    )


def _device_limit(spec: slices.ResourceSliceSpec) -> int:
    if len(spec.devices) <= slices.MAX_DEVICES_WITH_ADVANCED_FEATURES:
        return slices.MAX_DEVICES
    for device in spec.devices:
        if (
            device.taints
            or device.consumes_counters
            or any(map(_is_list, device.attributes.values()))
        ):
            return slices.MAX_DEVICES_WITH_ADVANCED_FEATURES
    return slices.MAX_DEVICES


def _is_list(attribute: slices.DeviceAttribute) -> bool:
    return (
        attribute.int_values is not None
        or attribute.bool_values is not None
        or attribute.string_values is not None
        or attribute.version_values is not None
    )


def _check_counters(problems: Problems, spec: slices.ResourceSliceSpec) -> None:
    path, limit = "spec.sharedCounters", slices.MAX_COUNTER_SETS
    if len(spec.shared_counters) > limit:
        field_errors.too_many(problems, path, len(spec.shared_counters), limit=limit)
        return
    for index, counter_set in enumerate(spec.shared_counters):
        validate_devices.check_counter_set(problems, counter_set, f"{path}[{index}]")
    validate_placement.check_unique(
        problems, tuple(counter_set.name for counter_set in spec.shared_counters), path
    )


def _check_partition_type(
    problems: Problems, spec: slices.ResourceSliceSpec, *, old: slices.ResourceSliceSpec | None
) -> None:
    """Only slices that had the attribute keep it while its gate is off; it cannot be changed then."""
    name, path = spec.partition_type_attribute or "", "spec.partitionTypeAttribute"
    if old is None or old.partition_type_attribute != spec.partition_type_attribute:
        field_errors.forbidden(problems, path, "cannot be set: the feature is off by default")
    consumers = [
        (index, device) for index, device in enumerate(spec.devices) if device.consumes_counters
    ]
    if not consumers:
        field_errors.invalid(
            problems, path, "only a slice with devices that consume counters can have it"
        )
        return
    faults: Problems = []
    names.check_attribute_name(faults, path, name)
    if faults or "/" not in name:
        return
    bare = name.removeprefix(f"{spec.driver}/")
    for index, device in consumers:
        at = f"spec.devices[{index}].attributes[{name}]"
        attribute = device.attributes.get(name) or device.attributes.get(bare)
        if attribute is None:
            field_errors.required(problems, at, "partitionTypeAttribute names it")
        elif attribute.string_value is None:
            field_errors.invalid(problems, at, "must be a string: partitionTypeAttribute names it")

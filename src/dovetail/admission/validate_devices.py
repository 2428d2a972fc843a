"""Rules for the devices and counter sets of a ResourceSlice.

Given a device, its path and, at an update, the device of the same name before; adds a problem for each rule
broken. Written for speed: a sound device costs a few lookups per attribute and no string formatting.
"""

from typing import Final

from dovetail.admission import validate_capacity, validate_placement
from dovetail.kubetypes import field_errors, names
from dovetail.kubetypes.field_errors import Problems
from dovetail.kubetypes.resource import slices

MAX_KEY: Final = (
    slices.MAX_DOMAIN_LENGTH + 1 + slices.MAX_ID_LENGTH
)  # longer keys are shortened in paths
_HUGE_PAGES: Final = "hugepages-"
_SURELY_SHORT: Final = slices.MAX_ATTRIBUTE_VALUE_BYTES // 4  # a character has at most four bytes


def check_device(
    problems: Problems,
    device: slices.Device,
    path: str,
    *,
    old: slices.Device | None,
    selects_nodes: bool,
) -> None:
    """Everything about one device. Capacities and taints stored before are taken as they are."""
    if not names.is_dns_label(device.name):
        names.check_label(problems, f"{path}.name", device.name)
    _check_attributes(problems, device, path)
    if device.capacity and (old is None or old.capacity != device.capacity):
        _check_capacity(problems, device, path)
    if device.taints and (old is None or old.taints != device.taints):
        _check_taints(problems, device, f"{path}.taints")
    if device.consumes_counters:
        _check_consumption(problems, device.consumes_counters, f"{path}.consumesCounters")
    if selects_nodes or _names_nodes(device):
        _check_nodes(problems, device, path, selects_nodes=selects_nodes)
    if device.binding_conditions or device.binding_failure_conditions:
        validate_placement.check_binding_conditions(
            problems, device.binding_conditions, device.binding_failure_conditions, path=path
        )
    if device.node_allocatable_resources:
        _check_node_resources(problems, device, f"{path}.nodeAllocatableResources")


def check_declared(problems: Problems, device: slices.Device, path: str) -> None:
    """The rules upstream declares on the type: they hold even where others stop early or trust the past."""
    for key, attribute in device.attributes.items():
        if _values_given(attribute, empty_lists_count=False) != 1:
            field_errors.invalid(
                problems, f"{path}.attributes[{key}]", "must have exactly one value"
            )
    for index, taint in enumerate(device.taints):
        validate_placement.check_taint_effect(
            problems, taint.effect, f"{path}.taints[{index}].effect"
        )
    if device.consumes_counters:
        _check_consumption(problems, device.consumes_counters, f"{path}.consumesCounters")
    for name, listed in (
        ("bindingConditions", device.binding_conditions),
        ("bindingFailureConditions", device.binding_failure_conditions),
    ):
        if len(listed) > slices.MAX_BINDING_CONDITIONS:
            field_errors.too_many(
                problems, f"{path}.{name}", len(listed), limit=slices.MAX_BINDING_CONDITIONS
            )


def check_counter_set(problems: Problems, counter_set: slices.CounterSet, path: str) -> None:
    """A named set of named counters."""
    if not counter_set.name:
        field_errors.required(problems, f"{path}.name")
    else:
        names.check_label(problems, f"{path}.name", counter_set.name)
    _check_counters(
        problems, counter_set.counters, f"{path}.counters", limit=slices.MAX_COUNTERS_PER_SET
    )


def is_sound(attribute: slices.DeviceAttribute) -> bool:
    """Whether the attribute is one plain value within its limits: a fast check for the common case."""
    if (
        attribute.int_values is not None
        or attribute.bool_values is not None
        or attribute.string_values is not None
        or attribute.version_values is not None
    ):
        return False
    text, version = attribute.string_value, attribute.version_value
    is_plain = attribute.int_value is None and attribute.bool_value is None
    if text is not None:
        fits = (
            len(text) <= _SURELY_SHORT
            or field_errors.byte_length(text) <= slices.MAX_ATTRIBUTE_VALUE_BYTES
        )
        return is_plain and version is None and fits
    if version is not None:
        return (
            is_plain
            and len(version) <= slices.MAX_ATTRIBUTE_VALUE_BYTES
            and names.is_semver(version)
        )
    return (attribute.int_value is None) is not (attribute.bool_value is None)


def _check_attributes(problems: Problems, device: slices.Device, path: str) -> None:
    attributes = device.attributes
    if not names.are_attribute_names(tuple(attributes)):
        for key in attributes:
            names.check_attribute_name(problems, f"{path}.attributes", key)
    unsound = [key for key, attribute in attributes.items() if not is_sound(attribute)]
    for key in unsound:
        _check_attribute(problems, attributes[key], path, key)
    count, limit = len(attributes) + len(device.capacity), slices.MAX_ATTRIBUTES_AND_CAPACITIES
    if count > limit:
        field_errors.invalid(
            problems, path, f"has {count} attributes and capacities, at most {limit} are allowed"
        )
    limit = slices.MAX_ATTRIBUTE_VALUES
    count = sum(_value_count(attributes[key]) for key in unsound) + len(attributes) - len(unsound)
    if count > limit:
        field_errors.invalid(
            problems, path, f"has {count} attribute values, at most {limit} are allowed"
        )


def _check_capacity(problems: Problems, device: slices.Device, path: str) -> None:
    if not names.are_attribute_names(tuple(device.capacity)):
        for key in device.capacity:
            names.check_attribute_name(problems, f"{path}.capacity", key)
    for key, have in device.capacity.items():
        if have.request_policy is not None:
            at = field_errors.map_path(f"{path}.capacity", key, limit=MAX_KEY)
            is_shareable = device.allow_multiple_allocations is True
            validate_capacity.check_capacity(problems, have, at, is_shareable=is_shareable)


def _values_given(attribute: slices.DeviceAttribute, *, empty_lists_count: bool = True) -> int:
    listed = (
        attribute.int_values,
        attribute.bool_values,
        attribute.string_values,
        attribute.version_values,
    )
    scalars = (
        attribute.string_value,
        attribute.int_value,
        attribute.bool_value,
        attribute.version_value,
    )
    lists = [values for values in listed if values is not None]
    if not empty_lists_count:
        lists = [values for values in lists if values]
    return sum(scalar is not None for scalar in scalars) + len(lists)


def _value_count(attribute: slices.DeviceAttribute) -> int:
    listed = (
        attribute.int_values,
        attribute.bool_values,
        attribute.string_values,
        attribute.version_values,
    )
    return sum(len(values) for values in listed if values) or 1


def _check_attribute(
    problems: Problems, attribute: slices.DeviceAttribute, device_path: str, key: str
) -> None:
    path = field_errors.map_path(f"{device_path}.attributes", key, limit=MAX_KEY)
    if attribute.string_value is not None:
        _check_text(problems, attribute.string_value, f"{path}.string")
    if attribute.version_value is not None:
        _check_version(problems, attribute.version_value, f"{path}.version")
    for name, values in (
        ("ints", attribute.int_values),
        ("bools", attribute.bool_values),
        ("strings", attribute.string_values),
        ("versions", attribute.version_values),
    ):
        if values is not None and not values:
            field_errors.invalid(problems, f"{path}.{name}", "must not be empty")
    for index, text in enumerate(attribute.string_values or ()):
        _check_text(problems, text, f"{path}.strings[{index}]")
    for index, text in enumerate(attribute.version_values or ()):
        _check_version(problems, text, f"{path}.versions[{index}]")
    if _values_given(attribute) != 1:
        field_errors.invalid(problems, path, "must have exactly one value")
    if _values_given(attribute, empty_lists_count=False) != 1:
        field_errors.invalid(
            problems, f"{device_path}.attributes[{key}]", "must have exactly one value"
        )


def _check_text(problems: Problems, text: str, path: str) -> None:
    if field_errors.byte_length(text) > slices.MAX_ATTRIBUTE_VALUE_BYTES:
        field_errors.too_long(problems, path, slices.MAX_ATTRIBUTE_VALUE_BYTES)


def _check_version(problems: Problems, text: str, path: str) -> None:
    if not names.is_semver(text):
        field_errors.invalid(
            problems, path, f'"{text[:80]}" must be a semantic version such as 12.4.1'
        )
    _check_text(problems, text, path)


def _check_taints(problems: Problems, device: slices.Device, path: str) -> None:
    if len(device.taints) > slices.MAX_TAINTS:
        field_errors.too_many(problems, path, len(device.taints), limit=slices.MAX_TAINTS)
        for index, taint in enumerate(device.taints):  # effects are looked at all the same
            validate_placement.check_taint_effect(problems, taint.effect, f"{path}[{index}].effect")
        return
    for index, taint in enumerate(device.taints):
        validate_placement.check_taint(problems, taint, f"{path}[{index}]")


def _check_consumption(
    problems: Problems, consumption: tuple[slices.DeviceCounterConsumption, ...], path: str
) -> None:
    if len(consumption) > slices.MAX_COUNTER_CONSUMPTIONS_PER_DEVICE:
        limit = slices.MAX_COUNTER_CONSUMPTIONS_PER_DEVICE
        field_errors.too_many(problems, path, len(consumption), limit=limit)
        return
    if len(consumption) > 1:
        validate_placement.check_unique(
            problems, tuple(entry.counter_set for entry in consumption), path
        )
    for index, entry in enumerate(consumption):
        at = f"{path}[{index}]"
        if not entry.counter_set:
            field_errors.required(problems, f"{at}.counterSet")
        elif not names.is_dns_label(entry.counter_set):
            names.check_label(problems, f"{at}.counterSet", entry.counter_set)
        limit = slices.MAX_COUNTERS_PER_CONSUMPTION
        _check_counters(problems, entry.counters, f"{at}.counters", limit=limit)
        if entry.compatibility_groups:
            _check_groups(problems, entry.compatibility_groups, f"{at}.compatibilityGroups")


def _check_groups(problems: Problems, groups: tuple[str, ...], path: str) -> None:
    if len(groups) > slices.MAX_COMPATIBILITY_GROUPS:
        field_errors.too_many(problems, path, len(groups), limit=slices.MAX_COMPATIBILITY_GROUPS)
        return
    for index, group in enumerate(groups):
        names.check_label(problems, f"{path}[{index}]", group)
    validate_placement.check_unique(problems, groups, path)


def _check_counters(
    problems: Problems, counters: dict[str, slices.Counter], path: str, *, limit: int
) -> None:
    if not counters:
        field_errors.required(problems, path)
    if len(counters) > limit:
        field_errors.too_many(problems, path, len(counters), limit=limit)
    if not names.are_dns_labels(tuple(counters)):
        for name in counters:
            names.check_label(problems, path, name)


def _names_nodes(device: slices.Device) -> bool:
    return (
        device.node_name is not None
        or device.node_selector is not None
        or device.all_nodes is not None
    )


def _check_nodes(
    problems: Problems, device: slices.Device, path: str, *, selects_nodes: bool
) -> None:
    if not selects_nodes:
        field_errors.invalid(
            problems, path, "nodeName, nodeSelector and allNodes need perDeviceNodeSelection: true"
        )
        return
    choices = 0
    if device.node_name is not None:
        if device.node_name:
            choices += 1
            names.check_subdomain(problems, f"{path}.nodeName", device.node_name)
        else:
            field_errors.invalid(problems, f"{path}.nodeName", "must not be empty")
    if device.node_selector is not None:
        choices += 1
        validate_placement.check_node_selector(
            problems, device.node_selector, f"{path}.nodeSelector"
        )
    if device.all_nodes:
        choices += 1
    elif device.all_nodes is not None:
        field_errors.invalid(problems, f"{path}.allNodes", "must be true or absent")
    if choices == 0:
        field_errors.required(problems, path, "needs one of nodeName, nodeSelector, allNodes")
    elif choices > 1:
        field_errors.invalid(
            problems, path, "needs exactly one of nodeName, nodeSelector, allNodes"
        )


def _check_node_resources(problems: Problems, device: slices.Device, path: str) -> None:
    for name, resource in device.node_allocatable_resources.items():
        at = f"{path}[{name}]"
        if name not in ("cpu", "memory") and not name.startswith(_HUGE_PAGES):
            field_errors.invalid(problems, at, "must be cpu, memory or hugepages-<size>")
        if resource.mapping is None and resource.overhead is None:
            field_errors.required(problems, at, "needs mapping or overhead")
        if resource.mapping is not None:
            _check_mapping(problems, resource.mapping, device, f"{at}.mapping")
        if resource.overhead is not None:
            _check_overhead(problems, resource.overhead, f"{at}.overhead")


def _check_mapping(
    problems: Problems, mapping: slices.NodeAllocatableMapping, device: slices.Device, path: str
) -> None:
    key, multiplier = mapping.capacity_key, mapping.capacity_multiplier
    if key is not None:
        if not key:
            field_errors.invalid(problems, f"{path}.capacityKey", "must not be empty")
        elif key not in device.capacity:
            problems.append(
                field_errors.FieldProblem(
                    field_errors.NOT_FOUND,
                    f"{path}.capacityKey",
                    f'no capacity "{key}" on the device',
                )
            )
        if multiplier is None:
            field_errors.required(
                problems, f"{path}.capacityMultiplier", "needed together with capacityKey"
            )
        elif multiplier.sign <= 0:
            field_errors.invalid(
                problems, f"{path}.capacityMultiplier", "must be greater than zero"
            )
    elif multiplier is not None:
        field_errors.required(
            problems, f"{path}.capacityKey", "needed together with capacityMultiplier"
        )
    if mapping.device_multiplier is not None and mapping.device_multiplier.sign <= 0:
        field_errors.invalid(problems, f"{path}.deviceMultiplier", "must be greater than zero")
    if (key is None) == (mapping.device_multiplier is None):
        field_errors.invalid(problems, path, "needs exactly one of capacityKey, deviceMultiplier")


def _check_overhead(
    problems: Problems, overhead: slices.NodeAllocatableOverhead, path: str
) -> None:
    if overhead.per_pod is None and overhead.per_container is None:
        field_errors.invalid(problems, path, "needs perPod or perContainer")
    for name, amount in (("perPod", overhead.per_pod), ("perContainer", overhead.per_container)):
        if amount is not None and amount.sign < 0:
            field_errors.invalid(problems, f"{path}.{name}", "must not be negative")

"""Devices as expressions see them: attributes and capacities by domain, versions parsed."""

from __future__ import annotations

from dovetail import cache
from dovetail.cel.evaluate.frame import DeviceView
from dovetail.cel.evaluate.values import DomainMap, TextMap, Value
from dovetail.errors import SemverError
from dovetail.kubetypes.resource import slices
from dovetail.quantity import semver


def view(driver: str, device: slices.Device) -> DeviceView:
    """The view of a device. If an attribute has no usable value, every evaluation is an error."""
    attributes = DomainMap()
    own = TextMap()
    problem: str | None = None
    for name, attribute in device.attributes.items():
        value: Value = attribute.string_value
        if value is None or _holds_more(attribute):
            value = attribute_value(attribute)
            if value.__class__ is _Unusable:
                problem = problem or f"attribute {name}: {value.reason}"
                continue
        if "/" in name:
            domain, local_name = split_name(name, driver)
            attributes.setdefault(domain, TextMap())[local_name] = value
        else:
            own[name] = value
    if own:
        attributes[driver] = TextMap({**attributes[driver], **own}) if driver in attributes else own
    capacity = DomainMap()
    for name, amount in device.capacity.items():
        domain, local_name = split_name(name, driver)
        capacity.setdefault(domain, TextMap())[local_name] = amount.value
    return DeviceView(
        driver=driver,
        attributes=attributes,
        capacity=capacity,
        allows_multiple=device.allow_multiple_allocations or False,
        problem=problem,
    )


def split_name(name: str, driver: str) -> tuple[str, str]:
    """Domain and id of a qualified name; a bare name belongs to the driver."""
    domain, slash, local_name = name.partition("/")
    return (domain, local_name) if slash else (driver, name)


class _Unusable:
    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


def _holds_more(attribute: slices.DeviceAttribute) -> bool:
    """Whether a value that takes precedence over a string is set too; no valid attribute has one."""
    return (
        attribute.int_value is not None
        or attribute.bool_value is not None
        or attribute.int_values is not None
        or attribute.bool_values is not None
        or attribute.string_values is not None
        or attribute.version_values is not None
    )


def attribute_value(attribute: slices.DeviceAttribute) -> Value:
    """The one value of an attribute: lists before scalars, then int, bool, string, version."""
    for listed in (attribute.int_values, attribute.bool_values, attribute.string_values):
        if listed is not None:
            return list(listed)
    if attribute.version_values is not None:
        return _versions(attribute.version_values)
    if attribute.int_value is not None:
        return attribute.int_value
    if attribute.bool_value is not None:
        return attribute.bool_value
    if attribute.string_value is not None:
        return attribute.string_value
    if attribute.version_value is not None:
        return _version(attribute.version_value)
    return _Unusable("unsupported attribute value")


@cache.remembered(4096)
def _version(text: str) -> Value:
    try:
        return semver.parse(text)
    except SemverError as error:
        return _Unusable(f"parse semantic version: {error}")


def _versions(texts: tuple[str, ...]) -> Value:
    parsed = [_version(text) for text in texts]
    return next((p for p in parsed if p.__class__ is _Unusable), parsed)

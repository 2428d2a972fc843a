"""A device reduced to what an expression reads: the key under which its verdict is cached.

Keys are type-tagged, so that `true`, `1`, `1.0` and `"1"` differ, and absence differs from every value.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable
from typing import Any, Final

from dovetail.cel.evaluate.frame import DeviceView
from dovetail.cel.evaluate.values import Value
from dovetail.cel.reads import OWN_DOMAIN, Path
from dovetail.quantity.quantity import Quantity
from dovetail.quantity.semver import Semver

ABSENT: Final = ("absent",)
_EMPTY: Final[dict[str, Value]] = {}
Project = Callable[[DeviceView], Hashable]


def projector(paths: frozenset[Path]) -> Project:
    """The function from device to key for a set of paths read."""
    leaves = _same_domain(paths)
    if leaves is not None:
        return _leaves_projector(*leaves)
    parts = tuple(_part(path) for path in sorted(paths))
    if len(parts) == 1:
        return parts[0]
    if len(parts) == 2:
        first, second = parts
        return lambda device: (first(device), second(device))
    return lambda device: tuple([part(device) for part in parts])


def _same_domain(paths: frozenset[Path]) -> tuple[str, tuple[str, ...]] | None:
    """The domain and ids when only attributes of one domain are read, as most selectors do."""
    domains = {
        path[1]
        for path in paths
        if len(path) == 3 and path[0] == "attributes" and path[1] != OWN_DOMAIN
    }
    if len(domains) != 1 or any(len(path) != 3 or path[0] != "attributes" for path in paths):
        return None
    return domains.pop(), tuple(sorted(path[2] for path in paths))


def _leaves_projector(domain: str, names: tuple[str, ...]) -> Project:
    """Reads all ids at once; only values other than text need their tags."""
    read = operator.itemgetter(*names)

    def absent_or_tagged(entries: dict[str, Value]) -> Hashable:
        return tuple([tagged(entries[name]) if name in entries else ABSENT for name in names])

    def project_one(device: DeviceView) -> Hashable:
        value: Any = device.attributes.get(domain, _EMPTY).get(names[0], ABSENT)
        if value.__class__ is str:
            return str(value)
        return ABSENT if value is ABSENT else tagged(value)

    def project_two(device: DeviceView) -> Hashable:
        entries = device.attributes.get(domain, _EMPTY)
        try:
            first, second = pair = read(entries)
        except KeyError:
            return absent_or_tagged(entries)
        if first.__class__ is str and second.__class__ is str:
            return pair  # type: ignore[no-any-return]
        return tagged(first), tagged(second)

    def project_many(device: DeviceView) -> Hashable:
        return absent_or_tagged(device.attributes.get(domain, _EMPTY))

    return {1: project_one, 2: project_two}.get(len(names), project_many)


def tagged(value: Value) -> Hashable:
    """A hashable stand-in: two values share it only if no expression can distinguish them."""
    kind = value.__class__
    if kind is str:
        return str(value)
    if kind is list:
        return (list, tuple(tagged(item) for item in value))
    if isinstance(value, dict):
        return (dict, tuple(sorted((name, tagged(item)) for name, item in value.items())))
    if kind is Quantity:
        return (kind, value.nanos, value.is_big, value.exponent)
    if kind is Semver:
        return (kind, str(value))
    return (kind, value)


def _part(path: Path) -> Project:
    match path:
        case ():
            return _whole
        case ("driver",):
            return lambda device: device.driver
        case ("allowMultipleAllocations",):
            return lambda device: device.allows_multiple
        case (field,):
            return lambda device: _domains(getattr(device, field))
        case (field, domain):
            return _domain_part(field, domain)
        case (field, domain, name):
            return _leaf_part(field, domain, name)
    raise AssertionError(f"unknown path {path!r}")


def _domain_part(field: str, domain: str) -> Project:
    def project(device: DeviceView) -> Hashable:
        where = device.driver if domain == OWN_DOMAIN else domain
        entries = getattr(device, field).get(where)
        return ABSENT if entries is None else tagged(entries)

    return project


def _leaf_part(field: str, domain: str, name: str) -> Project:
    if domain == OWN_DOMAIN or field != "attributes":

        def project(device: DeviceView) -> Hashable:
            where = device.driver if domain == OWN_DOMAIN else domain
            value = getattr(device, field).get(where, _EMPTY).get(name, ABSENT)
            return ABSENT if value is ABSENT else tagged(value)

    else:

        def project(device: DeviceView) -> Hashable:
            value: Any = device.attributes.get(domain, _EMPTY).get(name, ABSENT)
            if value.__class__ is str:
                return str(value)
            return ABSENT if value is ABSENT else tagged(value)

    return project


def _domains(maps: dict[str, dict[str, Value]]) -> Hashable:
    return tuple(sorted((domain, tagged(entries)) for domain, entries in maps.items()))


def _whole(device: DeviceView) -> Hashable:
    return (
        device.driver,
        device.allows_multiple,
        _domains(device.attributes),
        _domains(device.capacity),
    )

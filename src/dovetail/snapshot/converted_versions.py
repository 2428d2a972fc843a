"""Converts objects of older API versions to the versions that the World is made of.

Given a tree as a dump holds it; returns a new tree, or why it has no place in the newer version. resource.k8s.io is
converted as an API server does: flat requests become `exactly`, `basic` devices plain ones. Events of core v1 become
those of events.k8s.io. Never fills in defaults, never changes its input.
"""

from __future__ import annotations

from typing import Any, Final

from dovetail.kubetypes import registry
from dovetail.kubetypes.core import api_events

Tree = dict[str, Any]

_RESOURCE_GROUP: Final = "resource.k8s.io"
# Versions in which requests are flat and devices have one sort, `basic`.
_FLAT: Final = frozenset({"v1alpha3", "v1beta1"})
_OLDER_RESOURCE: Final = _FLAT | {"v1beta2"}
_REQUESTING: Final = frozenset({"ResourceClaim", "ResourceClaimTemplate"})
# What a flat request has for itself; everything else describes its devices.
_OF_REQUEST: Final = frozenset({"name", "firstAvailable", "exactly"})
# Ways to choose devices that DeviceTaintRules of v1alpha3 had before Kubernetes 1.35.
_DROPPED_SELECTORS: Final = ("deviceClassName", "selectors")

_BY_TYPE: Final = {(kind.group, kind.name): kind for kind in registry.ALL}


class UnreadVersion(ValueError):
    """An object that has no place in the version that is read; `field` is where it says so."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def is_current(api_version: str, kind: str) -> bool:
    """Whether objects of a type are read as they are written."""
    if kind == "Event":
        return api_version == registry.EVENT.api_version
    known = _BY_TYPE.get((api_version.rpartition("/")[0], kind))
    return known is None or not known.is_in_world or known.api_version == api_version


def converted(tree: Tree) -> Tree:
    """The object in the version that is read. Raises UnreadVersion where there is no way."""
    api_version, kind = tree["apiVersion"], tree["kind"]
    if is_current(api_version, kind):
        return tree
    if kind == "Event" and api_version in ("v1", "events.k8s.io/v1beta1"):
        return api_events.from_core(tree)
    group, _, version = api_version.rpartition("/")
    known = _BY_TYPE.get((group, kind))
    if known is None:
        return tree
    if group == _RESOURCE_GROUP and version in _OLDER_RESOURCE:
        return _resource(tree, version) | {"apiVersion": known.api_version}
    if api_version in known.older_versions:
        return tree | {"apiVersion": known.api_version}
    expected = ", ".join([known.api_version, *_readable_versions(known)])
    raise UnreadVersion("apiVersion", f"{api_version} is not read; expected {expected}")


def _readable_versions(kind: registry.Kind) -> list[str]:
    if kind.group != _RESOURCE_GROUP:
        return list(kind.older_versions)
    return [f"{_RESOURCE_GROUP}/{version}" for version in sorted(_OLDER_RESOURCE, reverse=True)]


def _resource(tree: Tree, version: str) -> Tree:
    kind = tree["kind"]
    if kind == registry.TAINT_RULE.name:
        _refuse_dropped_selectors(tree)
        return tree
    if version not in _FLAT:
        return tree
    if kind == registry.SLICE.name:
        return _changed(tree, ("spec", "devices"), _plain_devices)
    if kind == registry.CLAIM.name:
        return _changed(tree, ("spec", "devices", "requests"), _exact_requests)
    if kind == registry.TEMPLATE.name:
        return _changed(tree, ("spec", "spec", "devices", "requests"), _exact_requests)
    return tree


def _refuse_dropped_selectors(tree: Tree) -> None:
    """Raises for a rule that reaches fewer devices than the fields that are left would say."""
    spec = tree.get("spec")
    selector = spec.get("deviceSelector") if isinstance(spec, dict) else None
    if not isinstance(selector, dict):
        return
    for name in _DROPPED_SELECTORS:
        if selector.get(name):
            raise UnreadVersion(
                f"spec.deviceSelector.{name}",
                f"{tree['apiVersion']} had it, newer versions do not; its devices are not known",
            )


def _changed(tree: Tree, path: tuple[str, ...], change: Any) -> Tree:
    """The tree with a list at a path changed; as it is where there is no such list."""
    name, *below = path
    value = tree.get(name)
    if not below:
        return tree | {name: change(value)} if isinstance(value, list) else tree
    return tree | {name: _changed(value, (*below,), change)} if isinstance(value, dict) else tree


def _exact_requests(requests: list[Any]) -> list[Any]:
    return [_exact_request(each) if isinstance(each, dict) else each for each in requests]


def _exact_request(request: Tree) -> Tree:
    if request.get("firstAvailable") or request.get("exactly"):
        # Go writes the empty deviceClassName of a request that has alternatives.
        return {name: value for name, value in request.items() if name in _OF_REQUEST}
    own = {name: value for name, value in request.items() if name in _OF_REQUEST and value}
    exactly = {name: value for name, value in request.items() if name not in _OF_REQUEST}
    return own | {"exactly": exactly}


def _plain_devices(devices: list[Any]) -> list[Any]:
    return [_plain_device(each) if isinstance(each, dict) else each for each in devices]


def _plain_device(device: Tree) -> Tree:
    basic = device.get("basic")
    if not isinstance(basic, dict):
        return device
    plain = {name: value for name, value in device.items() if name != "basic"} | basic
    capacity = plain.get("capacity")
    if isinstance(capacity, dict):  # v1alpha3 wrote amounts alone
        plain["capacity"] = {
            name: value if isinstance(value, dict) else {"value": value}
            for name, value in capacity.items()
        }
    return plain

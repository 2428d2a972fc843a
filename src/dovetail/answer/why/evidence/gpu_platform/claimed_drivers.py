"""The drivers whose devices a pod's claims ask for, and what those drivers publish.

Given the replica. A class names its driver in its expressions; a class that names none, and alternatives of several
drivers, are left out. Never judges whether published devices suit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from dovetail.answer.replica.replica import Replica
from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims, device_classes
from dovetail.kubetypes.resource import slices as resource_slices

_IN_SELECTOR: Final = re.compile(r"""device\.driver\s*==\s*["'](?P<driver>[^"']+)["']""")


def drivers_of_claims(replica: Replica, pod: pods.Pod) -> list[str]:
    """The drivers whose devices the pod's claims ask for, as far as the classes name them."""
    names: dict[str, None] = {}
    by_name = {each.metadata.name: each for each in classes(replica)}
    for claim in _claim_specs(replica, pod):
        for request in claim.requests:
            options = (request.exactly,) if request.exactly else request.first_available
            drivers = set()
            for option in options:
                device_class = by_name.get(option.device_class_name)
                drivers.add(driver_of_class(device_class) if device_class else "")
            if len(drivers) == 1:  # alternatives of several drivers are the engine's to judge
                names[drivers.pop()] = None
    return [name for name in names if name]


def _claim_specs(replica: Replica, pod: pods.Pod) -> Iterator[claims.DeviceClaim]:
    namespace = pod.metadata.namespace
    for entry in pod.spec.resource_claims:
        claim_name, template_name = entry.resource_claim_name, entry.resource_claim_template_name
        if claim_name:
            key = object_set.Key(registry.CLAIM.unique_name, namespace, claim_name)
            stored = replica.get(key)
            if stored is not None and isinstance(stored.struct, claims.ResourceClaim):
                yield stored.struct.spec.devices
        elif template_name:
            key = object_set.Key(registry.TEMPLATE.unique_name, namespace, template_name)
            stored = replica.get(key)
            if stored is not None and isinstance(stored.struct, claims.ResourceClaimTemplate):
                yield stored.struct.spec.spec.devices


def classes(replica: Replica) -> Iterator[device_classes.DeviceClass]:
    """Every device class."""
    for stored in replica.listed(registry.DEVICE_CLASS.unique_name):
        if isinstance(stored.struct, device_classes.DeviceClass):
            yield stored.struct


def driver_of_class(device_class: device_classes.DeviceClass) -> str:
    """The driver a class selects by its expressions; empty where they do not name one."""
    for selector in device_class.spec.selectors:
        expression = selector.cel.expression if selector.cel is not None else ""
        if match := _IN_SELECTOR.search(expression):
            return match["driver"]
    return ""


def slices(replica: Replica, driver: str) -> Iterator[resource_slices.ResourceSlice]:
    """The slices of a driver, or of every driver where none is given."""
    for stored in replica.listed(registry.SLICE.unique_name):
        struct = stored.struct
        if isinstance(struct, resource_slices.ResourceSlice) and driver in ("", struct.spec.driver):
            yield struct

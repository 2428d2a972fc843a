"""Finds the GPUs of which claims may have a part: several claims at once, each with some of the memory.

Given the published devices. NVIDIA's driver publishes GPUs so where shares are configured. Never reads allocations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from dovetail.kubetypes.resource import capacity
from dovetail.model import share_templates
from dovetail.world.devices.device_columns import Devices, Template

_TYPE = "type"  # attribute of NVIDIA's driver
_GPU = "gpu"


def count_by_kind(published: Iterable[Devices]) -> Counter[share_templates.Kind]:
    """How many GPUs of which kind offer shares of their memory. Linear in the devices of NVIDIA's driver."""
    counts: Counter[share_templates.Kind] = Counter()
    for devices in published:
        if devices.driver != share_templates.DRIVER:
            continue
        types = devices.column(_TYPE) or ()
        for template, kind in zip(devices.templates, types, strict=False):
            if kind is not None and kind.string_value == _GPU and _offers_shares(template):
                memory = template.capacity[share_templates.MEMORY].value.value()
                whole = template.capacity.get(share_templates.SHARE)
                thousandths = 0 if whole is None else whole.value.milli_value()
                counts[share_templates.Kind(memory, thousandths)] += 1
    return counts


def _offers_shares(template: Template) -> bool:
    """Whether a request for some of the memory leaves something of every capacity to others."""
    memory = template.capacity.get(share_templates.MEMORY)
    if memory is None or memory.value.sign <= 0 or not template.allow_multiple_allocations:
        return False
    named = (share_templates.MEMORY, share_templates.SHARE)
    others = [each for name, each in template.capacity.items() if name not in named]
    return memory.request_policy is not None and all(map(_leaves_some, others))


def _leaves_some(offered: capacity.DeviceCapacity) -> bool:
    """Whether a share that does not request this capacity takes less than all of it."""
    policy = offered.request_policy
    default = None if policy is None else policy.default
    return default is not None and default.nanos < offered.value.nanos

"""Finds the GPUs of which claims may have a part: several claims at once, each with some of the memory.

Given the published devices. NVIDIA's driver publishes GPUs so where shares are configured. Never reads allocations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from dovetail.model import share_templates
from dovetail.world.devices.device_columns import Devices

_TYPE = "type"  # attribute of NVIDIA's driver
_GPU = "gpu"


def count_by_size(published: Iterable[Devices]) -> Counter[int]:
    """How many GPUs of which memory in bytes offer shares of it. Linear in the devices of NVIDIA's driver."""
    sizes: Counter[int] = Counter()
    for devices in published:
        if devices.driver != share_templates.DRIVER:
            continue
        types = devices.column(_TYPE) or ()
        for template, kind in zip(devices.templates, types, strict=False):
            memory = template.capacity.get(share_templates.MEMORY)
            is_gpu = kind is not None and kind.string_value == _GPU
            if not is_gpu or memory is None or not template.allow_multiple_allocations:
                continue
            # Without a policy every share would take all of the memory.
            if memory.request_policy is not None and memory.value.sign > 0:
                sizes[memory.value.value()] += 1
    return sizes

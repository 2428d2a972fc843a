"""Index over the templates of a pool's devices: which are shareable, tainted, or draw on which counters.

Given a pool's devices; computed once per interned group of templates, so ten thousand pools with the same templates
share one index. Never reads attributes, names or usage.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dovetail import cache
from dovetail.kubetypes.node_selectors import DeviceTaint
from dovetail.world.devices.device_columns import Devices, Template

# resource.k8s.io/v1. The effect None, and effects this version does not know, keep no request away.
_BLOCKING = ("NoSchedule", "NoExecute")
_MEMO_SIZE = 4096

Charge = tuple[str, str, int]  # counter set, counter, nanos
Sizes = dict[str, tuple[int, int]]  # capacity -> smallest and largest among some devices, in nanos


class PoolIndex:
    """The index of one pool. Masks have a bit per device, like those of a PoolView."""

    __slots__ = (
        "binding",
        "charged",
        "charges",
        "kinds",
        "offering",
        "shareable",
        "sizes",
        "taints",
        "templates",
    )

    def __init__(self, templates: tuple[Template, ...]) -> None:
        self.templates = templates
        masks: dict[int, tuple[Template, int]] = {}
        for index, template in enumerate(templates):
            mask = masks.get(id(template), (template, 0))[1]
            masks[id(template)] = (template, mask | 1 << index)
        self.kinds = tuple(masks.values())  # each distinct template and the mask of its devices
        self.shareable = 0
        self.binding = 0
        self.charged = 0
        self.charges: dict[int, tuple[Charge, ...]] = {}  # by id of the template
        taints: dict[tuple[DeviceTaint, ...], int] = {}
        for template, mask in self.kinds:
            if template.allow_multiple_allocations:
                self.shareable |= mask
            if template.binding_conditions:
                self.binding |= mask
            if template.consumes_counters:
                self.charged |= mask
                self.charges[id(template)] = charges_of(template)
            if blocking := blocking_taints(template.taints):
                taints[blocking] = taints.get(blocking, 0) | mask
        self.taints = tuple(taints.items())
        self.offering: dict[tuple[object, ...], int] = {}
        self.sizes: dict[int, Sizes] = {}

    def charges_at(self, index: int) -> tuple[Charge, ...]:
        """What the device draws from counters."""
        return self.charges.get(id(self.templates[index]), ())

    def sizes_of(self, mask: int) -> Sizes:
        """The smallest and largest of each capacity among some devices; a device without it counts as 0."""
        sizes = self.sizes.get(mask)
        if sizes is None:
            sizes = self._sizes(mask)
            if len(self.sizes) >= _MEMO_SIZE:
                self.sizes.clear()
            self.sizes[mask] = sizes
        return sizes

    def _sizes(self, mask: int) -> Sizes:
        total: Sizes | None = None
        for template, devices in self.kinds:
            if not devices & mask:
                continue
            sizes = {
                name: (capacity.value.nanos, capacity.value.nanos)
                for name, capacity in template.capacity.items()
            }
            total = sizes if total is None else joined(total, sizes)
        return total or {}

    def keep_offering(self, key: tuple[object, ...], mask: int) -> int:
        """Caches which of some devices offer the capacity that a request asks for."""
        if len(self.offering) >= _MEMO_SIZE:
            self.offering.clear()
        self.offering[key] = mask
        return mask


def joined(first: Sizes, second: Sizes) -> Sizes:
    """The sizes of two sets of devices together."""
    sizes: Sizes = {}
    for name in dict.fromkeys((*first, *second)):
        smallest, largest = first.get(name, (0, 0))
        smallest_second, largest_second = second.get(name, (0, 0))
        sizes[name] = (min(smallest, smallest_second), max(largest, largest_second))
    return sizes


def charges_of(template: Template) -> tuple[Charge, ...]:
    """What a device draws from each counter; a set that is named twice is added up."""
    total: dict[tuple[str, str], int] = {}
    for consumption in template.consumes_counters:
        for name, counter in consumption.counters.items():
            key = (consumption.counter_set, name)
            total[key] = total.get(key, 0) + counter.value.nanos
    return tuple((set_name, name, amount) for (set_name, name), amount in total.items())


def blocking_taints(taints: tuple[DeviceTaint, ...]) -> tuple[DeviceTaint, ...]:
    """The taints that keep away requests which do not tolerate them."""
    return tuple(taint for taint in taints if taint.effect in _BLOCKING)


_BY_TEMPLATES: Final = cache.Memo[int, PoolIndex](_MEMO_SIZE)


def pool_index_of(devices: Devices) -> PoolIndex:
    """The facts of the devices' templates, worked out once."""
    templates = devices.templates
    facts = _BY_TEMPLATES.get(id(templates))
    if facts is None:
        facts = PoolIndex(templates)
        _BY_TEMPLATES.put(id(templates), facts, alive=templates)
    return facts


def bits(mask: int) -> Iterator[int]:
    """The positions of the bits that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low

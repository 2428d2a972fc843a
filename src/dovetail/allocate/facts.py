"""What the templates of a pool's devices say once and for all: who is shareable, tainted, draws on which counters.

Given a pool's devices; the answers are kept for as long as the templates live, so that ten thousand pools with the
same templates ask once. Never reads attributes, names or use.
"""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.model.selectors import DeviceTaint
from dovetail.world.devices import Devices, Template

_BLOCKING = ("NoSchedule", "NoExecute")  # resource.k8s.io/v1; None and effects of the future keep nobody away
_MEMO_SIZE = 4096

Charge = tuple[str, str, int]  # counter set, counter, nanos
Sizes = dict[str, tuple[int, int]]  # capacity -> least and most among some devices, in nanos


class Facts:
    """Masks have a bit per device, like those of a pool."""

    __slots__ = ("binding", "charged", "charges", "kinds", "offering", "shareable", "sizes", "taints", "templates")

    def __init__(self, templates: tuple[Template, ...]) -> None:
        self.templates = templates
        masks: dict[int, tuple[Template, int]] = {}
        for index, template in enumerate(templates):
            known = masks.get(id(template), (template, 0))[1]
            masks[id(template)] = (template, known | 1 << index)
        self.kinds = tuple(masks.values())  # each distinct template and the devices that have it
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
        """The least and most of each capacity among some devices; nothing of it counts as none."""
        known = self.sizes.get(mask)
        if known is None:
            known = {}
            for number, template in enumerate(template for template, devices in self.kinds if devices & mask):
                mine = {name: (one.value.nanos, one.value.nanos) for name, one in template.capacity.items()}
                known = mine if number == 0 else joined(known, mine)
            if len(self.sizes) >= _MEMO_SIZE:
                self.sizes.clear()
            self.sizes[mask] = known
        return known

    def keep_offering(self, key: tuple[object, ...], mask: int) -> int:
        """Remembers which of some devices offer what a request asks for."""
        if len(self.offering) >= _MEMO_SIZE:
            self.offering.clear()
        self.offering[key] = mask
        return mask


def joined(one: Sizes, other: Sizes) -> Sizes:
    """The sizes of two lots of devices together."""
    found: Sizes = {}
    for name in (*one, *(name for name in other if name not in one)):
        low, high = zip(one.get(name, (0, 0)), other.get(name, (0, 0)), strict=True)
        found[name] = (min(low), max(high))
    return found


def charges_of(template: Template) -> tuple[Charge, ...]:
    """What a device draws from each counter, a set named twice added up."""
    total: dict[tuple[str, str], int] = {}
    for consumption in template.consumes_counters:
        for name, counter in consumption.counters.items():
            key = (consumption.counter_set, name)
            total[key] = total.get(key, 0) + counter.value.nanos
    return tuple((set_name, name, amount) for (set_name, name), amount in total.items())


def blocking_taints(taints: tuple[DeviceTaint, ...]) -> tuple[DeviceTaint, ...]:
    """Those that keep away requests which do not tolerate them."""
    return tuple(taint for taint in taints if taint.effect in _BLOCKING)


_known: dict[int, Facts] = {}


def facts_of(devices: Devices) -> Facts:
    """The facts of the devices' templates, worked out once."""
    found = _known.get(id(devices.templates))
    if found is None:
        if len(_known) >= _MEMO_SIZE:
            _known.clear()
        found = _known[id(devices.templates)] = Facts(devices.templates)  # holds the templates: their id stays theirs
    return found


def bits(mask: int) -> Iterator[int]:
    """The positions of the bits that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low

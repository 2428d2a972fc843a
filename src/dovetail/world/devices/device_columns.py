"""Devices in columns: what they have in common is stored once, however many nodes publish it.

A pool's devices are a tuple of names, a tuple of templates (everything but name and attributes) and a column per
attribute. Names, templates and columns are interned, so ten thousand identical nodes share them; only columns whose
values are unique to a node, such as uuids, exist once per node. Whether two pools look alike to a reader of some
columns is a comparison of object identities: exact, and no attribute is special.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple, TypeVar, cast

import msgspec

from dovetail.cel import device_views
from dovetail.cel.evaluate.frame import DeviceView
from dovetail.kubetypes import codec
from dovetail.kubetypes.node_selectors import NodeSelector
from dovetail.kubetypes.resource import slices

Column = tuple[slices.DeviceAttribute | None, ...]
Template = slices.Device  # with an empty name and no attributes
T = TypeVar("T")


class Origin(NamedTuple):
    """Where a slice's devices can be used: on one node, by a selector, on all nodes, or device by device."""

    node_name: str | None
    node_selector: NodeSelector | None
    all_nodes: bool
    is_per_device: bool


class Devices:
    """The devices of a pool's slices, one slice after the other. Compared by identity."""

    __slots__ = (
        "__weakref__",
        "attributes",
        "columns",
        "counter_sets",
        "driver",
        "names",
        "origins",
        "templates",
    )

    def __init__(
        self,
        *,
        driver: str,
        names: tuple[str, ...],
        templates: tuple[Template, ...],
        attributes: tuple[str, ...],
        columns: tuple[Column, ...],
        origins: tuple[Origin, ...],
        counter_sets: tuple[slices.CounterSet, ...],
    ) -> None:
        self.driver = driver
        self.names = names
        self.templates = templates
        self.attributes = attributes  # names of the columns, sorted
        self.columns = columns
        self.origins = origins  # per device
        self.counter_sets = counter_sets

    def __len__(self) -> int:
        return len(self.names)

    def column(self, attribute: str) -> Column | None:
        """The values of one attribute under exactly this name, device by device; None if no device has it."""
        try:
            return self.columns[self.attributes.index(attribute)]
        except ValueError:
            return None

    def device(self, index: int) -> slices.Device:
        """One device as it was published."""
        attributes = {
            name: value
            for name, column in zip(self.attributes, self.columns, strict=True)
            if (value := column[index]) is not None
        }
        return msgspec.structs.replace(
            self.templates[index], name=self.names[index], attributes=attributes
        )

    def view(self, index: int) -> DeviceView:
        """One device as selectors see it."""
        return device_views.view(self.driver, self.device(index))


class Interner:
    """Keeps one copy of equal values, and what was derived from them: identity stands for equality."""

    def __init__(self) -> None:
        self._derived: dict[tuple[object, ...], object] = {}
        self._values: dict[object, object] = {}
        self._templates: dict[bytes, Template] = {}
        self._groups: dict[tuple[int, ...], tuple[Template, ...]] = {}
        self._counters: dict[bytes, tuple[slices.CounterSet, ...]] = {}

    def devices(self, part: slices.ResourceSlice) -> Devices:
        """The devices of one slice."""
        devices = part.spec.devices
        attributes = sorted({name for device in devices for name in device.attributes})
        columns = [self._column(name, devices) for name in attributes]
        return Devices(
            driver=part.spec.driver,
            names=self._interned(tuple(device.name for device in devices)),
            templates=self._group(tuple(self._template(device) for device in devices)),
            attributes=self._interned(tuple(attributes)),
            columns=tuple(columns),
            origins=self._interned((origin_of(part),) * len(devices)),
            counter_sets=self._counter_sets(part.spec.shared_counters),
        )

    def derived(self, name: str, *parts: object, make: Callable[[], T]) -> T:
        """A value computed from interned parts, once for all pools that share these parts."""
        key = (name, *map(id, parts))
        if key not in self._derived:
            self._derived[key] = make()
        return cast("T", self._derived[key])

    def joined(self, driver: str, parts: Sequence[Devices]) -> Devices:
        """The devices of several slices, one after the other."""
        if len(parts) == 1:
            return parts[0]
        attributes = sorted({name for part in parts for name in part.attributes})
        columns = []
        for name in attributes:
            values: list[slices.DeviceAttribute | None] = []
            for part in parts:
                values += part.column(name) or (None,) * len(part)
            columns.append(self._interned(tuple(values)))
        return Devices(
            driver=driver,
            names=self._interned(tuple(chain.from_iterable(part.names for part in parts))),
            templates=self._group(tuple(chain.from_iterable(part.templates for part in parts))),
            attributes=self._interned(tuple(attributes)),
            columns=tuple(columns),
            origins=self._interned(tuple(chain.from_iterable(part.origins for part in parts))),
            counter_sets=self._counter_sets(
                tuple(chain.from_iterable(part.counter_sets for part in parts))
            ),
        )

    def _template(self, device: slices.Device) -> Template:
        bare = msgspec.structs.replace(device, name="", attributes={})
        return self._templates.setdefault(codec.encode_struct(bare), bare)

    def _column(self, name: str, devices: Sequence[slices.Device]) -> Column:
        """The values of one attribute. Most of the time a World of many nodes takes is spent here: no calls."""
        known = self._values
        values = []
        for device in devices:
            value = device.attributes.get(name)
            if value is not None:
                value = cast("slices.DeviceAttribute", known.setdefault(value, value))
            values.append(value)
        return self._interned(tuple(values))

    def _counter_sets(self, sets: tuple[slices.CounterSet, ...]) -> tuple[slices.CounterSet, ...]:
        key = b"\n".join(map(codec.encode_struct, sets))
        return self._counters.setdefault(key, tuple(sets))

    def _group(self, templates: tuple[Template, ...]) -> tuple[Template, ...]:
        # Templates are interned already and hold dicts, so their identities make the key.
        return self._groups.setdefault(tuple(map(id, templates)), templates)

    def _interned(self, value: T) -> T:
        return cast("T", self._values.setdefault(value, value))


def origin_of(part: slices.ResourceSlice) -> Origin:
    """Where a slice says its devices can be used."""
    spec = part.spec
    return Origin(
        spec.node_name,
        spec.node_selector,
        spec.all_nodes or False,
        spec.per_device_node_selection or False,
    )

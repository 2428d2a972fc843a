"""Devices in columns: what they have in common is kept once, however many nodes publish it.

A pool's devices are a tuple of names, a tuple of templates (everything but name and attributes) and a column per
attribute. Names, templates and columns are interned, so ten thousand identical nodes share them; only columns whose
values are unique to a node, such as uuids, exist once per node. Whether two pools look alike to somebody who reads
some columns is a comparison of object identities: exact, and no attribute is special.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar, cast

import msgspec

from dovetail.cel import devices as views
from dovetail.cel.frame import DeviceView
from dovetail.model import objects, slices
from dovetail.model.selectors import NodeSelector

Column = tuple[slices.DeviceAttribute | None, ...]
Template = slices.Device  # with an empty name and no attributes
T = TypeVar("T")


class Origin(NamedTuple):
    """Where a slice says its devices can be used: one of a node, a selector, all nodes, or device by device."""

    node_name: str | None
    node_selector: NodeSelector | None
    all_nodes: bool
    is_per_device: bool


class Devices:
    """The devices of a pool's slices, one slice after the other. Compared by identity."""

    __slots__ = ("__weakref__", "attributes", "columns", "counter_sets", "driver", "names", "origins", "templates")

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
        """The values of one attribute under exactly this name, device by device; None where no device has it."""
        try:
            return self.columns[self.attributes.index(attribute)]
        except ValueError:
            return None

    def device(self, index: int) -> slices.Device:
        """One device as it was published."""
        found = {
            name: value
            for name, column in zip(self.attributes, self.columns, strict=True)
            if (value := column[index]) is not None
        }
        return msgspec.structs.replace(self.templates[index], name=self.names[index], attributes=found)

    def view(self, index: int) -> DeviceView:
        """One device as selectors see it."""
        return views.view(self.driver, self.device(index))


class Interner:
    """Keeps one copy of equal things, and what was derived from them: identity stands for equality."""

    def __init__(self) -> None:
        self._derived: dict[tuple[object, ...], object] = {}
        self._values: dict[object, object] = {}
        self._templates: dict[bytes, Template] = {}
        self._groups: dict[tuple[int, ...], tuple[Template, ...]] = {}
        self._counters: dict[bytes, tuple[slices.CounterSet, ...]] = {}

    def devices(self, part: slices.ResourceSlice) -> Devices:
        """The devices of one slice."""
        listed = part.spec.devices
        names = sorted({name for device in listed for name in device.attributes})
        return Devices(
            driver=part.spec.driver,
            names=self._one(tuple(device.name for device in listed)),
            templates=self._one_of(tuple(self._template(device) for device in listed)),
            attributes=self._one(tuple(names)),
            columns=tuple(self._one(tuple(self._value(d.attributes.get(name)) for d in listed)) for name in names),
            origins=self._one((_origin(part),) * len(listed)),
            counter_sets=self._counter_sets(part.spec.shared_counters),
        )

    def derived(self, name: str, *parts: object, make: Callable[[], T]) -> T:
        """Something computed from interned things, computed once for all who have the same."""
        key = (name, *map(id, parts))
        if key not in self._derived:
            self._derived[key] = make()
        return cast("T", self._derived[key])

    def joined(self, driver: str, parts: Sequence[Devices]) -> Devices:
        """The devices of several slices, one after the other."""
        if len(parts) == 1:
            return parts[0]
        names = sorted({name for part in parts for name in part.attributes})
        return Devices(
            driver=driver,
            names=self._one(tuple(name for part in parts for name in part.names)),
            templates=self._one_of(tuple(template for part in parts for template in part.templates)),
            attributes=self._one(tuple(names)),
            columns=tuple(
                self._one(tuple(v for part in parts for v in part.column(name) or (None,) * len(part)))
                for name in names
            ),
            origins=self._one(tuple(origin for part in parts for origin in part.origins)),
            counter_sets=self._counter_sets(tuple(one for part in parts for one in part.counter_sets)),
        )

    def _template(self, device: slices.Device) -> Template:
        bare = msgspec.structs.replace(device, name="", attributes={})
        return self._templates.setdefault(objects.encode_struct(bare), bare)

    def _value(self, value: slices.DeviceAttribute | None) -> slices.DeviceAttribute | None:
        return None if value is None else self._one(value)

    def _counter_sets(self, sets: tuple[slices.CounterSet, ...]) -> tuple[slices.CounterSet, ...]:
        key = b"\n".join(map(objects.encode_struct, sets))
        return self._counters.setdefault(key, tuple(sets))

    def _one_of(self, templates: tuple[Template, ...]) -> tuple[Template, ...]:
        # Templates are interned already and hold dicts, so their identities make the key.
        return self._groups.setdefault(tuple(map(id, templates)), templates)

    def _one(self, value: T) -> T:
        return cast("T", self._values.setdefault(value, value))


def _origin(part: slices.ResourceSlice) -> Origin:
    spec = part.spec
    return Origin(spec.node_name, spec.node_selector, spec.all_nodes or False, spec.per_device_node_selection or False)

"""The largest sizes of the parts of a device, by their path from `device`.

Given a path of names, returns a size range or None. Uses the limits of the API, never a device.
"""

from __future__ import annotations

from typing import Final

from dovetail import cache
from dovetail.cel.cost.cost_range import Range

DEVICE: Final = "device"
KEYS: Final = "@keys"
VALUES: Final = "@values"
INDICES: Final = "@indices"
ITEMS: Final = "@items"

# resource.k8s.io/v1
DRIVER_NAME_LENGTH: Final = 63
DOMAIN_LENGTH: Final = 63
ID_LENGTH: Final = 32
ENTRIES_PER_DEVICE: Final = 32  # attributes and capacities together


class Path:
    """The names from a variable to a part of it; the empty path names no part.

    Storage is shared and grows by doubling; a path extended twice loses the first extension while there is
    room. Upstream's paths do the same, with a visible effect: in `device.attributes["d"].exists(k, v, ...)` the key `k`
    is taken to be as long as an attribute value.
    """

    __slots__ = ("_length", "_room")

    def __init__(self, room: list[str], length: int) -> None:
        self._room = room
        self._length = length

    @classmethod
    def of(cls, variable: str) -> Path:
        """The path of a variable itself."""
        return cls([variable], 1)

    def plus(self, name: str) -> Path:
        """One step further."""
        room = self._room
        if self._length == len(room):
            room = room + [""] * max(1, len(room))
        room[self._length] = name
        return Path(room, self._length + 1)

    def fork(self, name: str) -> Path:
        """One step further, in separate storage."""
        return Path([*self.names(), name], self._length + 1)

    def names(self) -> list[str]:
        """The names as they stand now."""
        return self._room[: self._length]

    def __bool__(self) -> bool:
        return self._length > 0


NOWHERE: Final = Path([], 0)


class Shape:
    """A declared part of the device: its largest size, and its parts."""

    __slots__ = ("element", "fields", "key", "most")

    def __init__(
        self,
        most: int,
        *,
        key: Shape | None = None,
        element: Shape | None = None,
        fields: dict[str, Shape] | None = None,
    ) -> None:
        self.most = most
        self.key = key
        self.element = element
        self.fields = fields or {}


class DeviceSizes:
    """The sizes of everything reachable from `device`."""

    def __init__(self, attribute_max: int) -> None:
        self._attribute = Shape(attribute_max)
        self._device = Shape(
            0,
            fields={
                "driver": Shape(DRIVER_NAME_LENGTH),
                "allowMultipleAllocations": Shape(1),
                "attributes": _by_domain(self._attribute),
                "capacity": _by_domain(Shape(0)),
            },
        )

    def of(self, path: Path) -> Range | None:
        """The size of the part at a path; None if none is declared there."""
        names = path.names()
        if not names or names[0] != DEVICE:
            return None
        shape = self._device
        for name in names[1:]:
            inner = self._step(shape, name)
            if inner is None:
                return None
            shape = inner
        return Range(0, shape.most)

    def _step(self, shape: Shape, name: str) -> Shape | None:
        if name in (ITEMS, VALUES):
            return shape.element
        if name == KEYS:
            return shape.key
        if name in shape.fields:
            return shape.fields[name]
        # Any name selects an attribute; a capacity selected by name has no declared size.
        return self._attribute if shape.element is self._attribute else None


@cache.remembered()
def device_sizes(attribute_max: int) -> DeviceSizes:
    """The sizes for attribute values of at most so many characters or elements."""
    return DeviceSizes(attribute_max)


def _by_domain(leaf: Shape) -> Shape:
    inner = Shape(ENTRIES_PER_DEVICE, key=Shape(ID_LENGTH), element=leaf)
    return Shape(ENTRIES_PER_DEVICE, key=Shape(DOMAIN_LENGTH), element=inner)

"""Which devices of a pool satisfy selectors: one mask per list of expressions, remembered by what was read.

Given a pool's devices; two pools that share the columns an expression reads share its mask. A device on which a
selector cannot be evaluated does not match, and is counted apart.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from dovetail.cel import devices as cel_devices
from dovetail.cel import selectors
from dovetail.cel.program import Outcome
from dovetail.cel.reads import OWN_DOMAIN, Path
from dovetail.cel.selectors import Selector
from dovetail.model.slices import Device, DeviceAttribute
from dovetail.world.devices import Column, Devices

_MEMO_SIZE = 65_536
_NEAR_SIZE = 20_480  # these hold whole pools alive, which may be gone from the cluster


class Verdict(NamedTuple):
    """Devices on which an expression holds, and on which it cannot be evaluated."""

    matching: int
    failing: int


_by_columns: dict[tuple[object, ...], tuple[object, Verdict]] = {}
_selected: dict[tuple[int, tuple[str, ...]], tuple[Devices, int]] = {}
_unusable: dict[int, tuple[Column, bool]] = {}


def selected(devices: Devices, expressions: tuple[str, ...]) -> int:
    """The devices on which every expression holds."""
    key = (id(devices), expressions)
    known = _selected.get(key)
    if known is not None:
        return known[1]
    mask = (1 << len(devices)) - 1
    for expression in expressions:
        if not mask:
            break
        mask &= verdict(devices, expression).matching
    if len(_selected) >= _NEAR_SIZE:
        _selected.clear()
    _selected[key] = (devices, mask)
    return mask


def forget() -> None:
    """Forgets every verdict; the next question is answered from the devices. What columns hold is kept."""
    _by_columns.clear()
    _selected.clear()


def verdict(devices: Devices, expression: str) -> Verdict:
    """What the expression says of each device."""
    return _by_reads(devices, selectors.selector(expression))


def _by_reads(devices: Devices, selector: Selector) -> Verdict:
    columns = _columns_read(devices, selector.reads)
    seen = tuple((name, id(column)) for name, column in columns)  # names too: equal columns are one object
    key = (selector.expression, devices.driver, id(devices.templates), seen)
    found = _by_columns.get(key)
    if found is None:
        if len(_by_columns) >= _MEMO_SIZE:
            _by_columns.clear()
        alive = (devices.templates, columns)  # so that the ids in the key stay theirs
        found = _by_columns[key] = (alive, _evaluated(devices, selector))
    return found[1]


def _evaluated(devices: Devices, selector: Selector) -> Verdict:
    matching = failing = 0
    for index in range(len(devices)):
        outcome = selector.match(devices.view(index))
        if outcome is Outcome.MATCH:
            matching |= 1 << index
        elif outcome is Outcome.ERROR:
            failing |= 1 << index
    return Verdict(matching, failing)


def _columns_read(devices: Devices, reads: frozenset[Path]) -> tuple[tuple[str, Column], ...]:
    """The columns a verdict can depend on. One with an unusable value fails every expression, read or not."""
    return tuple(
        (name, column)
        for name, column in zip(devices.attributes, devices.columns, strict=True)
        if _is_read(name, devices.driver, reads) or _has_unusable(column)
    )


@lru_cache(maxsize=16_384)
def _is_read(name: str, driver: str, reads: frozenset[Path]) -> bool:
    domain, id_ = cel_devices.split_name(name, driver)
    for path in reads:
        if not path or path == ("attributes",):
            return True
        if path[0] != "attributes":
            continue
        wanted = driver if path[1] == OWN_DOMAIN else path[1]
        if wanted == domain and (len(path) == 2 or path[2] == id_):
            return True
    return False


def _has_unusable(column: Column) -> bool:
    known = _unusable.get(id(column))
    if known is None:
        if len(_unusable) >= _MEMO_SIZE:
            _unusable.clear()
        values = {value for value in column if value is not None}
        known = _unusable[id(column)] = (column, any(map(_is_unusable, values)))
    return known[1]


def _is_unusable(value: DeviceAttribute) -> bool:
    return cel_devices.view("", Device(attributes={"value": value})).problem is not None

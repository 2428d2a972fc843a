"""Which devices of a pool satisfy selectors: one mask per list of expressions, cached by the columns they read.

Given a pool's devices; two pools that share the columns an expression reads share its mask. A device on which a
selector cannot be evaluated does not match, and is counted separately. If the effort runs out in the middle of a pool,
the next call continues with the device where it stopped. One bound limits the cache for all expressions together.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dovetail import cache
from dovetail.cel import device_views, selectors
from dovetail.cel import effort as efforts
from dovetail.cel.effort import UNBOUNDED, Effort
from dovetail.cel.evaluate.program import Outcome
from dovetail.cel.reads import OWN_DOMAIN, Path
from dovetail.cel.selectors import Selector
from dovetail.kubetypes.resource.slices import Device, DeviceAttribute
from dovetail.world.devices.device_columns import Column, Devices

_MEMO_SIZE = 65_536
MOST_VERDICTS: Final = 100_000  # columns that are named in what is remembered, some 200 bytes each
MOST_SELECTED: Final = 20_000  # lists of expressions for a pool, long ones counted as several
_TEXTS_PER_ENTRY: Final = 16  # of a list, whose references take as much as the rest of an entry


class Verdict(NamedTuple):
    """The devices on which an expression is true, and those on which it cannot be evaluated."""

    matching: int
    failing: int


class _Judged:
    """The verdicts of an expression on the first `count` devices of a pool."""

    __slots__ = ("count", "failing", "matching")

    def __init__(self) -> None:
        self.count = 0
        self.matching = 0
        self.failing = 0

    def go_on(self, devices: Devices, selector: Selector, effort: Effort) -> None:
        """Evaluates the remaining devices. Raises Unfinished or TooExpensive."""
        while self.count < len(devices):
            effort.demand()
            outcome = selector.match(devices.view(self.count), effort)
            effort.charge(efforts.EVALUATION_UNITS)
            if outcome is Outcome.MATCH:
                self.matching |= 1 << self.count
            elif outcome is Outcome.ERROR:
                self.failing |= 1 << self.count
            self.count += 1


_BY_COLUMNS: Final = cache.Memo[tuple[object, ...], _Judged](MOST_VERDICTS)
_SELECTED: Final = cache.Memo[tuple[int, tuple[str, ...]], int](MOST_SELECTED)
_UNUSABLE: Final = cache.Memo[int, bool](_MEMO_SIZE)


def selected(devices: Devices, expressions: tuple[str, ...], effort: Effort = UNBOUNDED) -> int:
    """The devices on which every expression is true. Raises Unfinished or TooExpensive."""
    key = (id(devices), expressions)
    selected_mask = _SELECTED.get(key)
    if selected_mask is not None:
        return selected_mask
    mask = (1 << len(devices)) - 1
    for expression in expressions:
        if not mask:
            break
        mask &= verdict(devices, expression, effort).matching
    _SELECTED.put(key, mask, weight=1 + len(expressions) // _TEXTS_PER_ENTRY, alive=devices)
    return mask


def forget() -> None:
    """Drops every cached verdict; the next call evaluates the devices again. What is known of columns stays."""
    _BY_COLUMNS.clear()
    _SELECTED.clear()


def remembered() -> int:
    """The size of the cache, in columns referenced and lists of expressions."""
    return _BY_COLUMNS.weight + _SELECTED.weight


def verdict(devices: Devices, expression: str, effort: Effort = UNBOUNDED) -> Verdict:
    """The verdict of the expression on each device. Raises Unfinished or TooExpensive."""
    selector = selectors.selector(expression, effort)
    columns = _columns_read(devices, selector.reads)
    seen = tuple(
        (name, id(column)) for name, column in columns
    )  # names too: equal columns are one object
    key = (selector.expression, devices.driver, id(devices.templates), seen)
    judged = _BY_COLUMNS.get(key)
    if judged is None:
        judged = _Judged()
        alive = (devices.templates, columns)
        _BY_COLUMNS.put(key, judged, weight=2 + len(columns), alive=alive)
    if judged.count < len(devices):
        judged.go_on(devices, selector, effort)
    return Verdict(judged.matching, judged.failing)


def _columns_read(devices: Devices, reads: frozenset[Path]) -> tuple[tuple[str, Column], ...]:
    """The columns a verdict can depend on. A column with an unusable value fails every expression, read or not."""
    return tuple(
        (name, column)
        for name, column in zip(devices.attributes, devices.columns, strict=True)
        if _is_read(name, devices.driver, reads) or _has_unusable(column)
    )


@cache.remembered(16_384)
def _is_read(name: str, driver: str, reads: frozenset[Path]) -> bool:
    domain, attribute_id = device_views.split_name(name, driver)
    for path in reads:
        if not path or path == ("attributes",):
            return True
        if path[0] != "attributes":
            continue
        read_domain = driver if path[1] == OWN_DOMAIN else path[1]
        if read_domain == domain and (len(path) == 2 or path[2] == attribute_id):
            return True
    return False


def _has_unusable(column: Column) -> bool:
    is_spoilt = _UNUSABLE.get(id(column))
    if is_spoilt is None:
        values = {value for value in column if value is not None}
        is_spoilt = any(map(_is_unusable, values))
        _UNUSABLE.put(id(column), is_spoilt, alive=column)
    return is_spoilt


def _is_unusable(value: DeviceAttribute) -> bool:
    return device_views.view("", Device(attributes={"value": value})).problem is not None

"""Which devices of a pool satisfy selectors: one mask per list of expressions, remembered by what was read.

Given a pool's devices; two pools that share the columns an expression reads share its mask. A device on which a
selector cannot be evaluated does not match, and is counted apart. Where the effort ends in the middle of a pool, the
next question goes on with the device it ended at. What is remembered has one bound for all expressions together.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from dovetail.allocate.recent import Recent
from dovetail.cel import devices as cel_devices
from dovetail.cel import effort as efforts
from dovetail.cel import selectors
from dovetail.cel.effort import UNBOUNDED, Effort
from dovetail.cel.program import Outcome
from dovetail.cel.reads import OWN_DOMAIN, Path
from dovetail.cel.selectors import Selector
from dovetail.model.slices import Device, DeviceAttribute
from dovetail.world.devices import Column, Devices

_MEMO_SIZE = 65_536
MOST_VERDICTS: Final = 100_000  # columns that are named in what is remembered, some 200 bytes each
MOST_SELECTED: Final = 20_000  # lists of expressions for a pool, long ones counted as several
_TEXTS_PER_ENTRY: Final = 16  # of a list, whose references take as much as the rest of an entry


class Verdict(NamedTuple):
    """Devices on which an expression holds, and on which it cannot be evaluated."""

    matching: int
    failing: int


class _Judged:
    """What an expression says of the first devices of a pool, one after the other."""

    __slots__ = ("alive", "count", "failing", "matching")

    def __init__(self, alive: object) -> None:
        self.alive = alive  # so that the ids in the key stay theirs
        self.count = 0
        self.matching = 0
        self.failing = 0

    def go_on(self, devices: Devices, selector: Selector, effort: Effort) -> None:
        """Evaluates the devices that are left. Raises Unfinished or TooExpensive."""
        while self.count < len(devices):
            effort.demand()
            outcome = selector.match(devices.view(self.count), effort)
            effort.charge(efforts.EVALUATION_UNITS)
            if outcome is Outcome.MATCH:
                self.matching |= 1 << self.count
            elif outcome is Outcome.ERROR:
                self.failing |= 1 << self.count
            self.count += 1


_by_columns: Final = Recent[tuple[object, ...], _Judged](MOST_VERDICTS)
_selected: Final = Recent[tuple[int, tuple[str, ...]], tuple[Devices, int]](MOST_SELECTED)
_unusable: dict[int, tuple[Column, bool]] = {}


def selected(devices: Devices, expressions: tuple[str, ...], effort: Effort = UNBOUNDED) -> int:
    """The devices on which every expression holds. Raises Unfinished or TooExpensive."""
    key = (id(devices), expressions)
    known = _selected.get(key)
    if known is not None:
        return known[1]
    mask = (1 << len(devices)) - 1
    for expression in expressions:
        if not mask:
            break
        mask &= verdict(devices, expression, effort).matching
    _selected.put(key, (devices, mask), weight=1 + len(expressions) // _TEXTS_PER_ENTRY)
    return mask


def forget() -> None:
    """Forgets every verdict; the next question is answered from the devices. What columns hold is kept."""
    _by_columns.clear()
    _selected.clear()


def remembered() -> int:
    """How much is remembered, in columns named and lists of expressions."""
    return _by_columns.weight + _selected.weight


def verdict(devices: Devices, expression: str, effort: Effort = UNBOUNDED) -> Verdict:
    """What the expression says of each device. Raises Unfinished or TooExpensive."""
    selector = selectors.selector(expression, effort)
    columns = _columns_read(devices, selector.reads)
    seen = tuple((name, id(column)) for name, column in columns)  # names too: equal columns are one object
    key = (selector.expression, devices.driver, id(devices.templates), seen)
    judged = _by_columns.get(key)
    if judged is None:
        judged = _Judged((devices.templates, columns))
        _by_columns.put(key, judged, weight=2 + len(columns))
    if judged.count < len(devices):
        judged.go_on(devices, selector, effort)
    return Verdict(judged.matching, judged.failing)


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

"""The conditions that a device selector joins with &&, each for itself: their text for people, and the values they met.

Given expressions and devices in columns: devices that share a column are counted together, so that many thousands cost
what their distinct columns do. Never decides whether a device matches: `selector_matches` does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from dovetail import cache
from dovetail.allocate.index.pool_index import bits
from dovetail.answer.why import near_values
from dovetail.cel import device_views, explain_verdict, selectors
from dovetail.cel.language import ast
from dovetail.cel.reads import OWN_DOMAIN, Path
from dovetail.errors import ExpressionError
from dovetail.quantity.quantity import Quantity
from dovetail.quantity.semver import Semver
from dovetail.world.devices.device_columns import Devices

SHOWN: Final = 3  # values named in one place
MOST_TEXT: Final = 90  # characters of a condition that are shown
ABSENT: Final = "absent"
_AND: Final = "_&&_"
_FIELD: Final = re.compile(
    r"""device\.(attributes|capacity)\[\s*(?:"[^"]*"|'[^']*'|device\.driver)\s*\]\."""
)
_COMPARED: Final = re.compile(
    r"""\.compareTo\(\s*(?:quantity|semver)\(\s*["']([^"']*)["']\s*\)\s*\)\s*(==|!=|>=|<=|>|<)\s*0"""
)
_GREATER: Final = re.compile(
    r"""\.is(Greater|Less)Than\(\s*(?:quantity|semver)\(\s*["']([^"']*)["']\s*\)\s*\)"""
)
_TEXT: Final = re.compile(r""""([^"]*)"|'([^']*)'""")

Value = str | int | bool | Quantity | Semver


class Seen(NamedTuple):
    """The values that one attribute or capacity has, with the number of devices that have each."""

    name: str
    counts: dict[Value | None, int]
    domain: str = ""  # of the attribute or capacity; empty for the driver's own


class Group(NamedTuple):
    """Some of the devices of a pool."""

    devices: Devices
    mask: int


@cache.remembered(4096)
def conjuncts(expression: str) -> tuple[str, ...]:
    """The conditions of a selector, in order; the whole text where it cannot be taken apart."""
    try:
        program = selectors.selector(expression).program
    except ExpressionError:
        return (expression,)
    spans = program.checked.spans
    texts = []
    for part in _parts(program.checked.root):
        if part.id not in spans:
            return (expression,)
        start, end = spans[part.id]
        texts.append(" ".join(expression[start:end].split()))
    return tuple(texts)


def joined(parts: Iterable[str]) -> str:
    """One selector of several conditions; true where there are none."""
    return " && ".join(f"({part})" for part in parts) or "true"


def shortened(expression: str) -> str:
    """The condition as people say it: `memory >= 80Gi`."""
    text = _FIELD.sub("", " ".join(expression.split()))
    text = _COMPARED.sub(r" \2 \1", text)
    text = _GREATER.sub(lambda match: f" {'>' if match[1] == 'Greater' else '<'} {match[2]}", text)
    text = text.replace("device.driver", "driver")
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 3]}..."


def seen_by(expression: str, groups: Iterable[Group]) -> tuple[Seen, ...]:
    """The values that a condition reads on these devices."""
    try:
        paths = sorted(selectors.selector(expression).reads)
    except ExpressionError:
        return ()
    listed = list(groups)
    return tuple(
        Seen(_name(path), _counted(path, listed), _domain(path, listed))
        for path in paths
        if len(path) in (1, 3)
    )


def nearest_text(expression: str, groups: Iterable[Group]) -> str:
    """What was seen instead of what the condition asks for: `seen "Hopper" on 32 devices`."""
    parts = []
    listed = list(groups)
    for seen in seen_by(expression, listed):
        if text := _seen_text(expression, seen, listed):
            parts.append(text)
    return "; ".join(parts)


def near_value(expression: str, groups: Iterable[Group]) -> str | None:
    """A value or name that exists and nearly equals one in the condition."""
    listed = list(groups)
    for seen in seen_by(expression, listed):
        values = [value for value in seen.counts if isinstance(value, str)]
        for text in _texts(expression):
            if near := near_values.nearest(text, values):
                return near
        if set(seen.counts) == {None} and (near := _near_name(expression, seen, listed)):
            return near
    return None


def _seen_text(expression: str, seen: Seen, groups: list[Group]) -> str:
    counts = seen.counts
    if not counts:
        return ""
    if set(counts) == {None}:
        near = _near_name(expression, seen, groups)
        hint = f"; did you mean {near}?" if near else ""
        name = f"{seen.domain}/{seen.name}" if seen.domain else seen.name
        return f"no device has {name}{hint}"
    present = {value: count for value, count in counts.items() if value is not None}
    values = [value for value in present if isinstance(value, str)]
    for text in _texts(expression):
        near = near_values.nearest(text, values)
        if near is not None:
            return f"seen {_shown(near)} on {_devices(present[near])}"
    ordered = _ordered(present)
    if ordered is not None:
        low, high = ordered[0], ordered[-1]
        if isinstance(low, Semver) and "semver" not in expression and _texts(expression):
            return f"{seen.name} is a version ({_shown(high)}): compare it with semver(...)"
        if low == high:
            return f"{seen.name} is {_shown(low)} on all {_devices(sum(present.values()))}"
        return f"{seen.name} is {_shown(low)} to {_shown(high)}"
    most = sorted(present.items(), key=lambda item: (-item[1], str(item[0])))
    if len(most) == 1:
        return f"{seen.name} is {_shown(most[0][0])} on all {_devices(most[0][1])}"
    listed = ", ".join(f"{_shown(value)} on {count}" for value, count in most[:SHOWN])
    more = f" and {len(most) - SHOWN} more values" if len(most) > SHOWN else ""
    return f"{seen.name} is {listed}{more}"


def _ordered(counts: dict[Value, int]) -> list[Value] | None:
    """Values that can be ordered, lowest first; None for texts and switches."""
    kinds = {type(value) for value in counts}
    if len(kinds) != 1 or kinds & {str, bool}:
        return None
    return sorted(counts)


def _near_name(expression: str, seen: Seen, groups: list[Group]) -> str | None:
    if seen.domain:  # nothing has a name of that domain: is it a driver's own?
        return _own_name(expression, seen.name, groups)
    names: set[str] = set()
    for devices in {id(group.devices): group.devices for group in groups}.values():
        if "device.capacity" in expression:
            for template in set(map(id, devices.templates)):
                names |= _capacity_names(devices, template)
        else:
            names |= {
                device_views.split_name(name, devices.driver)[1] for name in devices.attributes
            }
    return near_values.nearest(seen.name.rpartition("/")[2], names)


def _own_name(expression: str, name: str, groups: list[Group]) -> str | None:
    """The name in a driver's own domain, where its devices have it."""
    kind = "capacity" if "device.capacity" in expression else "attributes"
    for driver in sorted({group.devices.driver for group in groups}):
        if any(value is not None for value in _counted((kind, driver, name), groups)):
            return f"{driver}/{name}"
    return None


def _capacity_names(devices: Devices, template_id: int) -> set[str]:
    template = next(item for item in devices.templates if id(item) == template_id)
    return {device_views.split_name(name, devices.driver)[1] for name in template.capacity}


def _texts(expression: str) -> list[str]:
    """The texts a condition compares with; domains in brackets are none."""
    return [first or second for first, second in _TEXT.findall(shortened(expression))]


def _parts(node: ast.Node) -> Iterator[ast.Node]:
    if isinstance(node, ast.Call) and node.function == _AND:
        for arg in node.args:
            yield from _parts(arg)
    else:
        yield node


def _name(path: Path) -> str:
    return path[-1]


def _domain(path: Path, groups: list[Group]) -> str:
    """The domain that a path names, unless it is that of a driver."""
    if len(path) != 3 or path[1] in (OWN_DOMAIN, *(group.devices.driver for group in groups)):
        return ""
    return path[1]


def _counted(path: Path, groups: list[Group]) -> dict[Value | None, int]:
    total: Counter[Value | None] = Counter()
    columns: Counter[tuple[int, int]] = Counter()  # by what the values depend on, and the mask
    sample: dict[tuple[int, int], Group] = {}
    for group in groups:
        key = (_source(path, group.devices), group.mask)
        columns[key] += 1
        sample.setdefault(key, group)
    for key, times in columns.items():
        group = sample[key]
        for index in bits(group.mask):
            total[_value(path, group.devices, index)] += times
    return dict(total)


def _source(path: Path, devices: Devices) -> int:
    """Equal for pools in which the path has the same values, device by device."""
    if path[0] != "attributes":
        return id(devices.templates)
    for name in _names(path, devices):
        column = devices.column(name)
        if column is not None:
            return id(column)
    return 0


def _names(path: Path, devices: Devices) -> tuple[str, ...]:
    domain = devices.driver if path[1] == OWN_DOMAIN else path[1]
    full = f"{domain}/{path[2]}"
    return (full, path[2]) if domain == devices.driver else (full,)


def _value(path: Path, devices: Devices, index: int) -> Value | None:
    if path == ("driver",):
        return devices.driver
    template = devices.templates[index]
    if path[0] == "allowMultipleAllocations":
        return bool(template.allow_multiple_allocations)
    for name in _names(path, devices):
        if path[0] == "capacity":
            if name in template.capacity:
                return template.capacity[name].value
            continue
        column = devices.column(name)
        attribute = column[index] if column is not None else None
        if attribute is not None:
            value = device_views.attribute_value(attribute)
            return value if isinstance(value, str | int | bool | Semver) else str(value)
    return None


def _shown(value: Value) -> str:
    return explain_verdict.shown(value)


def _devices(count: int) -> str:
    return "1 device" if count == 1 else f"{count} devices"

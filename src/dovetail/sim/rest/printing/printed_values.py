"""Values as tables of kubectl print them: ages, label selectors, lists, container names.

Given parts of plain trees and the time; returns text in kubectl's spelling. Never reads a clock.
"""

from __future__ import annotations

import datetime
from typing import Any, Final

from dovetail import timestamps

Tree = dict[str, Any]

NONE: Final = "<none>"
UNKNOWN: Final = "<unknown>"
_MINUTE: Final = 60
_HOUR: Final = 3_600
_DAY: Final = 86_400
_YEAR: Final = 365 * _DAY


def human_duration(seconds: int) -> str:
    """Two units at most, fewer the longer it lasts, as apimachinery's HumanDuration."""
    if seconds < -1:
        return "<invalid>"
    if seconds < 0:
        return "0s"
    if seconds < 2 * _MINUTE:
        return f"{seconds}s"
    if seconds < 10 * _MINUTE:
        return _two(seconds, _MINUTE, "m", 1, "s")
    if seconds < 3 * _HOUR:
        return f"{seconds // _MINUTE}m"
    if seconds < 8 * _HOUR:
        return _two(seconds, _HOUR, "h", _MINUTE, "m")
    if seconds < 2 * _DAY:
        return f"{seconds // _HOUR}h"
    if seconds < 8 * _DAY:
        return _two(seconds, _DAY, "d", _HOUR, "h")
    if seconds < 2 * _YEAR:
        return f"{seconds // _DAY}d"
    if seconds < 8 * _YEAR:
        return _two(seconds, _YEAR, "y", _DAY, "d")
    return f"{seconds // _YEAR}y"


def _two(seconds: int, large: int, large_unit: str, small: int, small_unit: str) -> str:
    rest = seconds % large // small
    first = f"{seconds // large}{large_unit}"
    return f"{first}{rest}{small_unit}" if rest else first


def age(text: str | None, now: datetime.datetime) -> str:
    """How long ago a time was."""
    if not text:
        return UNKNOWN
    return human_duration(_seconds(text, now))


def between(start: str, end: str) -> str:
    """How long it lasted from one time to another."""
    return human_duration(_seconds(start, timestamps.parse_as_utc(end)))


def _seconds(text: str, now: datetime.datetime) -> int:
    try:
        return int((now - timestamps.parse_as_utc(text)).total_seconds())
    except ValueError:
        return -2


def label_selector(selector: Tree | None) -> str:
    """A selector of a workload in one line."""
    if selector is None:
        return NONE
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for test in selector.get("matchExpressions") or ():
        parts.append(_expression(test))
    return ",".join(parts) or NONE


def _expression(test: Tree) -> str:
    key = str(test.get("key"))
    values = ",".join(sorted(test.get("values") or ()))
    match test.get("operator"):
        case "In":
            return f"{key} in ({values})"
        case "NotIn":
            return f"{key} notin ({values})"
        case "DoesNotExist":
            return f"!{key}"
        case _:
            return key


def labels(pairs: Tree | None) -> str:
    """Labels in one line."""
    return ",".join(f"{key}={value}" for key, value in sorted((pairs or {}).items())) or NONE


def containers(pod_spec: Tree) -> tuple[str, str]:
    """The names and the images of the containers of a pod."""
    listed = pod_spec.get("containers") or ()
    names = ",".join(str(container.get("name", "")) for container in listed)
    images = ",".join(str(container.get("image", "")) for container in listed)
    return names, images


def access_modes(modes: list[str] | None) -> str:
    """The access modes of a volume, abbreviated."""
    short = {
        "ReadWriteOnce": "RWO",
        "ReadOnlyMany": "ROX",
        "ReadWriteMany": "RWX",
        "ReadWriteOncePod": "RWOP",
    }
    return ",".join(short.get(mode, mode) for mode in modes or ())

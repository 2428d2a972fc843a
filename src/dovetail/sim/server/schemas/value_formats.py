"""The formats of text that a schema may ask for: times, days, durations, addresses, ids, bytes.

Given the name of a format and a text. Formats that an API server does not know, or that are not listed here, are met by
any text. Never raises.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import ipaddress
import re
from collections.abc import Callable
from typing import Final

from dovetail import timestamps

_DURATION: Final = re.compile(
    r"[-+]?(?:0|(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h)"  # Go's
    r"(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))*)"
    r"|\d+\s*(?:ns|us|ms|s|m|h|d|w|(?:nano|micro|milli)?secs?(?:onds?)?|mins?(?:utes?)?|h(?:ou)?rs?|days?|weeks?)"
)
_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+")
_UUID: Final = re.compile(r"(?i)[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}")


def is_of_format(name: str, text: str) -> bool:
    """Whether the text has the format."""
    check = _CHECKS.get(name)
    return check is None or check(text)


def _is_day(text: str) -> bool:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return len(text) == len("2026-01-02")


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _is_address(text: str, version: int) -> bool:
    try:
        return ipaddress.ip_address(text).version == version
    except ValueError:
        return False


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


_CHECKS: Final[dict[str, Callable[[str], bool]]] = {
    "date-time": lambda text: timestamps.parse_or_none(text) is not None,
    "datetime": lambda text: timestamps.parse_or_none(text) is not None,
    "date": _is_day,
    "duration": lambda text: _DURATION.fullmatch(text) is not None,
    "email": lambda text: _EMAIL.fullmatch(text) is not None,
    "uuid": lambda text: _UUID.fullmatch(text) is not None,
    "byte": _is_base64,
    "ipv4": lambda text: _is_address(text, 4),
    "ipv6": lambda text: _is_address(text, 6),
    "cidr": _is_network,
}

"""What a rule consists of: alerts, recorded series, and groups of them. Data only.

Every alert names what is wrong in one line, says what to look at, and has a page in docs/runbooks that is called like
it. Severities: `critical` wakes someone, `warning` is for the working day, `info` is for the owner of the work.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec


class Severity(StrEnum):
    """How soon people must look."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class Audience(StrEnum):
    """Whose work an alert is; the example of routes sends alerts by it."""

    PLATFORM = "platform"  # those who run the cluster
    OWNER = "owner"  # those whose work it is about: by namespace or queue


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """A condition that people should know of. `hold` is how long it must last: "10m"; empty: not at all."""

    name: str
    expr: str
    severity: Severity
    summary: str
    description: str
    hold: str = ""
    audience: Audience = Audience.PLATFORM


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """A series that Prometheus computes once for all readers."""

    record: str
    expr: str
    labels: dict[str, str] = {}


Rule: TypeAlias = Alert | Recording


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Rules that Prometheus evaluates one after the other: a rule may read what an earlier one recorded."""

    name: str
    rules: tuple[Rule, ...]

"""Which versions of the stack are out of support, or soon will be.

Given the versions in use and a day. A version that no row gives an end for is named, never passed over. Never decides
whether an upgrade may go on.
"""

from __future__ import annotations

import datetime
import enum
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from dovetail.answer.stack.compatibility_rows import (
    CONTAINERD,
    DRIVER,
    KUBERNETES,
    OPERATOR,
    Relation,
    Row,
    Rows,
)
from dovetail.answer.stack.stack_facts import Fact
from dovetail.quantity import dotted_versions

COMPONENTS: Final = (KUBERNETES, CONTAINERD, OPERATOR, DRIVER)
SOON_DAYS: Final = 180  # ours: about what a fleet needs to plan and carry out an upgrade


class Support(enum.StrEnum):
    """How long a version is supported."""

    ENDED = "ended"
    SOON = "ends soon"
    SUPPORTED = "supported"
    UNKNOWN = "cannot tell"


class Ending(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One version in use, and when its support ends."""

    component: str
    version: str
    support: Support
    nodes: int
    day: str = ""
    days: int | None = None  # from today; negative: so long ago
    row: Row | None = None


def endings(
    stacks: Iterable[Mapping[str, Fact]], rows: Rows, today: datetime.date
) -> tuple[Ending, ...]:
    """The versions of all nodes, by component and version."""
    counts: dict[tuple[str, str], int] = {}
    for versions in stacks:
        for component in COMPONENTS:
            version = versions[component]
            if version.is_present and dotted_versions.is_version(version.value):
                key = (component, version.value)
                counts[key] = counts.get(key, 0) + 1

    def order(item: tuple[tuple[str, str], int]) -> tuple[int, tuple[int, ...]]:
        component, version = item[0]
        return COMPONENTS.index(component), dotted_versions.parse(version)

    return tuple(
        _ending(component, version, nodes, rows, today)
        for (component, version), nodes in sorted(counts.items(), key=order)
    )


def _ending(component: str, version: str, nodes: int, rows: Rows, today: datetime.date) -> Ending:
    entry = rows.decides(Relation.ENDS, component, version)
    if entry is None:
        return Ending(component=component, version=version, support=Support.UNKNOWN, nodes=nodes)
    days = (datetime.date.fromisoformat(entry.row.range) - today).days
    support = Support.SUPPORTED
    if days < 0:
        support = Support.ENDED
    elif days <= SOON_DAYS:
        support = Support.SOON
    return Ending(
        component=component,
        version=version,
        support=support,
        nodes=nodes,
        day=entry.row.range,
        days=days,
        row=entry.row,
    )

"""The versions that an upgrade is to reach: driver, Kubernetes, operator, toolkit, containerd.

Given the words of the question and the rows. A version that no row knows is refused, because every answer about it
would be a guess. Never looks at a cluster.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

from dovetail import errors
from dovetail.answer.stack.compatibility_rows import (
    CONTAINERD,
    DRIVER,
    KUBERNETES,
    OPERATOR,
    TOOLKIT,
    Entry,
    Relation,
    Rows,
)
from dovetail.quantity import dotted_versions

COMPONENTS: Final = (DRIVER, KUBERNETES, OPERATOR, TOOLKIT, CONTAINERD)
EXAMPLE: Final = "driver=595.91.07,kubernetes=1.36"
# How many numbers name the release line that rows speak of.
_LINE_NUMBERS: Final = {DRIVER: 1, KUBERNETES: 2, OPERATOR: 2, TOOLKIT: 2, CONTAINERD: 2}
# What makes a version known: rows that name its release line. Others, such as `toolkit >=1.19 needs ...`, are of any
# release to come, too.
_NAMING: Final = (Relation.CONTAINS, Relation.SUPPORTS, Relation.ENDS, Relation.RELEASED)


def parse(texts: Iterable[str]) -> dict[str, str]:
    """The versions by component. Raises InputError for words that are none."""
    target: dict[str, str] = {}
    for text in texts:
        for part in filter(None, (word.strip() for word in text.split(","))):
            component, equals, version = (word.strip() for word in part.partition("="))
            _refuse_unknown(component, equals, part)
            if component in target:
                raise errors.InputError(f"--to: {component} is given twice")
            if not dotted_versions.is_version(version):
                raise errors.InputError(
                    f"--to {component}: {version!r} is not a version; expected one such as 580.95.05"
                )
            target[component] = version.removeprefix("v")
    return target


def check_known(target: Mapping[str, str], rows: Rows) -> None:
    """Raises InputError for a version that no row names."""
    for component, version in target.items():
        lines = known_lines(component, rows)
        if dotted_versions.shortened(version, _LINE_NUMBERS[component]) not in lines:
            raise errors.InputError(
                f"--to {component}={version}: no row knows it; known: {', '.join(lines)};"
                " add rows about it with --rows FILE"
            )
    if DRIVER in target:
        _check_released(target[DRIVER], rows)


def known_lines(component: str, rows: Rows) -> list[str]:
    """The release lines that rows name, oldest first."""
    numbers = _LINE_NUMBERS[component]
    lines = {
        dotted_versions.shortened(version, numbers)
        for entry in rows.all()
        for version in _named_versions(entry, component)
    }
    return sorted(lines, key=dotted_versions.parse)


def _named_versions(entry: Entry, component: str) -> list[str]:
    if entry.component == component and entry.row.relation in _NAMING:
        ranges = [entry.versions]
    elif entry.other == component and entry.row.relation is Relation.DEFAULT:
        ranges = [entry.others] if entry.others is not None else []
    else:
        return []
    return [
        ".".join(map(str, bound.numbers))
        for versions in ranges
        for alternative in versions.alternatives
        for bound in alternative
        if bound.sign in ("~", "=")
    ]


def _check_released(version: str, rows: Rows) -> None:
    """With a release file of the vendor, a driver must be among the releases of its branch."""
    branch = dotted_versions.number_at(version, 0)
    released = [
        entry.row.subject.partition(" ")[2]
        for entry in rows.named(Relation.RELEASED, DRIVER)
        if dotted_versions.number_at(entry.row.subject.partition(" ")[2], 0) == branch
    ]
    is_branch = len(dotted_versions.parse(version)) == 1
    is_released = any(dotted_versions.compare(version, each) == 0 for each in released)
    if released and not is_branch and not is_released:
        newest = max(released, key=dotted_versions.parse)
        raise errors.InputError(
            f"--to driver={version}: the release file does not have it; newest of branch {branch}: {newest}"
        )


def _refuse_unknown(component: str, equals: str, part: str) -> None:
    if component not in COMPONENTS:
        near = difflib.get_close_matches(component, COMPONENTS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(COMPONENTS)}"
        raise errors.InputError(f"--to {part}: {component!r} is no part of the stack; {hint}")
    if not equals:
        raise errors.InputError(f"--to {part}: no version; expected such as {EXAMPLE}")

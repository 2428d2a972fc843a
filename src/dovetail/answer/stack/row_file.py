"""Reads files of compatibility rows, and the release files that NVIDIA publishes for its drivers.

Given text and its name. Unknown fields, missing ones and values that cannot be read are refused with their place. Never
opens files.
"""

from __future__ import annotations

import difflib
from typing import Any, Final

import msgspec

from dovetail import errors
from dovetail.answer.stack import compatibility_rows
from dovetail.answer.stack.compatibility_rows import Entry, Origin, Relation, Row
from dovetail.manifest import yaml_text
from dovetail.quantity import dotted_versions

MOST_ROWS: Final = 20_000  # ours
_FIELDS: Final = ("subject", "relation", "range", "source", "date", "confidence", "note")
_OPTIONAL: Final = ("note",)
# Fields that all rows of a file may share, above the rows.
_SHARED: Final = ("source", "date", "confidence")


class _Release(msgspec.Struct, frozen=True):
    """One release in NVIDIA's file. Other fields are not read."""

    release_version: str
    release_date: str


class _Branch(msgspec.Struct, frozen=True):
    driver_info: tuple[_Release, ...]
    type: str = ""


def read(text: str, name: str, origin: Origin) -> list[Entry]:
    """The rows of a file: YAML or JSON with a list `rows`. Raises InputError that names file and row."""
    tree = _tree(text, name)
    if not isinstance(tree, dict) or not isinstance(tree.get("rows"), list):
        raise errors.InputError(f"{name}: expected a list `rows`")
    _refuse_unknown(tree, (*_SHARED, "rows"), name)
    rows = tree["rows"]
    if len(rows) > MOST_ROWS:
        raise errors.InputError(f"{name}: {len(rows)} rows; at most {MOST_ROWS} are read")
    shared = {field: tree[field] for field in _SHARED if field in tree}
    return [
        _entry(shared, fields, place=f"{name}: rows[{index}]", origin=origin)
        for index, fields in enumerate(rows)
    ]


def read_releases(text: str, name: str) -> list[Entry]:
    """NVIDIA's releases.json: driver branches by number, each with its releases. Raises InputError."""
    try:
        branches = msgspec.convert(_tree(text, name), type=dict[str, _Branch])
    except msgspec.ValidationError as error:
        raise errors.InputError(
            f"{name}: {error}; expected driver branches by number, each with driver_info"
        ) from None
    entries = []
    for branch, releases in branches.items():
        for index, release in enumerate(releases.driver_info):
            place = f"{name}: {branch}.driver_info[{index}]"
            _check_release(branch, release, place)
            row = Row(
                subject=f"driver {release.release_version}",
                relation=Relation.RELEASED,
                range=release.release_date,
                source=name,
                date=release.release_date,
                confidence="high",
                note=releases.type,
            )
            entries.append(compatibility_rows.understood(row, place=place, origin=Origin.VENDOR))
    if not entries:
        raise errors.InputError(f"{name}: no releases in it")
    return entries


def _check_release(branch: str, release: _Release, place: str) -> None:
    version = release.release_version
    if not dotted_versions.is_version(version):
        raise errors.InputError(f"{place}: release_version {version!r} is not a version")
    if str(dotted_versions.number_at(version, 0)) != branch:
        raise errors.InputError(f"{place}: {version} is not a release of branch {branch}")


def _tree(text: str, name: str) -> Any:
    try:
        documents = list(yaml_text.documents(text))
    except yaml_text.TextError as error:
        raise errors.InputError(f"{name}: {error}") from None
    if len(documents) != 1:
        raise errors.InputError(f"{name}: {len(documents)} documents; expected one")
    return documents[0].tree


def _entry(shared: dict[str, Any], fields: Any, *, place: str, origin: Origin) -> Entry:
    if not isinstance(fields, dict):
        raise errors.InputError(f"{place}: expected fields: {', '.join(_FIELDS)}")
    _refuse_unknown(fields, _FIELDS, place)
    complete = shared | fields
    for field in _FIELDS:
        if field not in complete and field not in _OPTIONAL:
            raise errors.InputError(f"{place}: {field} is missing")
        value = complete.get(field, "")
        if not isinstance(value, str):
            raise errors.InputError(f"{place}: {field}: {value!r} is no text; put it in quotes")
    try:
        row = msgspec.convert(complete, type=Row)
    except msgspec.ValidationError:
        known = ", ".join(Relation)
        relation = complete["relation"]
        raise errors.InputError(
            f"{place}: relation {relation!r}: expected one of {known}"
        ) from None
    return compatibility_rows.understood(row, place=place, origin=origin)


def _refuse_unknown(fields: dict[str, Any], known: tuple[str, ...], place: str) -> None:
    for field in fields:
        if field not in known:
            near = difflib.get_close_matches(str(field), known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
            raise errors.InputError(f"{place}: unknown field {field!r}; {hint}")

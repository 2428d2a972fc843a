"""Records of GPU accounting from a JSON document, as people and other programs may write it.

Given text and its name. Times are milliseconds since 1970 or RFC 3339 text; everything else is as the structs of
`model/accounting/records.py` say. Unknown fields, ends before starts and amounts below zero are refused with their
path: a misspelt field must not become a wrong bill. Never opens files.
"""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from dovetail import errors, timestamps
from dovetail.answer.cost import cost_window
from dovetail.model.accounting import records

MOST_COUNT: Final = 1_000_000  # GPUs of one asset
MOST_AMOUNT: Final = 2**62
_TIMES: Final = ("start", "end", "at", "promised_start", "moved_from")
_PLACE: Final = re.compile(r" - at `\$?\.?(?P<place>[^`]*)`$")
_KINDS: Final[dict[str, type[msgspec.Struct]]] = {
    name: typing.get_args(hint)[0] for name, hint in typing.get_type_hints(records.Records).items()
}


def read(text: bytes, name: str) -> records.Records:
    """The records. Raises InputError that names the file and the path."""
    try:
        tree = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise errors.InputError(f"{name}: not JSON: {error}") from None
    try:
        _prepare(tree)
        read_records = msgspec.convert(tree, records.Records)
        for path, problem in _problems(read_records):
            raise _Misfit(path, problem)
    except _Misfit as misfit:
        raise errors.InputError(f"{name}: {misfit}") from None
    except (msgspec.ValidationError, OverflowError) as error:
        message = str(error)
        place = _PLACE.search(message)
        where = f"{place['place']}: " if place else ""
        problem = _PLACE.sub("", message).replace("`", "")
        raise errors.InputError(f"{name}: {where}{problem}") from None
    return read_records


class _Misfit(Exception):
    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)


def _prepare(tree: Any) -> None:
    """Turns text times into milliseconds. Raises for fields that no record has."""
    if not isinstance(tree, dict):
        raise _Misfit("", f"expected an object with {', '.join(_KINDS)}")
    _refuse_unknown(tree, tuple(_KINDS), "")
    for kind, struct in _KINDS.items():
        entries = tree.get(kind, [])
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            path = f"{kind}[{index}]"
            if not isinstance(entry, dict):
                continue  # said below, with the type that was expected
            _refuse_unknown(entry, struct.__struct_fields__, path)
            owner = entry.get("owner")
            if isinstance(owner, dict):
                _refuse_unknown(owner, records.Owner.__struct_fields__, f"{path}.owner")
            for field in _TIMES:
                if isinstance(entry.get(field), str):
                    entry[field] = _millis(entry[field], f"{path}.{field}")


def _refuse_unknown(tree: dict[str, Any], known: tuple[str, ...], path: str) -> None:
    for name in tree:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(known)}"
            place = f"{path}.{name}" if path else str(name)
            raise _Misfit(place[:200], f"unknown field; {hint}")


def _millis(written: str, path: str) -> int:
    moment = timestamps.parse_or_none(written)
    if moment is None:
        problem = f'"{written[:60]}": expected milliseconds since 1970, or a time such as'
        raise _Misfit(path, f"{problem} 2026-11-16T08:00:00Z")
    return cost_window.millis_of(moment)


def _problems(read_records: records.Records) -> Iterator[tuple[str, str]]:
    """What types do not say."""
    for kind in _KINDS:
        for index, record in enumerate(getattr(read_records, kind)):
            path = f"{kind}[{index}]"
            start, end = getattr(record, "start", 0), getattr(record, "end", None)
            if end is not None and end < start:
                yield f"{path}.end", "before start"
            for field in record.__struct_fields__:
                value = getattr(record, field)
                if isinstance(value, int) and (problem := _misfit(field, value)):
                    yield f"{path}.{field}", problem


def _misfit(field: str, value: int) -> str:
    """What is wrong with a number; empty if nothing is."""
    if field in _TIMES:
        is_time = cost_window.FIRST <= value <= cost_window.LAST
        return "" if is_time else "expected years 1970 to 9999"
    if field == "count":
        return "" if 1 <= value <= MOST_COUNT else f"{value}: expected 1 to {MOST_COUNT}"
    return "" if 0 <= value <= MOST_AMOUNT else f"{value}: expected 0 or more"

"""Sorts the items of a list and cuts one page out of them.

Given all items and the page that is asked for. A cursor names the last item of its page, so that the next page goes on
after that item also when others came or went in between; if the item itself is gone, by its position. Never filters.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from dovetail.web import endpoints, problems
from dovetail.web.wire import parameters

# Of those fields that an item has, its identity is made. The first two are enough alone.
_UNIQUE: Final = ("id", "uid")
_NAMES: Final = ("namespace", "kind", "name", "node", "device", "time")
_SCALARS: Final = (str, int, float, bool, datetime.datetime)


class _Cursor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    position: int
    last: str  # the identity of the last item
    query: str  # the list that it belongs to


class Cut(NamedTuple):
    """One page."""

    items: Sequence[Any]
    total: int
    next: str | None


def cut(
    items: Sequence[Any],
    paging: parameters.PageParams,
    *,
    item: Any,
    query: str,
    identity: Callable[[Any], str] | None = None,
) -> Cut:
    """The page. `query` identifies the list: a cursor of another one is refused."""
    identity = identity or identity_of
    ordered = _sorted(items, paging.sort, item)
    digest = _digest(f"{query}\n{paging.sort}")
    start = _start(ordered, paging.cursor, digest, identity)
    page = ordered[start : start + paging.limit]
    end = start + len(page)
    following = None
    if end < len(ordered) and page:
        following = _written(_Cursor(end, identity(page[-1]), digest))
    return Cut(page, len(ordered), following)


def identity_of(item: Any) -> str:
    """What stays the same of an item while it changes."""
    unique = [getattr(item, name) for name in _UNIQUE if getattr(item, name, None)]
    named = unique or [getattr(item, name) for name in _NAMES if hasattr(item, name)]
    return _digest(repr(named or item))


def _sorted(items: Sequence[Any], sort: str, item: Any) -> Sequence[Any]:
    if not sort:
        return items
    is_descending = sort.startswith("-")
    name = sort.removeprefix("-")
    attributes = dict(zip(item.__struct_encode_fields__, item.__struct_fields__, strict=True))
    if name not in attributes:
        known = ", ".join(attributes)
        raise problems.bad_request(f'cannot sort by "{name}"; known: {known}', field="sort")
    attribute = attributes[name]
    values = [getattr(each, attribute) for each in items]
    if any(value is not None and not isinstance(value, _SCALARS) for value in values):
        raise problems.bad_request(f'"{name}" has no order to sort by', field="sort")

    present = [each for each in items if getattr(each, attribute) is not None]
    absent = [each for each in items if getattr(each, attribute) is None]
    try:
        present.sort(key=lambda each: getattr(each, attribute), reverse=is_descending)
    except TypeError:  # numbers among text
        present.sort(key=lambda each: str(getattr(each, attribute)), reverse=is_descending)
    return present + absent


def _start(ordered: Sequence[Any], cursor: str, digest: str, identity: Callable[[Any], str]) -> int:
    if not cursor:
        return 0
    read = _read(cursor)
    if read is None or read.query != digest or read.position < 1:
        raise problems.bad_request(
            "the cursor is not one of this list; begin without it", field="cursor"
        )
    # Most often the item is where it was; else it is looked for.
    before = read.position - 1
    if before < len(ordered) and identity(ordered[before]) == read.last:
        return read.position
    for position, item in enumerate(ordered):
        if identity(item) == read.last:
            return position + 1
    return min(read.position, len(ordered))


def _written(cursor: _Cursor) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode().rstrip("=")


def _read(text: str) -> _Cursor | None:
    try:
        document = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return msgspec.json.decode(document, type=_Cursor)
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        return None


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=9).hexdigest()


def page_of(cut_: Cut, *, as_of: datetime.datetime, version: int) -> endpoints.Page[Any]:
    """The page as it is sent."""
    return endpoints.Page(
        items=cut_.items, total=cut_.total, next=cut_.next, as_of=as_of, version=version
    )

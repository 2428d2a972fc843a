"""Lists: whole, by selector, or page by page from one consistent state.

Given a served kind and the query; joins documents that were encoded when they were written. The first page keeps the
records of the following ones, which costs references only; a page that is asked for too late is 410 Gone. Never
encodes an object that is stored in the served version.
"""

from __future__ import annotations

import base64
import binascii
import datetime
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from dovetail.sim.rest import status_answers
from dovetail.sim.rest.encoding import conversions
from dovetail.sim.rest.encoding.content_types import Form
from dovetail.sim.rest.printing import tables
from dovetail.sim.rest.reading import query_selectors
from dovetail.sim.server.object_store import ObjectStore, Record
from dovetail.sim.server.served_kinds import Served, table_key

MAX_OPEN_LISTS: Final = 200  # lists with pages left; the longest untouched one goes first
EXPIRED: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list "
    "without the continue parameter."
)


class Page(NamedTuple):
    """One page of a list."""

    records: list[Record]
    resource_version: str
    continue_token: str = ""
    remaining: int = 0


class _Token(msgspec.Struct, frozen=True):
    """What a continue token holds."""

    list_id: int
    start: int


class _OpenList(NamedTuple):
    records: list[Record]
    resource_version: str


class Lists:
    """The lists of one server."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._open: OrderedDict[int, _OpenList] = OrderedDict()
        self._last_id = 0

    def page(self, served: Served, namespace: str, query: Mapping[str, str]) -> Page:
        """The page a query asks for."""
        limit = _number(query.get("limit", ""))
        if token := query.get("continue", ""):
            return self._next_page(token, limit)
        selection = query_selectors.parsed(
            query.get("labelSelector", ""), query.get("fieldSelector", ""), table_key(served.kind)
        )
        records = self._selected(served, namespace, selection)
        whole = _OpenList(records, str(self._store.revision))
        if not limit or len(records) <= limit:
            return Page(*whole)
        self._last_id += 1
        self._keep(self._last_id, whole)
        return self._cut(self._last_id, whole, start=0, limit=limit)

    def _selected(
        self, served: Served, namespace: str, selection: query_selectors.Selection
    ) -> list[Record]:
        if namespace and selection.only_name:
            record = self._store.find(served.kind, (namespace, selection.only_name))
            records = [] if record is None else [record]
        else:
            records = self._store.all(served.kind, namespace)
        if selection.is_everything:
            return records
        return [record for record in records if selection.matches(record)]

    def _next_page(self, token: str, limit: int) -> Page:
        try:
            place = msgspec.json.decode(base64.urlsafe_b64decode(token), type=_Token)
        except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
            raise query_selectors.refuse_continue(error) from None
        whole = self._open.get(place.list_id)
        if whole is None:
            raise status_answers.expired(EXPIRED)
        return self._cut(place.list_id, whole, start=place.start, limit=limit or len(whole.records))

    def _cut(self, list_id: int, whole: _OpenList, *, start: int, limit: int) -> Page:
        end = start + limit
        records = whole.records[start:end]
        remaining = len(whole.records) - end
        if remaining <= 0:
            # Kept until others displace it: a client may ask for a page again whose answer it lost.
            return Page(records, whole.resource_version)
        document = msgspec.json.encode(_Token(list_id, end))
        token = base64.urlsafe_b64encode(document).decode()
        return Page(records, whole.resource_version, token, remaining)

    def _keep(self, list_id: int, whole: _OpenList) -> None:
        self._open[list_id] = whole
        if len(self._open) > MAX_OPEN_LISTS:
            self._open.popitem(last=False)


def document(
    served: Served, page: Page, form: Form, *, include: str, now: datetime.datetime
) -> bytes:
    """The answer to a list request."""
    metadata: dict[str, Any] = {"resourceVersion": page.resource_version}
    if page.continue_token:
        metadata |= {"continue": page.continue_token, "remainingItemCount": page.remaining}
    if form is Form.TABLE:
        rows = tables.Rows(served, include=include, now=now)
        return rows.table(page.records, metadata)
    if form in (Form.METADATA, Form.METADATA_LIST):
        documents = [tables.partial_document(record) for record in page.records]
        return _joined("PartialObjectMetadataList", tables.META_VERSION, metadata, documents)
    documents = [conversions.document(served, record) for record in page.records]
    return _joined(f"{served.kind.name}List", served.api_version, metadata, documents)


def _joined(kind: str, api_version: str, metadata: dict[str, Any], documents: list[bytes]) -> bytes:
    head = msgspec.json.encode({"kind": kind, "apiVersion": api_version, "metadata": metadata})
    return b"".join((head[:-1], b',"items":[', b",".join(documents), b"]}\n"))


def _number(text: str) -> int:
    if not text:
        return 0
    if not text.isdigit():
        raise status_answers.bad(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)

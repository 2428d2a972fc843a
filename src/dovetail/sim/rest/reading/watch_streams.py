"""Watches: streams of changes after a version, each line made once and shared by all watches of a kind.

Given committed changes in order. A stream starts from the bounded history of its kind or gets 410 Gone; a client
that reads too slowly is cut off and resumes with a new request. Selectors turn changes into additions and deletions as
objects begin and cease to match. Never reorders events.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from dovetail.sim.rest import status_answers
from dovetail.sim.rest.encoding import conversions
from dovetail.sim.rest.encoding.content_types import Form
from dovetail.sim.rest.printing import tables
from dovetail.sim.rest.reading import query_selectors
from dovetail.sim.rest.reading.query_selectors import Selection
from dovetail.sim.server import watchers
from dovetail.sim.server.object_store import Change, ObjectStore, Record
from dovetail.sim.server.served_kinds import Served, TableKey, table_key

MAX_BUFFERED_BYTES: Final = 64 << 20  # of one slow client
BOOKMARK_SECONDS: Final = 60.0  # about as often as upstream
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"  # meta/v1 InitialEventsAnnotationKey
BOOKMARK: Final = "BOOKMARK"
ERROR: Final = "ERROR"

Tree = dict[str, Any]


class Wish(NamedTuple):
    """What a client watches."""

    served: Served
    namespace: str
    selection: Selection
    form: Form
    include: str = ""
    resource_version: str = ""
    sends_initial: bool = False
    takes_bookmarks: bool = False


class Stream:
    """One watch: lines wait here until its connection takes them."""

    def __init__(self, wish: Wish, *, now: Callable[[], datetime.datetime]) -> None:
        self.wish = wish
        self._now = now
        self._lines: list[bytes] = []
        self._size = 0
        self._has_sent_columns = False
        self._is_plain = _is_plain(wish)
        self.is_over = False  # no more lines will come
        self.ready = asyncio.Event()

    def take(self) -> bytes:
        """Everything that waits."""
        lines, self._lines = self._lines, []
        self._size = 0
        if not self.is_over:
            self.ready.clear()
        return b"".join(lines)

    def close(self) -> None:
        """Ends the stream after what already waits."""
        self.is_over = True
        self.ready.set()

    def offer(self, change: Change, line: Callable[[], bytes]) -> None:
        """Adds a change if the client wants it. `line` makes the shared line of the change."""
        if self.is_over:
            return
        if self._is_plain:
            self._add(line())
            return
        event = self._event_of(change)
        if event:
            self._add(self._line(event, change.record))

    def add_object(self, event: str, record: Record) -> None:
        """Adds one event about an object."""
        if self._is_plain:
            self._add(event_line(event, record.document))
        else:
            self._add(self._line(event, record))

    def add_bookmark(self, resource_version: int, *, ends_initial: bool = False) -> None:
        """Adds a bookmark."""
        self._add(event_line(BOOKMARK, self._bookmark(resource_version, ends_initial)))

    def add_failure(self, document: bytes) -> None:
        """Ends the stream with a Status."""
        self._add(event_line(ERROR, document))
        self.close()

    def matches(self, record: Record) -> bool:
        """Whether the client sees the object at all."""
        namespace = self.wish.namespace
        if namespace and record.metadata.namespace != namespace:
            return False
        return self.wish.selection.matches(record)

    def _event_of(self, change: Change) -> str:
        is_in = change.event != watchers.DELETED and self.matches(change.record)
        was_in = change.old is not None and self.matches(change.old)
        if is_in:
            return watchers.MODIFIED if was_in else watchers.ADDED
        if was_in:
            return watchers.DELETED
        # An object that was created and deleted in one write of this server was never seen.
        return ""

    def _line(self, event: str, record: Record) -> bytes:
        return event_line(event, self._object(record))

    def _object(self, record: Record) -> bytes:
        wish = self.wish
        if wish.form is Form.TABLE:
            rows = tables.Rows(wish.served, include=wish.include, now=self._now())
            version = {"resourceVersion": record.metadata.resource_version}
            with_columns, self._has_sent_columns = not self._has_sent_columns, True
            return rows.table([record], version, with_columns=with_columns)
        if wish.form in (Form.METADATA, Form.METADATA_LIST):
            return tables.partial_document(record)
        return conversions.document(wish.served, record)

    def _bookmark(self, resource_version: int, ends_initial: bool) -> bytes:
        metadata: Tree = {"resourceVersion": str(resource_version)}
        if ends_initial:
            metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
        wish = self.wish
        if wish.form is Form.TABLE:
            rows = tables.Rows(wish.served, include=wish.include, now=self._now())
            return rows.table([], metadata, with_columns=False)
        kind, api_version = wish.served.kind.name, wish.served.api_version
        if wish.form in (Form.METADATA, Form.METADATA_LIST):
            kind, api_version = "PartialObjectMetadata", tables.META_VERSION
        return msgspec.json.encode({"kind": kind, "apiVersion": api_version, "metadata": metadata})

    def _add(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line)
        if self._size > MAX_BUFFERED_BYTES:
            self._lines.clear()
            self.is_over = True
        self.ready.set()


class Streams:
    """All watches of one server."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._by_table: dict[TableKey, set[Stream]] = {}

    def publish(self, changes: list[Change]) -> None:
        """Passes committed changes to all watches of their kinds."""
        for change in changes:
            streams = self._by_table.get(table_key(change.kind))
            if not streams:
                continue
            line = _shared_line(change)
            for stream in streams:
                stream.offer(change, line)

    def open(self, wish: Wish, *, published: int) -> Stream:
        """A stream with what the client has to catch up on. Nothing may be pending when this is called."""
        stream = Stream(wish, now=self._store.now)
        if wish.sends_initial or wish.resource_version in ("", "0"):
            for record in self._initial(wish):
                stream.add_object(watchers.ADDED, record)
            if wish.sends_initial and wish.takes_bookmarks:
                stream.add_bookmark(published, ends_initial=True)
        else:
            self._catch_up(stream, _version(wish.resource_version), published)
        self._by_table.setdefault(table_key(wish.served.kind), set()).add(stream)
        return stream

    def end(self, stream: Stream) -> None:
        """Forgets a stream."""
        stream.close()
        self._by_table.get(table_key(stream.wish.served.kind), set()).discard(stream)

    def end_all(self, table: TableKey | None = None) -> None:
        """Ends the streams of a kind that is no longer served, or all."""
        for key, streams in self._by_table.items():
            if table is None or key == table:
                for stream in streams:
                    stream.close()

    def bookmark(self, published: int) -> None:
        """Sends a bookmark to every watch that takes them."""
        for streams in self._by_table.values():
            for stream in streams:
                if stream.wish.takes_bookmarks and not stream.is_over:
                    stream.add_bookmark(published)

    def _initial(self, wish: Wish) -> Iterator[Record]:
        for record in self._store.all(wish.served.kind, wish.namespace):
            if wish.selection.matches(record):
                yield record

    def _catch_up(self, stream: Stream, version: int, published: int) -> None:
        table = self._store.table(stream.wish.served.kind)
        if version < table.complete_since:
            message = f"too old resource version: {version} ({table.complete_since})"
            _, document = status_answers.failure(status_answers.expired(message))
            stream.add_failure(document)
            return
        if version > published:
            raise status_answers.too_large_version(version, published)
        missed: list[Change] = []
        for change in reversed(table.history):
            if change.revision <= version:
                break
            missed.append(change)
        for change in reversed(missed):
            stream.offer(change, _shared_line(change))


def event_line(event: str, document: bytes) -> bytes:
    """One line of a watch."""
    return b"".join((b'{"type":"', event.encode(), b'","object":', document, b"}\n"))


def _shared_line(change: Change) -> Callable[[], bytes]:
    """Makes the line of a change once, when the first stream wants it."""
    line: bytes | None = None

    def made() -> bytes:
        nonlocal line
        if line is None:
            line = event_line(change.event, change.record.document)
        return line

    return made


def _is_plain(wish: Wish) -> bool:
    """Whether every change of the kind goes to the client as it is stored."""
    return (
        wish.form is Form.OBJECT
        and not wish.namespace
        and wish.selection.is_everything
        and wish.served.is_stored_version
    )


def _version(text: str) -> int:
    if not text.isdigit():
        raise status_answers.bad(f'Invalid value: "{text}": a valid resourceVersion is a number')
    return int(text)


def wish_of(served: Served, namespace: str, name: str, query: dict[str, str], form: Form) -> Wish:
    """What a query asks to watch."""
    fields = query.get("fieldSelector", "")
    if name:
        fields = ",".join(filter(None, (fields, f"metadata.name={name}")))
    selection = query_selectors.parsed(
        query.get("labelSelector", ""), fields, table_key(served.kind)
    )
    return Wish(
        served,
        namespace,
        selection,
        form,
        include=query.get("includeObject", ""),
        resource_version=query.get("resourceVersion", ""),
        sends_initial=query.get("sendInitialEvents", "") in ("true", "1"),
        takes_bookmarks=query.get("allowWatchBookmarks", "") in ("true", "1"),
    )

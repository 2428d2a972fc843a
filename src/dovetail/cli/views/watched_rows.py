"""`dovetail get -w`: a table, then one row for every row that is new or differs, until Ctrl-C."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from dovetail.ask import api_session, followed_objects
from dovetail.cli import output, slow_notice
from dovetail.cli.views import server_table
from dovetail.kube import read_objects
from dovetail.tables import listing, text

if TYPE_CHECKING:
    from dovetail.boot import cluster_choice
    from dovetail.kube.http import transport

PAUSE_SECONDS = 0.1  # changes within it are shown together
DELETED = "deleted"


def follow(
    choice: cluster_choice.Choice,
    table: listing.Table,
    query: listing.Query,
    *,
    is_wide: bool,
    has_headers: bool,
) -> None:
    """Prints rows of one of our tables until the user ends it."""
    printer = _Printer(is_wide=is_wide, has_headers=has_headers)
    api_session.run(choice, lambda over: _follow(over, table, query, printer))


def follow_server(
    choice: cluster_choice.Choice,
    word: str,
    query: listing.Query,
    *,
    is_wide: bool,
    has_headers: bool,
) -> None:
    """Prints rows of the server's table of a kind until the user ends it."""
    printer = _Printer(is_wide=is_wide, has_headers=has_headers)

    async def work(over: transport.Transport) -> None:
        resource = await server_table.resource_of(over, word)
        async for shown, is_gone in server_table.followed(over, resource, query):
            rows = [row.shown(is_wide=is_wide) for row in shown.rows]
            if is_gone:
                rows = [_gone_row(row) for row in shown.rows]
            printer.write(shown, rows)

    api_session.run(choice, work)


async def _follow(
    over: transport.Transport, table: listing.Table, query: listing.Query, printer: _Printer
) -> None:
    first = await read_objects.read_over(over, table.reads(query), cluster="")
    served = tuple(read for read in table.reads(query) if read.kind not in first.unserved)
    objects = followed_objects.FollowedObjects("")
    rows = _Rows(table, query, printer)
    try:
        await objects.follow(over, served)
        while True:
            objects.changed.clear()
            seen = msgspec.structs.replace(query, objects=objects.now())
            await objects.follow(over, table.more_reads(seen))
            rows.show(msgspec.structs.replace(query, objects=objects.now()))
            await objects.changed.wait()
            await asyncio.sleep(PAUSE_SECONDS)
    finally:
        await objects.close()


class _Rows:
    """What was shown of one of our tables."""

    def __init__(self, table: listing.Table, query: listing.Query, printer: _Printer) -> None:
        self._table = table
        self._epoch = query.now  # ages as of one time do not differ from row to row
        self._printer = printer
        self._shown: dict[str, tuple[str, ...]] = {}

    def show(self, query: listing.Query) -> None:
        """Prints the rows that are new or differ, and the names of those that are gone."""
        is_wide = self._printer.is_wide
        still = self._table.listing(msgspec.structs.replace(query, now=self._epoch))
        states = {_identity(row): row.shown(is_wide=is_wide) for row in still.rows}
        changed = {name for name, cells in states.items() if self._shown.get(name) != cells}
        gone = [name for name in self._shown if name not in states]
        self._shown = states

        now = datetime.datetime.now(datetime.UTC)
        current = self._table.listing(msgspec.structs.replace(query, now=now))
        rows = [row.shown(is_wide=is_wide) for row in current.rows if _identity(row) in changed]
        rows += [(*name.split(" "), DELETED) for name in gone]
        self._printer.write(current, rows)


class _Printer:
    """Prints rows. Columns keep the width of the first table, as far as later cells allow."""

    def __init__(self, *, is_wide: bool, has_headers: bool) -> None:
        self.is_wide = is_wide
        self._has_headers = has_headers
        self._widths: list[int] = []

    def write(self, shown: listing.Listing, rows: Sequence[tuple[str, ...]]) -> None:
        """Prints rows, the headers before the first."""
        slow_notice.end()  # an empty table is an answer, too
        if rows:
            output.write_lines(self._lines(shown, rows))

    def _lines(self, shown: listing.Listing, rows: Sequence[tuple[str, ...]]) -> list[str]:
        headers = shown.shown_headers(is_wide=self.is_wide)
        padded = [row + ("",) * (len(headers) - len(row)) for row in rows]
        is_first = not self._widths
        if is_first:
            columns = zip(headers, *padded, strict=True)
            self._widths = [max(map(len, column)) for column in columns]
        lines = [headers, *padded] if is_first and self._has_headers else padded
        return [self._aligned(line, is_header=line is headers) for line in lines]

    def _aligned(self, line: tuple[str, ...], *, is_header: bool) -> str:
        cells = [cell.upper() if is_header else cell or "-" for cell in line]
        return text.GAP.join(map(str.ljust, cells, self._widths)).rstrip()


def _identity(row: listing.Row) -> str:
    """What distinguishes rows: names are unique within a namespace only, which is the first cell then."""
    return f"{row.cells[0]} {row.name.partition('/')[2]}"


def _gone_row(row: listing.Row) -> tuple[str, ...]:
    """The namespace where there is one, the name, and that it is gone."""
    name = row.name.partition("/")[2]
    first = row.cells[:1] if row.cells[:1] != (name,) else ()
    return (*first, name, DELETED)

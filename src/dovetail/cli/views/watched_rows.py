"""`dovetail get -w`: a table, then one row for every row that is new or differs, until Ctrl-C."""

from __future__ import annotations

import asyncio
import datetime
from typing import TYPE_CHECKING

import msgspec

from dovetail.cli import output
from dovetail.cli.cluster import api_session, followed_objects
from dovetail.cli.tables import listing, text
from dovetail.kube import read_objects

if TYPE_CHECKING:
    from dovetail.boot import cluster_choice
    from dovetail.kube.http import transport

PAUSE_SECONDS = 0.1  # changes within it are shown together
DELETED = "deleted"


def follow(
    choice: cluster_choice.Choice, table: listing.Table, query: listing.Query, *, is_wide: bool
) -> None:
    """Prints rows until the user ends it."""
    api_session.run(choice, lambda over: _follow(over, table, query, is_wide=is_wide))


async def _follow(
    over: transport.Transport, table: listing.Table, query: listing.Query, *, is_wide: bool
) -> None:
    first = await read_objects.read_over(over, table.reads(query), cluster="")
    served = tuple(read for read in table.reads(query) if read.kind not in first.unserved)
    objects = followed_objects.FollowedObjects("")
    rows = _Rows(table, query, is_wide=is_wide)
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
    """What was shown. Columns keep the width of the first table, as far as later cells allow."""

    def __init__(self, table: listing.Table, query: listing.Query, *, is_wide: bool) -> None:
        self._table = table
        self._epoch = query.now  # ages as of one time do not differ from row to row
        self._is_wide = is_wide
        self._shown: dict[str, tuple[str, ...]] = {}
        self._widths: list[int] = []

    def show(self, query: listing.Query) -> None:
        """Prints the rows that are new or differ, and the names of those that are gone."""
        still = self._table.listing(msgspec.structs.replace(query, now=self._epoch))
        states = {_identity(row): self._cells(row) for row in still.rows}
        changed = {name for name, cells in states.items() if self._shown.get(name) != cells}
        gone = [name for name in self._shown if name not in states]
        self._shown = states

        now = datetime.datetime.now(datetime.UTC)
        current = self._table.listing(msgspec.structs.replace(query, now=now))
        rows = [self._cells(row) for row in current.rows if _identity(row) in changed]
        rows += [(*name.split(" "), DELETED) for name in gone]
        if rows:
            output.write_lines(self._lines(current, rows))

    def _cells(self, row: listing.Row) -> tuple[str, ...]:
        return row.cells + row.wide if self._is_wide else row.cells

    def _lines(self, shown: listing.Listing, rows: list[tuple[str, ...]]) -> list[str]:
        headers = shown.headers + shown.wide_headers if self._is_wide else shown.headers
        padded = [row + ("",) * (len(headers) - len(row)) for row in rows]
        is_first = not self._widths
        if is_first:
            columns = zip(headers, *padded, strict=True)
            self._widths = [max(map(len, column)) for column in columns]
        lines = [headers, *padded] if is_first else padded
        return [self._aligned(line, is_header=line is headers) for line in lines]

    def _aligned(self, line: tuple[str, ...], *, is_header: bool) -> str:
        cells = [cell.upper() if is_header else cell or "-" for cell in line]
        return text.GAP.join(map(str.ljust, cells, self._widths)).rstrip()


def _identity(row: listing.Row) -> str:
    """What distinguishes rows: names are unique within a namespace only, which is the first cell then."""
    return f"{row.cells[0]} {row.name.partition('/')[2]}"

"""The result of `Cluster.usage`: who holds GPUs and who waits for them, one row per queue, namespace and so on.

Given rows that were counted. Shows a table for each way of counting, as `dovetail top` does. Never counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.sdk import html_text
from dovetail.sdk.result_table import Columns, Table
from dovetail.tables import text
from dovetail.tables.work import gpu_usage_table
from dovetail.tables.work.gpu_holdings import UsageRow

COLUMNS: Columns[UsageRow] = Columns(
    gpu_usage_table.headers("name"), gpu_usage_table.cells, "usage", gpu_usage_table.tree
)


class Usage(Table[UsageRow]):
    """Rows by queue, namespace, user, node or type. `total` is how many GPUs there are."""

    __slots__ = ("total",)

    def __init__(self, items: Sequence[UsageRow], total: float) -> None:
        super().__init__(items, COLUMNS)
        self.total = total

    def by(self, key: str) -> Usage:
        """The rows of one way of counting: `queue`, `namespace`, `user`, `node` or `type`."""
        return self._with([row for row in self if row.by == key])

    def to_html(self, *, max_rows: int | None = None) -> str:
        """The tables as HTML."""
        parts = []
        for key, rows in self._sections(self[:max_rows]):
            cells = [gpu_usage_table.cells(row) for row in rows]
            parts.append(html_text.table(gpu_usage_table.headers(key), cells))
        if max_rows is not None and len(self) > max_rows:
            parts.append(html_text.paragraph(f"... and {len(self) - max_rows} more"))
        return html_text.document(parts or [html_text.paragraph(self._nothing)])

    def _text(self, items: Sequence[UsageRow]) -> str:
        blocks = []
        for key, rows in self._sections(items):
            cells = [gpu_usage_table.cells(row) for row in rows]
            blocks.append("\n".join(text.table(gpu_usage_table.headers(key), cells)))
        return "\n\n".join(blocks) or self._nothing

    def _sections(self, items: Sequence[UsageRow]) -> list[tuple[str, list[UsageRow]]]:
        keys = dict.fromkeys(row.by for row in items)
        return [(key, [row for row in items if row.by == key]) for key in keys]

    def _with(self, items: Sequence[UsageRow]) -> Usage:
        return Usage(items, self.total)

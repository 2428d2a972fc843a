"""The answer of `dovetail stack check` as one HTML page that needs nothing else: for a ticket, a review, a mail.

Given the answer and the name of the cluster. Every text of the cluster is escaped; the page has no script and loads
nothing. Never judges, never writes a file.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Final

from dovetail.answer.stack.stack_check import StackCheck
from dovetail.tables.stack import check_table

_STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 90rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .7rem .3rem 0; vertical-align: top; border-bottom: 1px solid #8884; }
th { font-weight: 600; } td { overflow-wrap: anywhere; } .wide { overflow-x: auto; }
.go { color: light-dark(#1a6e2e, #7fd694); } .no { color: light-dark(#a3140a, #ff9d93); font-weight: 600; }
.unknown { color: light-dark(#7a5200, #f0c36d); font-weight: 600; }
footer { margin-top: 2rem; opacity: .8; }
@media print { body { margin: 0; max-width: none; } h2, table { break-inside: avoid; } }
"""
# Words of verdicts, states and support, by what a reader shall see in them. The words themselves stand there, too.
_CLASSES: Final = {
    "go": "go",
    "native": "go",
    "minor": "go",
    "forward": "go",
    "ok": "go",
    "supported": "go",
    "no": "no",
    "ended": "no",
    "cannot tell": "unknown",
    "warning": "unknown",
    "ends soon": "unknown",
}


def page(check: StackCheck, cluster: str) -> str:
    """The whole page."""
    sections = check_table.sections(check, is_wide=True)
    body = "\n".join(_section(section) for section in sections)
    verdict = html.escape(check_table.verdict_line(check))
    title = html.escape(f"Upgrade check: {cluster}")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{title}</h1>\n<p class="{_CLASSES[check.outcome]}">{verdict}</p>\n{body}\n</main>\n'
        f"<footer>As of {html.escape(check.today)}. Images were not read; a version that no object"
        " states is not known.</footer>\n</body>\n</html>\n"
    )


def _section(section: check_table.Section) -> str:
    heads = "".join(f'<th scope="col">{html.escape(head)}</th>' for head in section.headers)
    rows = "\n".join(_row(row, section.state) for row in section.rows)
    return (
        f'<h2>{html.escape(section.title)}</h2>\n<div class="wide"><table>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>"
    )


def _row(cells: Sequence[str], state: int) -> str:
    parts = []
    for index, cell in enumerate(cells):
        name = _CLASSES.get(cell, "") if index == state else ""
        attribute = f' class="{name}"' if name else ""
        parts.append(f"<td{attribute}>{html.escape(cell)}</td>")
    return f"<tr>{''.join(parts)}</tr>"

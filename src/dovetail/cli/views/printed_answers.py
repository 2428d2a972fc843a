"""What `dovetail get` prints on standard output: tables, names, objects, or what a template says about them.

Given the rows of one or more resources and a format. Never reads a cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dovetail.cli import output, output_formats
from dovetail.tables import listing, path_templates, text


class Answer(NamedTuple):
    """The rows of one resource, and how they came about. Kinds without a table of ours have the server's."""

    word: str
    table: listing.Table | None
    query: listing.Query
    listing: listing.Listing
    cluster: str

    @property
    def name(self) -> str:
        """What messages call the resource."""
        return self.word if self.table is None else self.table.name


def write(answers: Sequence[Answer], form: output_formats.Format, *, has_headers: bool) -> None:
    """Prints the answers in one format."""
    if form.shows_documents:
        trees = [
            listing.presented(tree) for answer in answers for tree in answer.listing.documents()
        ]
        _write_documents(trees, form, is_single=_is_single(answers), has_headers=has_headers)
        return
    is_name = form.name == "name"
    blocks = [
        lines_of(answer.listing, form.name)[not has_headers and not is_name :]
        for answer in answers
        if answer.listing.rows
    ]
    separator = [] if is_name else [""]
    lines: list[str] = []
    for block in blocks:
        lines += [*(separator if lines else []), *block]
    if lines:
        write = output.write_table if form.name == "table" else output.write_lines
        write(lines)


def _write_documents(
    trees: Sequence[listing.Tree],
    form: output_formats.Format,
    *,
    is_single: bool,
    has_headers: bool,
) -> None:
    """The objects themselves, or what a template says about them."""
    if is_single and not trees:
        return
    if form.name == output_formats.CUSTOM_COLUMNS:
        output.write_lines(path_templates.columns(form.template, trees, has_headers=has_headers))
    elif form.name == output_formats.JSONPATH:
        tree = trees[0] if is_single else output.list_of(trees)
        output.write_text(path_templates.printed(form.template, tree))
    elif is_single:
        output.write_object(trees[0], form.name)
    else:
        output.write_objects(trees, form.name)


def _is_single(answers: Sequence[Answer]) -> bool:
    """Whether one object was asked for by its name: it is printed as it is, as kubectl does."""
    first = answers[0]
    has_object = first.table is None or first.table.shows_objects
    return len(answers) == 1 and len(first.query.names) == 1 and has_object


def lines_of(shown: listing.Listing, form: str) -> list[str]:
    """The lines of a table, or the names."""
    if form == "name":
        return [row.name for row in shown.rows]
    is_wide = form == "wide"
    cells = [row.shown(is_wide=is_wide) for row in shown.rows]
    return text.table(shown.shown_headers(is_wide=is_wide), cells)

"""Opens the records of GPU accounting that a user names: the one place that knows in which forms they are kept.

Given a location and a window. A record that is still open was seen last at `until`; where that is not known, it lasts
to the time of the question. Raises InputError for what cannot be read. Never writes.
"""

from __future__ import annotations

from typing import NamedTuple

from dovetail.answer.cost import record_document
from dovetail.answer.cost.cost_window import Window
from dovetail.files import bounded_files
from dovetail.model.accounting import records


class Recorded(NamedTuple):
    """What was recorded about a window, and up to when."""

    records: records.Records
    until: records.Millis | None  # None: up to the time of the question


def read(location: str, window: Window) -> Recorded:
    """Everything that overlaps the window; a document may hold more."""
    content = bounded_files.content(location)
    name = bounded_files.display_name(location)
    return Recorded(record_document.read(content, name), None)

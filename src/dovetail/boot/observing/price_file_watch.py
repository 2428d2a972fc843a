"""The price file of a process that runs for long: read again when it changes, and only if it can be used.

Given a path. A file that is bad at the start is refused; one that becomes bad later is reported once, and the prices
before it stay in force. Never writes.
"""

from __future__ import annotations

import logging
from pathlib import Path

from dovetail import errors
from dovetail.answer.cost import price_file, price_list
from dovetail.files import bounded_files
from dovetail.model.accounting.records import PriceList

LOG = logging.getLogger("dovetail.history")


class PriceFileWatch:
    """The document in force. Raises InputError where the file cannot be read at the start."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._seen = self._mark()
        self._text, self.prices = self._read()

    @property
    def document(self) -> PriceList:
        """The document as history keeps it. It begins at 0: the recorder knows when."""
        return PriceList(Path(self._location).name, self._text, 0)

    def refresh(self) -> bool:
        """Reads the file again if it changed. Whether other prices are in force now."""
        mark = self._mark()
        if mark == self._seen:
            return False
        self._seen = mark
        try:
            text, prices = self._read()
        except errors.DovetailError as error:
            LOG.warning("history.prices: the former ones stay in force", extra={"why": str(error)})
            return False
        has_changed = text != self._text
        self._text, self.prices = text, prices
        return has_changed

    def _read(self) -> tuple[str, price_list.PriceList]:
        text = bounded_files.text(self._location)
        return text, price_file.read(text, bounded_files.display_name(self._location))

    def _mark(self) -> tuple[int, int, int]:
        """Changes when the file does, also where a mounted ConfigMap is swapped."""
        try:
            status = Path(self._location).stat()
        except OSError:
            return -1, -1, -1  # reading it says what is wrong
        return status.st_mtime_ns, status.st_size, status.st_ino

"""Prices and records for a process that is asked again and again: read from their files when these change.

Given locations. Reads prices at once, so that a process with a bad price file does not start. A price file that becomes
unusable later is refused in the answer. Safe for several threads. Never writes.
"""

from __future__ import annotations

import threading
from pathlib import Path

from dovetail.answer.cost import cost_ledger, price_list
from dovetail.ask import cost_asked, recorded_history
from dovetail.model.accounting.records import Millis


class CostSource:
    """Where a dashboard finds what it needs for costs."""

    def __init__(self, history: str, prices: str | None) -> None:
        self._history = history
        self._prices = prices
        self._lock = threading.Lock()
        self._seen = self._mark()
        self._known = cost_asked.prices(prices)

    def prices(self) -> price_list.PriceList:
        """The prices as they are now."""
        with self._lock:
            mark = self._mark()
            if mark != self._seen:
                self._known = cost_asked.prices(self._prices)
                self._seen = mark
            return self._known

    def until(self, now: Millis) -> Millis:
        """Up to when a question that is asked now can be answered."""
        return recorded_history.until(self._history, now)

    def account(self, question: cost_ledger.Question, now: Millis) -> recorded_history.Account:
        """What the records say to a question."""
        return recorded_history.account(self._history, question, now)

    def _mark(self) -> tuple[int, int]:
        """Changes when the price file does."""
        if self._prices is None or self._prices == cost_asked.EXAMPLES:
            return 0, 0
        try:
            status = Path(self._prices).stat()
        except OSError:
            return -1, -1  # reading it says what is wrong
        return status.st_mtime_ns, status.st_size

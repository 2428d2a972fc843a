"""The bar that long simulations show on a terminal: how far a run is, which one of how many, and the time left.

Given counts of jobs. Reads the clock; shows nothing where stderr is no terminal.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from dovetail.cli import output

WIDTH: Final = 30
PAUSE_SECONDS: Final = 0.1  # between two pictures


class Bar:
    """Of several runs on the same jobs."""

    def __init__(self, policies: Sequence[str]) -> None:
        self._policies = policies
        self._began = time.perf_counter()
        self._shown = 0.0
        self._run = -1
        self._run_began = self._began

    def show(self, run: int, ended: int, total: int) -> None:
        """The present run, and how many of its jobs ended."""
        now = time.perf_counter()
        if run != self._run:
            self._run, self._run_began = run, now
        elif now - self._shown < PAUSE_SECONDS:
            return
        self._shown = now
        output.progress(self.text(run, ended, total, now - self._run_began).ljust(100))

    def text(self, run: int, ended: int, total: int, seconds: float) -> str:
        """The line."""
        part = ended / total if total else 1.0
        bar = ("#" * int(part * WIDTH)).ljust(WIDTH, ".")
        which = f" ({run + 1} of {len(self._policies)})" if len(self._policies) > 1 else ""
        left = f", {duration(seconds * (1 - part) / part)} left" if part else ""
        return f"{self._policies[run]}{which} [{bar}] {ended} of {total} jobs ended{left}"

    def close(self) -> float:
        """Clears the line; returns the seconds since the beginning."""
        output.clear_progress(output.PROGRESS_WIDTH)
        return round(time.perf_counter() - self._began, 2)


def duration(seconds: float) -> str:
    """As people say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"

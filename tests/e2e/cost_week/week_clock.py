"""The clock of a week that a test sets, for processes that are given a clock.

The test writes the time into a file, and every process with a `FileClock` on that file has this time until it is
written again. So time stands still while something is changed, and a day passes between two changes. Pauses are real
and short. Never goes back.
"""

from __future__ import annotations

import asyncio
import datetime
from pathlib import Path
from typing import Final

from dovetail.files import private_files

MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE
PAUSE_SECONDS: Final = 0.05


class FileClock:
    """Implements `ports.clock.Clock` with the milliseconds since 1970 in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def now(self) -> datetime.datetime:
        """The time in the file."""
        return datetime.datetime.fromtimestamp(self._millis() / 1000, datetime.UTC)

    def monotonic(self) -> float:
        """The same in seconds: periods of the process are periods of the week."""
        return self._millis() / 1000

    async def sleep(self, seconds: float) -> None:
        """A short real pause, whatever was asked for: the time in the file does not pass by itself."""
        await asyncio.sleep(min(seconds, PAUSE_SECONDS))

    def _millis(self) -> int:
        return int(self._file.read_text(encoding="ascii"))


class WeekClock:
    """Sets the time, in hours or minutes of a week that ended in the recent past."""

    def __init__(self, file: Path, *, start: int) -> None:
        self.file = file
        self.start = start
        self.now = start
        self._write()

    def set(self, hours: float) -> None:
        """So many hours since the week began."""
        moment = self.start + round(hours * HOUR)
        assert moment >= self.now, "time goes forward"
        self.now = moment
        self._write()

    def minute(self) -> int:
        """A minute later; returns the time."""
        self.now += MINUTE
        self._write()
        return self.now

    def _write(self) -> None:
        private_files.replace(self.file, str(self.now).encode("ascii"))

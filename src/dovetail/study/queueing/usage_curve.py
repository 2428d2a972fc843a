"""How many GPUs were in use, waited for, and of no use to what waits, from event to event of a run.

Given the levels after every event. Answers with integrals and averages over equal parts of the time. Never decides.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

HOUR: Final = 3600


class Level(NamedTuple):
    """The cluster from one event to the next."""

    used_gpus: int
    waiting_gpus: int
    waiting_jobs: int
    too_few_gpus: int  # idle, on nodes with too few free GPUs for any waiting pod


class Curve:
    """Levels in the order of time."""

    def __init__(self) -> None:
        self._seconds = array("q")
        self._levels: list[Level] = []

    @property
    def last_second(self) -> int:
        """The time of the last event."""
        return self._seconds[-1] if self._seconds else 0

    def note(self, second: int, level: Level) -> None:
        """From this second on; the last word about a second counts."""
        if self._seconds and self._seconds[-1] == second:
            self._levels[-1] = level
            return
        self._seconds.append(second)
        self._levels.append(level)

    def gpu_hours(self, value: Callable[[Level], float]) -> float:
        """The integral of a value over the run."""
        seconds = sum((end - start) * value(level) for start, end, level in self._steps())
        return round(seconds / HOUR, 1)

    def averages(self, value: Callable[[Level], float], *, until: int, parts: int) -> list[float]:
        """The mean value in each of so many equal parts of the time up to `until`."""
        width = until / parts if until else 1.0
        sums = [0.0] * parts
        for start, end, level in self._steps():
            amount = value(level)
            place, end = float(start), min(end, until)
            while amount and place < end:
                part = min(int(place / width), parts - 1)
                stop = float(end) if part == parts - 1 else min(end, (part + 1) * width)
                if stop <= place:  # rounding: the boundary belongs to the next part
                    part, stop = part + 1, min(end, (part + 2) * width)
                sums[part] += amount * (stop - place)
                place = stop
        return [round(total / width, 3) for total in sums]

    def _steps(self) -> Iterator[tuple[int, int, Level]]:
        for index in range(len(self._levels) - 1):
            yield self._seconds[index], self._seconds[index + 1], self._levels[index]

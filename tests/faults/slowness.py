"""Measures how much slower than a free core the machine is for us, so that bounds in seconds hold on a busy one.

A thread does a little fixed work now and then and compares the time that passed with the processor time it got. The
factor is the worst of these ratios, 1 on a machine with a free core; `recent` is the worst of the last few.
"""

from __future__ import annotations

import collections
import threading
import time
from types import TracebackType
from typing import Final, Self

WORK_SECONDS: Final = 0.02  # of processor time, each time
PAUSE_SECONDS: Final = 1.0
RECENT: Final = 10  # measurements


class Slowness:
    """Measures while it is open."""

    def __init__(self) -> None:
        self.factor = 1.0
        self._latest = collections.deque([measured()], maxlen=RECENT)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slowness", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def recent(self) -> float:
        """How slow the machine was a moment ago, for bounds that are set while it works."""
        return max(list(self._latest))

    def _run(self) -> None:
        while not self._is_over.wait(PAUSE_SECONDS):
            self._latest.append(measured())
            self.factor = max(self.factor, self._latest[-1])


def measured() -> float:
    """Seconds that pass for each second of processor time, now."""
    began, worked = time.monotonic(), time.thread_time()
    while time.thread_time() - worked < WORK_SECONDS:
        pass
    return (time.monotonic() - began) / (time.thread_time() - worked)

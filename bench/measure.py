"""Times work: rounds that alternate between us and the peer, medians, ratios. Never asserts."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple


class Pair(NamedTuple):
    """Rates per second of ours and the peer's, round by round."""

    ours: list[float]
    peer: list[float]

    @property
    def ratio(self) -> float:
        """Median of our rate over the peer's, round by round."""
        return statistics.median(a / b for a, b in zip(self.ours, self.peer, strict=True))

    def as_json(self) -> dict[str, object]:
        """For the results file."""
        return {
            "oursPerSecond": round(statistics.median(self.ours), 1),
            "goPerSecond": round(statistics.median(self.peer), 1),
            "ratio": round(self.ratio, 2),
            "rounds": len(self.ours),
        }


def rate(work: Callable[[], int], *, seconds: float) -> float:
    """How many pieces of work a second, over at least this long. The collector stays on, as in production."""
    gc.collect()
    done = 0
    began = time.perf_counter()
    while (took := time.perf_counter() - began) < seconds:
        done += work()
    return done / took


def interleaved(ours: Callable[[], float], peer: Callable[[], float], *, rounds: int) -> Pair:
    """Alternates, so that a noisy minute hits both."""
    pairs = [(ours(), peer()) for _ in range(rounds)]
    return Pair([a for a, _ in pairs], [b for _, b in pairs])

"""Measures one case of the batch benchmark at one size, in a process of its own; prints the figures as JSON.

Seconds are processor time of the one thread that decides: on a quiet machine the same as by the clock, on a busy one
without what others took. The collector is set as in the scheduler once it has seen the cluster. The first decision
makes the memories of the World, the later ones find them; every plan is checked.
"""

from __future__ import annotations

import contextlib
import cProfile
import gc
import pstats
import resource
import signal
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from bench import batch_cases
from bench.batch_worlds import NOW, Devices, Site
from dovetail.model import plan
from dovetail.schedule import decide as cycle

ENOUGH_SECONDS = 2.0  # further rounds start only before that
MOST_ROUNDS = 5


def measured(
    case: str, nodes: int, devices: Devices, *, rounds: int = MOST_ROUNDS, settles: bool = True
) -> dict[str, Any]:
    """What one case takes: building the World, deciding for the first time, deciding again."""
    began = time.process_time()
    site, expected = built(case, nodes, devices)
    building = time.process_time() - began
    if settles:
        settle()
    first, wrong = _decided(site, expected)
    again: list[float] = []
    while len(again) < rounds and sum(again) < ENOUGH_SECONDS:
        again.append(_decided(site, expected)[0])
    count = batch_cases.CASES[case].asked(nodes)
    seconds = statistics.median(again) if again else first
    figures = {
        "firstSeconds": round(first, 4),
        "againSeconds": round(seconds, 4),
        "rounds": len(again),
        "podsPerSecond": round(count / first, 1),
        "pods": count,
        "buildSeconds": round(building, 2),
        "peakMiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    return figures | ({"wrong": wrong} if wrong else {})


def built(case: str, nodes: int, devices: Devices) -> tuple[Site, batch_cases.Expected]:
    """The cluster of a case, ready to be decided about."""
    site = Site(nodes, devices)
    return site, batch_cases.CASES[case].build(site)


def settle() -> None:
    """Sets the collector as the scheduler does once it has seen the cluster."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def decide(site: Site) -> plan.Plan:
    """What is measured."""
    return cycle.decide(site.world, now=NOW)


def _decided(site: Site, expected: batch_cases.Expected) -> tuple[float, str | None]:
    began = time.process_time()
    found = decide(site)
    return time.process_time() - began, batch_cases.mismatch(expected, found)


class _LongEnoughError(Exception):
    pass


def profiled(
    case: str, nodes: int, devices: Devices, *, output: Path, limit_seconds: float
) -> None:
    """Writes where the time of the first decision goes, by own and by cumulative time; stops it at the limit."""
    site, _ = built(case, nodes, devices)
    settle()
    profile = cProfile.Profile()
    signal.signal(signal.SIGALRM, _stop)
    signal.setitimer(signal.ITIMER_REAL, limit_seconds)
    with contextlib.suppress(_LongEnoughError):
        profile.runcall(decide, site)
    signal.setitimer(signal.ITIMER_REAL, 0)
    with output.open("w", encoding="utf-8") as file:
        stats = pstats.Stats(profile, stream=file)
        stats.sort_stats("tottime").print_stats(25)
        stats.sort_stats("cumulative").print_stats(25)
        stats.print_callers(12)


def _stop(*_: object) -> None:
    raise _LongEnoughError


if __name__ == "__main__":
    print(
        msgspec.json.encode(measured(sys.argv[1], int(sys.argv[2]), Devices(sys.argv[3]))).decode()
    )

"""Simulates many random clusters and prints where a promise moved without a cause: `python -m tests.backfill`.

No work takes longer than stated. Where all are of equal priority no promise may move later, and no work may start
later than first promised; where some are more important (`--ranked`) whatever moves later has to say who took its
place. With `--liars` some never end although they say when, and state no longest time: a promise made before the first
of them started is kept all the same. Prints a line for every cluster in which something went wrong. Exit 1 if there was
any.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import math
import random
import sys
from collections.abc import Iterator

from dovetail.schedule.backfill import runtimes
from tests.backfill.timed_cluster import TimedCluster, Work, after

MINUTE = 60
LONG_AFTER = (
    600  # minutes after noon: all that was promised within the first half hour should have started
)
LATE = datetime.timedelta(seconds=runtimes.LATE_SECONDS)
LIARS = frozenset(f"w{number}" for number in range(1, 16, 2))
NO_CAUSE = "less is free on its nodes than was stated"


def drawn(seed: int, *, is_ranked: bool, are_liars: bool = False) -> TimedCluster:
    """A cluster of up to four nodes after all work that arrived within an hour has run."""
    rng = random.Random(seed)
    works = []
    for number in range(rng.randint(6, 14 if is_ranked else 16)):
        stated = rng.randint(1, 40)
        is_silent = rng.randint(0, 9) == 0
        is_liar = are_liars and number % 2 == 1
        works.append(
            Work(
                name=f"w{number}",
                pods=rng.choice((1, 1, 1, 2, 3)),
                gpus=rng.choice((1, 1, 2, 3, 4)),
                seconds=None if is_liar else rng.randint(1, stated) * MINUTE,
                states=None if is_silent else stated * MINUTE,
                at=rng.randint(0, 60)
                if not are_liars
                else rng.randint(31, 60)
                if is_liar
                else rng.randint(0, 30),
                priority=rng.choice((0, 0, 0, 50)) if is_ranked else 0,
                is_bounded=not is_liar,
            )
        )
    nodes, promises = rng.randint(1, 3 if is_ranked else 4), rng.choice((1, 4, 8))
    timed = TimedCluster(nodes=nodes, gpus=4, promises=promises).arrive(*works)
    return timed.go_on(LONG_AFTER if are_liars else None)  # liars never end


def faults(timed: TimedCluster, *, is_ranked: bool) -> Iterator[str]:
    """What should not have happened."""
    for name, messages in timed.promised.items():
        dated = [
            (turn, one)
            for turn, one in zip(timed.turns[name], messages, strict=True)
            if one.start is not None
        ]
        for (first, before), (second, later) in itertools.pairwise(dated):
            assert before.start is not None
            assert later.start is not None
            if not is_ranked and later.start > before.start:
                yield f"{name} moved from {before.start:%H:%M:%S} to {later.start:%H:%M:%S}: {later.cause}"
            is_same = second == first + 1  # else it started meanwhile, and was evicted
            if (
                is_same
                and later.start > before.start + LATE
                and NO_CAUSE in (later.cause or NO_CAUSE)
            ):
                yield f"{name} moved to {later.start:%H:%M:%S} for nothing"
        began = timed.started(name)
        if (
            not is_ranked
            and dated
            and (began is None or after(began) > (dated[0][1].start or after(0)))
        ):
            yield f"{name} started later than first promised"


def overtaken(timed: TimedCluster) -> Iterator[str]:
    """Promises made before the first liar started, to others than liars, that were not kept."""
    first = min(
        (began for name in LIARS if (began := timed.started(name)) is not None), default=math.inf
    )
    for name, messages in timed.promised.items():
        start = messages[0].start
        if name in LIARS or start is None or timed.hours[name][0] >= first:
            continue
        began = timed.started(name)
        if began is None or after(began) > start:
            yield f"{name} was promised {start:%H:%M:%S} and started {began} minutes after noon"


def main() -> int:
    """Reads the command line and lives through what it asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:100", help="first and beyond the last")
    parser.add_argument(
        "--liars", action="store_true", help="with work that never ends although it says when"
    )
    parser.add_argument("--ranked", action="store_true", help="with work of two priorities")
    asked = parser.parse_args()
    first, last = map(int, asked.seeds.split(":"))
    wrong = 0
    for seed in range(first, last):
        timed = drawn(seed, is_ranked=asked.ranked, are_liars=asked.liars)
        result = [*(overtaken(timed) if asked.liars else faults(timed, is_ranked=asked.ranked))]
        wrong += bool(result)
        if result:
            print(f"{seed}: {'; '.join(result)}", flush=True)
    print(f"{last - first} yards, {wrong} with faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

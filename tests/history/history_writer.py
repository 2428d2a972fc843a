"""A process that appends to a store and says what is durable, and ends itself at a call of the database.

`python -m tests.history.history_writer LOCATION SEED`: appends batches until it is killed, one line per acknowledged
batch. `end_at_each_call` forks a writer per call of the database, each of which ends itself there without any clean-up.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dovetail.history import compaction, database, postgres_database, sqlite_database, stores
from dovetail.model.accounting.records import MICRO_GPU, Allocation, Decision, Form, Records, Usage
from tests.history import drawn
from tests.history.drawn import HOUR, MINUTE

ENDED = 7  # the exit code of a process that ended itself
LIMITS = compaction.Limits(fine=0, medium=0)
BATCHES = 2


class EndingDatabase:
    """Passes calls on, and ends the process before or after one of them."""

    def __init__(self, behind: database.Database, boundary: int) -> None:
        self._behind = behind
        self._boundary = boundary
        self._passed = 0

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._behind, name)
        return self._watched(value) if callable(value) else value

    def _watched(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            self._pass()
            answer = call(*arguments, **options)
            self._pass()
            return answer

        return watched

    def _pass(self) -> None:
        self._passed += 1
        if self._passed == self._boundary:
            os._exit(ENDED)


def database_at(location: str) -> database.Database:
    if stores.is_url(location):
        return postgres_database.PostgresDatabase(location)
    return sqlite_database.SqliteDatabase(Path(location))


def batches(seed: int, count: int = BATCHES) -> list[Records]:
    """Work that starts and ends, with its measurements; every batch ends what the one before it began."""
    randomness = random.Random(seed)
    listed = []
    for place in range(count):
        start = place * 20 * MINUTE
        began = _allocation(place, start, None)
        ended = [_allocation(place - 1, start - 20 * MINUTE, start)] if place else []
        usage = [
            Usage("GPU-1", f"a{place}", at, at + MINUTE, randomness.randrange(MICRO_GPU), at, 5)
            for at in range(start, start + 20 * MINUTE, MINUTE)
        ]
        listed.append(
            Records(
                allocations=(*ended, began),
                usage=tuple(usage),
                decisions=(Decision(start, "started", began.owner),),
            )
        )
    return listed


def _allocation(place: int, start: int, end: int | None) -> Allocation:
    owner = drawn.owner(pod=f"job-{place}")
    return Allocation(f"a{place}", "GPU-1", "n1", MICRO_GPU, Form.WHOLE, owner, start, end)


def write(store: stores.Store, seed: int, acknowledge: Callable[[int], None]) -> None:
    """Appends every batch and compacts after each."""
    for number, batch in enumerate(batches(seed), start=1):
        store.append(batch, watched_until=number * 20 * MINUTE)
        acknowledge(number)
        store.compact(3 * HOUR, LIMITS)


def end_at_each_call(
    locations: Callable[[], str], seed: int, *, step: int = 1
) -> list[tuple[str, int]]:
    """Writers that end a call later each, until one comes to its end: the stores, and what each acknowledged."""
    left: list[tuple[str, int]] = []
    for boundary in itertools.count(1, step):
        location = locations()
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            _write_and_exit(location, seed, boundary, writing)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            acknowledged = len(pipe.read())
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        left.append((location, acknowledged))
        if code != ENDED:
            assert code == 0, f"the writer failed with {code}"
            return left
    raise AssertionError


def _write_and_exit(location: str, seed: int, boundary: int, pipe: int) -> None:
    """Never returns: what is above belongs to the parent."""
    try:
        store = stores.Store(EndingDatabase(database_at(location), boundary))
        write(store, seed, lambda _: os.write(pipe, b"."))  # type: ignore[arg-type, return-value]
    except BaseException as error:
        os.write(2, f"{error!r}\n".encode())
        os._exit(1)
    os._exit(0)


def main(arguments: Sequence[str]) -> None:
    """Appends minutes of samples, each batch once, until killed."""
    location, begin = arguments[0], int(arguments[1])
    with stores.open_store(location, create=True) as store:
        for number in itertools.count(begin):
            store.append(Records(usage=drawn.minutes(50, start=number * HOUR)))
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])

"""Writers that die at any call, and servers that die under them: nothing is lost, nothing counts twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.history import stores
from dovetail.model.accounting.records import Records
from tests.history import drawn, history_writer
from tests.history.drawn import HOUR
from tests.history.test_store_contract import sums
from tests.support import postgres

ALWAYS = 1 << 50
SEED = 5


@pytest.mark.slow
def test_a_sqlite_writer_may_die_at_every_call(tmp_path: Path) -> None:
    numbers = iter(range(10_000))
    left = history_writer.end_at_each_call(lambda: str(tmp_path / f"{next(numbers)}.sqlite"), SEED)
    check_all(left)


@pytest.mark.slow
def test_a_postgres_writer_may_die_at_every_call(postgres_server: postgres.Server) -> None:
    left = history_writer.end_at_each_call(postgres_server.new_schema, SEED, step=4)
    check_all(left)


def check_all(left: list[tuple[str, int]]) -> None:
    """Each store has the batches that were acknowledged, possibly one more, whole; and goes on from there."""
    assert len(left) > 20
    assert {acknowledged for _, acknowledged in left} == set(range(history_writer.BATCHES + 1))
    batches = history_writer.batches(SEED)
    expected = [state_after(batches[:count]) for count in range(len(batches) + 1)]
    for location, acknowledged in left:
        with stores.open_store(location, create=True) as store:
            assert state_of(store) in expected[acknowledged : acknowledged + 2]
            history_writer.write(store, SEED, lambda _: None)
            assert state_of(store) == expected[-1]


def state_of(store: stores.Store) -> tuple[object, ...]:
    records = store.records(0, ALWAYS)
    return (records.allocations, sums(records.usage), records.decisions, store.watched_until())


def state_after(batches: list[Records]) -> tuple[object, ...]:
    """What a store has after these batches, worked out without one."""
    held = {}
    for batch in batches:
        held.update({each.allocation: each for each in batch.allocations})
    usage = tuple(each for batch in batches for each in batch.usage)
    decisions = tuple(each for batch in batches for each in batch.decisions)
    watched_until = len(batches) * 20 * drawn.MINUTE if batches else None
    return (tuple(held.values()), sums(usage), decisions, watched_until)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_writer_that_is_killed_loses_nothing_it_acknowledged(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    location = str(tmp_path / "history.sqlite")
    if kind == "postgres":
        location = request.getfixturevalue("postgres_server").new_schema()
    done = 0
    for _ in range(4):
        command = [sys.executable, "-m", "tests.history.history_writer", location, str(done)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            for _ in range(3):
                done = int(writer.stdout.readline()) + 1
            writer.kill()
            for line in writer.stdout:
                done = int(line) + 1
    with stores.open_store(location) as store:
        usage = store.records(0, ALWAYS).usage
        hours = {each.start // HOUR for each in usage}
        assert hours >= set(range(done))
        assert len(usage) == 50 * len(hours)
        assert done >= 12


@pytest.mark.slow
def test_a_postgres_server_that_crashes_keeps_what_it_acknowledged() -> None:
    with postgres.running() as server:
        location = server.new_schema()
        command = [sys.executable, "-m", "tests.history.history_writer", location, "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as writer:
            assert writer.stdout is not None
            for _ in range(5):
                done = int(writer.stdout.readline()) + 1
            server.kill()
            for line in writer.stdout:
                done = int(line) + 1
        server.start()
        with stores.open_store(location) as store:
            usage = store.records(0, ALWAYS).usage
            hours = {each.start // HOUR for each in usage}
            assert hours >= set(range(done))
            assert len(usage) == 50 * len(hours)

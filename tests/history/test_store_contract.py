"""The same story on SQLite and PostgreSQL: what is appended is there once, and stays right while it gets smaller."""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent import futures
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail import errors
from dovetail.answer.cost import cost_ledger
from dovetail.answer.cost.cost_window import Window
from dovetail.history import compaction, database, schema, sqlite_database, stores
from dovetail.model.accounting.records import (
    MICRO_GPU,
    Gap,
    GapSource,
    Records,
    Unusable,
    Usage,
    Waiting,
)
from tests.history import drawn
from tests.history.drawn import DAY, HOUR, MINUTE

Place = Callable[[], str]
ALWAYS = 1 << 50
EXAMPLES = 12  # each opens two stores, which waits for the disk
ROLLED = compaction.Limits(fine=0, medium=0)
NOT_ROLLED = compaction.Limits(fine=DAY)


def fresh(place: Place) -> stores.Store:
    return stores.open_store(place(), create=True)


def test_everything_is_read_back_as_it_was_appended(place: Place) -> None:
    with fresh(place) as store:
        store.append(drawn.everything())
        assert drawn.ordered(store.records(0, ALWAYS)) == drawn.ordered(drawn.everything())


def test_a_second_connection_reads_what_the_first_wrote(place: Place) -> None:
    location = place()
    with stores.open_store(location, create=True) as store:
        store.append(drawn.everything(), watched_until=5)
    with stores.open_store(location) as store:
        assert drawn.ordered(store.records(0, ALWAYS)) == drawn.ordered(drawn.everything())
        assert store.summary().watched_until == 5


def test_appending_again_changes_nothing(place: Place) -> None:
    with fresh(place) as store:
        store.append(drawn.everything())
        before = store.summary().rows
        store.append(drawn.everything())
        assert store.summary().rows == before
        assert drawn.ordered(store.records(0, ALWAYS)) == drawn.ordered(drawn.everything())


def test_an_open_record_ends_once(place: Place) -> None:
    with fresh(place) as store:
        store.append(Records(allocations=(drawn.allocation(start=5),)))
        assert store.open_records().allocations == (drawn.allocation(start=5),)
        store.append(Records(allocations=(drawn.allocation(start=5, end=9),)))
        store.append(Records(allocations=(drawn.allocation(start=5),)))  # arrives late
        assert store.open_records().allocations == ()
        assert store.records(0, 100).allocations == (drawn.allocation(start=5, end=9),)


def test_a_window_has_what_overlaps_it(place: Place) -> None:
    before = drawn.allocation("before", start=0, end=10)
    across = drawn.allocation("across", start=5, end=15)
    still = drawn.allocation("still", start=12)
    after = drawn.allocation("after", start=20)
    with fresh(place) as store:
        store.append(Records(allocations=(before, across, still, after)))
        assert store.records(10, 20).allocations == (across, still)


def test_a_window_has_the_measurements_that_overlap_it(place: Place) -> None:
    with fresh(place) as store:
        store.append(Records(usage=drawn.minutes(180)))
        found = store.records(HOUR - MINUTE // 2, HOUR + 2 * MINUTE).usage
        assert [each.start for each in found] == [HOUR - MINUTE, HOUR, HOUR + MINUTE]


def test_the_work_of_other_namespaces_is_left_out(place: Place) -> None:
    mine = drawn.allocation("mine", namespace="mine")
    theirs = drawn.allocation("theirs", namespace="theirs")
    with fresh(place) as store:
        usage = drawn.minutes(3, allocation="mine") + drawn.minutes(3, allocation="theirs")
        store.append(Records(allocations=(mine, theirs), usage=usage, gaps=drawn.everything().gaps))
        records = store.records(0, ALWAYS >> 20, namespaces=("mine",))
        assert records.allocations == (mine,)
        assert records.usage == drawn.minutes(3, allocation="mine")
        assert records.gaps == drawn.everything().gaps
        assert store.records(0, HOUR, namespaces=("nobody's",)).usage == ()


def test_a_measurement_across_hours_is_cut_without_loss(place: Place) -> None:
    long = Usage("GPU-1", "a", HOUR - 7, 3 * HOUR + 5, 123_457, 9, 1_000_001, 11)
    with fresh(place) as store:
        store.append(Records(usage=(long, long)))
        parts = store.records(0, ALWAYS).usage
        assert len(parts) == 4
        assert sums(parts) == sums((long,))


def test_a_bad_batch_stores_nothing(place: Place) -> None:
    bad = Usage("GPU-1", "a", 10, 10)
    with fresh(place) as store:
        with pytest.raises(errors.InputError, match="ends at 10"):
            store.append(msgspec.structs.replace(drawn.everything(), usage=(bad,)))
        assert store.records(0, ALWAYS) == Records()
        store.append(drawn.everything())  # numbers that were undone are not used
        assert drawn.ordered(store.records(0, ALWAYS)) == drawn.ordered(drawn.everything())


def test_strange_names_are_kept(place: Place) -> None:
    names = ("", "ü/日本", "a'b\"; DROP TABLE texts", "x" * 5_000)
    held = tuple(drawn.allocation(name, start=place_) for place_, name in enumerate(names))
    with fresh(place) as store:
        store.append(Records(allocations=held))
        assert store.records(0, ALWAYS).allocations == held


# Repetition in any order


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=st.lists(drawn.observations(), max_size=6),
    randomness=st.randoms(use_true_random=False),
)
def test_any_order_of_repeated_appends_gives_the_same_records(
    place: Place, batches: list[Records], randomness: object
) -> None:
    repeated = batches * 2
    randomness.shuffle(repeated)  # type: ignore[attr-defined]
    with fresh(place) as straight, fresh(place) as shuffled:
        for batch in batches:
            straight.append(batch)
        for batch in repeated:
            shuffled.append(batch)
        assert drawn.ordered(shuffled.records(0, ALWAYS)) == drawn.ordered(
            straight.records(0, ALWAYS)
        )


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=st.lists(drawn.observations(), max_size=5),
    fine=st.integers(0, 3),
    medium=st.integers(0, 4),
)
def test_compaction_preserves_sums_exactly(
    place: Place, batches: list[Records], fine: int, medium: int
) -> None:
    """Also where batches come again afterwards, and it runs again."""
    limits = compaction.Limits(fine=fine * HOUR, medium=medium * HOUR)
    with fresh(place) as plain, fresh(place) as compacted:
        for batch in batches:
            plain.append(batch, watched_until=5 * HOUR)
            compacted.append(batch, watched_until=5 * HOUR)
            compacted.compact(5 * HOUR, limits)
        for batch in batches:
            compacted.append(batch)
            plain.append(batch)
        assert sums(compacted.records(0, ALWAYS).usage) == sums(plain.records(0, ALWAYS).usage)
        assert held(compacted.records(0, ALWAYS)) == held(plain.records(0, ALWAYS))
        window = Window(HOUR // 2, 5 * HOUR - 11)
        assert accounted(compacted, window) == accounted(plain, window)


def sums(usage: tuple[Usage, ...]) -> dict[str, tuple[int, ...]]:
    """What measurements add up to, by series: time, activities, energy, samples, the largest memory."""
    totals: dict[str, list[int]] = defaultdict(lambda: [0] * 8)
    for each in usage:
        span = each.end - each.start
        total = totals[each.allocation]
        for place, amount in enumerate(
            (
                span,
                span * (each.busy_micro is not None),
                exact(each.busy_micro_ms, each.busy_micro, span),
                exact(each.tensor_micro_ms, each.tensor_micro, span),
                exact(each.dram_micro_ms, each.dram_micro, span),
                each.energy_millijoules or 0,
                each.samples,
            )
        ):
            total[place] += amount
        total[7] = max(total[7], each.memory_bytes or 0)
    return {name: tuple(total) for name, total in totals.items()}


def exact(amount: int | None, mean: int | None, span: int) -> int:
    return amount if amount is not None else (mean or 0) * span


def held(records: Records) -> dict[str, int]:
    """Milliseconds of allocations, by name; open ones until a fixed time."""
    totals: dict[str, int] = defaultdict(int)
    for each in records.allocations:
        totals[each.allocation] += (each.end or 5 * HOUR) - each.start
    return totals


def accounted(store: stores.Store, window: Window) -> dict[tuple[object, ...], list[int]]:
    """What accounts say of each namespace and state: GPU time held, measured, and waiting time.

    Means of merged measurements are rounded, so how much of the measured time was busy may differ in the last digit.
    """
    amounts: dict[tuple[object, ...], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for part in store.accounts(window).parts:
        for entry in part.account.entries:
            used, idle, *others = entry.gpu_time
            key = (entry.namespace, entry.queue, entry.form, entry.kind is None)
            for place, amount in enumerate(
                (sum(entry.gpu_time), used + idle, sum(others), entry.waiting)
            ):
                amounts[key][place] += amount
    return {key: sums for key, sums in amounts.items() if any(sums)}


def gpu_hours(store: stores.Store, window: Window) -> dict[str, float]:
    """GPU-hours held, by namespace."""
    amounts = accounted(store, window)
    return {str(key[0]): sums[0] / cost_ledger.GPU_HOUR for key, sums in amounts.items() if key[2]}


# Compaction


def test_minutes_become_five_minutes_then_hours(place: Place) -> None:
    with fresh(place) as store:
        store.append(Records(usage=drawn.minutes(180)))
        store.compact(3 * HOUR, compaction.Limits(fine=HOUR, medium=2 * HOUR))
        spans = [each.end - each.start for each in store.records(0, ALWAYS).usage]
        assert spans == [HOUR] + [5 * MINUTE] * 12 + [MINUTE] * 60
        store.compact(6 * HOUR, compaction.Limits(fine=HOUR, medium=2 * HOUR))
        assert sums(store.records(0, ALWAYS).usage) == sums(drawn.minutes(180))
        assert len(store.records(0, ALWAYS).usage) == 3


def test_a_hole_is_not_covered_and_can_be_filled_later(place: Place) -> None:
    measured = drawn.minutes(60)
    with fresh(place) as store:
        store.append(Records(usage=measured[:20] + measured[30:]))
        store.compact(DAY, ROLLED)
        spans = [(each.start, each.end) for each in store.records(0, ALWAYS).usage]
        assert spans == [(0, 20 * MINUTE), (30 * MINUTE, HOUR)]
        store.append(Records(usage=measured))
        assert sums(store.records(0, ALWAYS).usage) == sums(measured)
        store.compact(DAY, ROLLED)
        assert len(store.records(0, ALWAYS).usage) == 1
        assert sums(store.records(0, ALWAYS).usage) == sums(measured)


def test_adjacent_allocations_are_joined_and_stay_joined(place: Place) -> None:
    parts = tuple(drawn.allocation(start=begun, end=begun + 10) for begun in (0, 10, 20, 40, 50))
    with fresh(place) as store:
        store.append(Records(allocations=parts))
        assert store.compact(100).joined_allocations == 3
        joined = (drawn.allocation(start=0, end=30), drawn.allocation(start=40, end=60))
        assert store.records(0, 100).allocations == joined
        store.append(Records(allocations=parts))
        assert store.records(0, 100).allocations == joined


def test_accounts_are_the_same_with_and_without_stored_hours(place: Place) -> None:
    with fresh(place) as store:
        store.append(drawn.everything(), watched_until=6 * HOUR)
        window = Window(HOUR - 11, 5 * HOUR - 13)
        before = accounted(store, window)
        assert gpu_hours(store, window) == {"train": 1.0}
        assert store.compact(7 * HOUR, NOT_ROLLED).accounted_hours == 6
        assert accounted(store, window) == before
        stored = [part.window for part in store.accounts(window, [2 * HOUR + 1]).parts]
        hours = [HOUR - 11, HOUR, 2 * HOUR, 2 * HOUR + 1, 3 * HOUR, 4 * HOUR, window.end]
        assert stored == [Window(*pair) for pair in itertools.pairwise(hours)]


def test_what_arrives_late_is_in_the_accounts(place: Place) -> None:
    day = Window(0, 9 * HOUR)
    asset = msgspec.structs.replace(drawn.everything().assets[0], end=None)
    with fresh(place) as store:
        held = Records(assets=(asset,), allocations=(drawn.allocation(end=2 * HOUR),))
        store.append(held, watched_until=9 * HOUR)
        assert store.compact(9 * HOUR).accounted_hours == 9
        assert store.compact(9 * HOUR).accounted_hours == 0
        late = drawn.allocation("b", start=HOUR, end=3 * HOUR)
        store.append(Records(allocations=(late,), usage=drawn.minutes(5)))
        assert gpu_hours(store, day) == {"train": 2.0}
        assert store.compact(9 * HOUR).accounted_hours == 9  # the minutes are of the first hour
        for late_records, stale in (
            (Records(assets=(msgspec.structs.replace(asset, end=8 * HOUR),)), 1),
            (Records(gaps=(Gap(GapSource.API, 7 * HOUR, 8 * HOUR),)), 2),
            (Records(gaps=(Gap(GapSource.API, 7 * HOUR, 8 * HOUR),)), 0),
            (Records(waiting=(Waiting(drawn.owner(), 1, 6 * HOUR, 7 * HOUR),)), 3),
            (Records(unusable=(Unusable("GPU-1", "n1", 1, 5 * HOUR, 6 * HOUR),)), 4),
        ):
            store.append(late_records)
            assert store.compact(9 * HOUR).accounted_hours == stale
        assert gpu_hours(store, day) == {"train": 2.0}


def test_measurements_of_a_whole_gpu_are_accounted_to_its_holder_of_the_time(place: Place) -> None:
    """Two pods in turn within one hour; the GPU was busy in the second's time only."""
    asset = drawn.everything().assets[0]
    first = drawn.allocation("a", start=0, end=HOUR // 2, namespace="first")
    second = drawn.allocation("b", start=HOUR // 2, end=HOUR, namespace="second")
    usage = tuple(
        Usage("GPU-1", "", place * MINUTE, (place + 1) * MINUTE, MICRO_GPU * (place >= 30))
        for place in range(60)
    )
    with fresh(place) as store:
        batch = Records(assets=(asset,), allocations=(first, second), usage=usage)
        store.append(batch, watched_until=2 * HOUR)
        store.compact(DAY, ROLLED)
        [part] = store.accounts(Window(0, HOUR)).parts
        used = {entry.namespace: entry.gpu_time[0] for entry in part.account.entries if entry.form}
        assert used == {"first": 0, "second": cost_ledger.GPU_HOUR // 4}


# Retention


def test_what_is_too_old_is_dropped_and_does_not_come_back(place: Place) -> None:
    with fresh(place) as store:
        store.append(drawn.everything())
        store.append(Records(gaps=(Gap(GapSource.API, 100 * DAY, 100 * DAY + 1),)))
        report = store.compact(101 * DAY, compaction.Limits(keep=50 * DAY))
        assert report.dropped_rows == 8  # the minutes were one row by then
        store.append(drawn.everything())
        kept = store.records(0, ALWAYS)
        assert (kept.gaps, kept.prices) == (
            (Gap(GapSource.API, 100 * DAY, 100 * DAY + 1),),
            drawn.everything().prices,
        )
        assert (kept.allocations, kept.usage, kept.decisions) == ((), (), ())
        assert store.summary().rows["owners"] == 0


def test_the_oldest_days_are_dropped_when_there_is_too_much(place: Place) -> None:
    with fresh(place) as store:
        for day in range(12):
            start = day * DAY
            store.append(Records(usage=drawn.minutes(1_400, start=start, allocation=f"a{day}")))
        limits = compaction.Limits(fine=99 * DAY, max_bytes=700_000, shrinks=True)
        store.compact(12 * DAY, limits)
        starts = [each.start // DAY for each in store.records(0, ALWAYS).usage]
        assert 0 < min(starts) <= 10
        assert max(starts) == 11
        assert starts == sorted(starts)


# Several writers


def test_two_writers_take_turns_and_count_nothing_twice(place: Place) -> None:
    location = place()
    measured = drawn.minutes(60)
    with (
        stores.open_store(location, create=True) as first,
        stores.open_store(location, create=True) as second,
    ):
        for begun in range(0, 60, 10):
            first.append(Records(usage=measured[begun : begun + 15]))
            second.append(Records(usage=measured[begun + 5 : begun + 20]))
            second.compact(DAY, ROLLED)
        assert sums(first.records(0, ALWAYS).usage) == sums(measured)


# Versions


@pytest.mark.parametrize("version", range(1, schema.VERSION))
def test_a_store_of_an_older_version_is_brought_forward(place: Place, version: int) -> None:
    location = place()
    opened = database_at(location)
    schema.migrate(opened, to=version)
    opened.execute("INSERT INTO texts (digest, text) VALUES (?, ?)", (b"d" * 16, "kept"))
    opened.close()
    with stores.open_store(location) as store:
        assert store.summary().version == schema.VERSION
        assert store.summary().rows["texts"] == 1
        store.append(drawn.everything(), watched_until=DAY)
        store.compact(DAY)
        assert store.accounts(Window(0, DAY)).parts


def test_processes_that_create_one_store_at_once_all_get_it(place: Place) -> None:
    for _ in range(3):
        location = place()
        together = threading.Barrier(4)

        def opened(location: str = location, together: threading.Barrier = together) -> int:
            together.wait()
            with stores.open_store(location, create=True) as store:
                return len(store.records(0, DAY).assets)

        with futures.ThreadPoolExecutor(4) as pool:
            assert [each.result() for each in [pool.submit(opened) for _ in range(4)]] == [0] * 4


def test_a_store_of_a_newer_version_is_refused_and_left_alone(place: Place) -> None:
    location = place()
    with stores.open_store(location, create=True) as store:
        store.append(drawn.everything())
    opened = database_at(location)
    with database.writing(opened):
        schema.set_meta(opened, "version", schema.VERSION + 1)
    with pytest.raises(errors.StateError, match=f"has version {schema.VERSION + 1}"):
        stores.open_store(location)
    assert schema.meta(opened, "version") == schema.VERSION + 1
    opened.close()


def test_a_place_without_history_is_named(place: Place) -> None:
    with pytest.raises(errors.NotFound, match="dovetail history record"):
        stores.open_store(place())


def test_a_file_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a database, but long enough to be looked at as one" * 9)
    with pytest.raises(errors.StateError, match="cannot be used"):
        stores.open_store(str(text))
    assert text.read_text().startswith("not a database")

    other = sqlite_database.SqliteDatabase(tmp_path / "other.sqlite")
    other.execute("CREATE TABLE meta (name TEXT, value INTEGER)")
    other.close()
    with pytest.raises(errors.StateError, match="is not a history"):
        stores.open_store(str(tmp_path / "other.sqlite"))


def test_messages_never_show_a_password() -> None:
    with pytest.raises(errors.StateError) as failure:
        stores.open_store("postgresql://user:secret@127.0.0.1:1/db?password=secret")
    assert "secret" not in str(failure.value)
    assert "user@127.0.0.1" in str(failure.value)


def database_at(location: str) -> database.Database:
    if stores.is_url(location):
        from dovetail.history import postgres_database

        return postgres_database.PostgresDatabase(location)
    return sqlite_database.SqliteDatabase(Path(location))

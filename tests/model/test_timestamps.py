"""Timestamps: what the API server writes is read, and what is written is RFC 3339 in UTC."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import timestamps

EARLIEST = datetime.datetime(1000, 1, 2)
ZONES = st.sampled_from((datetime.UTC, datetime.timezone(datetime.timedelta(hours=5, minutes=30))))
TIMES = st.datetimes(min_value=EARLIEST, timezones=ZONES)


@given(TIMES)
def test_an_exact_time_comes_back_as_it_was(moment: datetime.datetime) -> None:
    assert timestamps.parse(timestamps.to_exact_text(moment)) == moment
    assert timestamps.parse(timestamps.to_micro_text(moment)) == moment


@given(TIMES)
def test_whole_seconds_cut_the_fraction_off(moment: datetime.datetime) -> None:
    text = timestamps.to_text(moment)
    assert text.endswith("Z")
    assert timestamps.parse(text) == moment.replace(microsecond=0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-31T08:00:00Z", datetime.datetime(2026, 1, 31, 8, tzinfo=datetime.UTC)),
        ("2026-01-31T10:00:00+02:00", datetime.datetime(2026, 1, 31, 8, tzinfo=datetime.UTC)),
        (
            "2026-01-31T08:00:00.123456789Z",
            datetime.datetime(2026, 1, 31, 8, 0, 0, 123456, tzinfo=datetime.UTC),
        ),
        ("2026-01-31T08:00:00", datetime.datetime(2026, 1, 31, 8, tzinfo=datetime.UTC)),
    ],
)
def test_times_as_servers_write_them_are_read(text: str, expected: datetime.datetime) -> None:
    assert timestamps.parse_as_utc(text) == expected
    assert timestamps.parse_or_none(text) == expected


@pytest.mark.parametrize(
    "text", ["", None, "soon", "2026-02-30T00:00:00Z", "99999-01-01T00:00:00Z"]
)
def test_text_that_is_not_a_time_is_none(text: str | None) -> None:
    assert timestamps.parse_or_none(text) is None

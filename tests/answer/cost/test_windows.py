"""Windows and steps, as OpenCost's users write them."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies

from dovetail import errors, timestamps
from dovetail.answer.cost import cost_window
from dovetail.answer.cost.cost_window import Window

NOW = cost_window.millis_of(timestamps.parse("2026-11-18T10:30:00Z"))  # a Wednesday


def shown(window: Window) -> tuple[str, str]:
    start, end = (timestamps.to_text(cost_window.moment_of(edge)) for edge in window)
    return start, end


@pytest.mark.parametrize(
    ("written", "start", "end"),
    [
        ("today", "2026-11-18T00:00:00Z", "2026-11-19T00:00:00Z"),
        ("yesterday", "2026-11-17T00:00:00Z", "2026-11-18T00:00:00Z"),
        ("week", "2026-11-15T00:00:00Z", "2026-11-18T10:30:00Z"),
        ("lastweek", "2026-11-08T00:00:00Z", "2026-11-15T00:00:00Z"),
        ("month", "2026-11-01T00:00:00Z", "2026-11-18T10:30:00Z"),
        ("lastmonth", "2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z"),
        ("45m", "2026-11-18T09:45:00Z", "2026-11-18T10:30:00Z"),
        ("12h", "2026-11-17T22:30:00Z", "2026-11-18T10:30:00Z"),
        ("7d", "2026-11-12T00:00:00Z", "2026-11-19T00:00:00Z"),
        ("2w", "2026-11-05T00:00:00Z", "2026-11-19T00:00:00Z"),
        ("7d offset 1d", "2026-11-10T10:30:00Z", "2026-11-17T10:30:00Z"),
        ("1577836800,1577840400", "2020-01-01T00:00:00Z", "2020-01-01T01:00:00Z"),
        ("1577836800-1577840400", "2020-01-01T00:00:00Z", "2020-01-01T01:00:00Z"),
        (
            "2026-11-02T00:00:00Z,2026-11-09T02:00:00+02:00",
            "2026-11-02T00:00:00Z",
            "2026-11-09T00:00:00Z",
        ),
        ("2026-11-02,2026-11-03", "2026-11-02T00:00:00Z", "2026-11-03T00:00:00Z"),
    ],
)
def test_windows(written: str, start: str, end: str) -> None:
    assert shown(cost_window.parse(written, NOW)) == (start, end)


@pytest.mark.parametrize(
    "written", ["", "soon", "7", "7y", "0d", "7d offset", "5,4", "a,b", "99999999999,1", "-1h"]
)
def test_what_is_no_window_is_refused_with_what_was_expected(written: str) -> None:
    with pytest.raises(errors.InputError, match="window "):
        cost_window.parse(written, NOW)


@hypothesis.given(strategies.text(max_size=40))
def test_any_text_is_a_window_or_an_input_error(written: str) -> None:
    try:
        window = cost_window.parse(written, NOW)
    except errors.InputError:
        return
    assert window.start < window.end
    assert cost_window.moment_of(window.end) > cost_window.moment_of(window.start)


def test_steps_are_counted_back_from_the_end_and_the_first_may_be_short() -> None:
    window = Window(0, 25 * cost_window.HOUR)
    steps = cost_window.steps(window, cost_window.parse_step("10h", window))
    assert [step.hours for step in steps] == [5, 10, 10]
    assert steps[0].start == 0
    assert steps[-1].end == window.end


@pytest.mark.parametrize("written", ["", "0h", "1x", "h", "-1h", "1.5h"])
def test_what_is_no_step_is_refused(written: str) -> None:
    with pytest.raises(errors.InputError, match="step "):
        cost_window.parse_step(written, Window(0, cost_window.DAY))


def test_too_many_steps_are_refused() -> None:
    with pytest.raises(errors.InputError, match="at most 10000"):
        cost_window.parse_step("1m", Window(0, 8 * cost_window.DAY))


def test_steps_gather_in_calendar_buckets() -> None:
    window = cost_window.parse("2026-10-30,2026-11-10", NOW)
    days = cost_window.steps(window, cost_window.DAY)
    months = list(cost_window.buckets(days, "month"))
    assert [len(indexes) for _, indexes in months] == [2, 9]
    weeks = [shown(bucket)[0] for bucket, _ in cost_window.buckets(days, "week")]
    sundays = ["2026-10-30T00:00:00Z", "2026-11-01T00:00:00Z", "2026-11-08T00:00:00Z"]
    assert weeks == sundays
    assert len(list(cost_window.buckets(days, "quarter"))) == 1
    assert [indexes for _, indexes in cost_window.buckets(days, "all")] == [tuple(range(11))]
    with pytest.raises(errors.InputError, match="expected one of hour, day"):
        list(cost_window.buckets(days, "year"))


def test_months_have_their_own_length() -> None:
    assert cost_window.month_of(NOW).hours == 30 * 24
    february = cost_window.parse("2028-02-10,2028-02-11", NOW).start
    assert cost_window.month_of(february).hours == 29 * 24

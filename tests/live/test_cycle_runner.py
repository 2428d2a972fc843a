"""When a cycle over all pending pods is due."""

from __future__ import annotations

import pytest

from dovetail.live.cycle import cycle_runner


def test_a_cycle_is_due_after_an_event_and_at_its_wake_up_time_only() -> None:
    rhythm = cycle_runner.CyclePacing(0.1)
    assert not rhythm.is_due(5.0)
    rhythm.want()
    assert rhythm.is_due(5.0)
    rhythm.took(5.0, 5.0, wake_after=20.0)
    assert not rhythm.is_due(24.9)
    assert rhythm.is_due(25.0)
    rhythm.took(25.0, 25.0, wake_after=None)
    assert not rhythm.is_due(1e9)


def test_turns_that_take_long_leave_three_times_as_long_to_others() -> None:
    rhythm = cycle_runner.CyclePacing(0.1)
    assert rhythm.rest(0.0) == 0.0
    rhythm.took(0.0, 0.01, wake_after=None)
    assert rhythm.rest(0.01) == pytest.approx(0.1)
    rhythm.took(1.0, 3.0, wake_after=None)
    assert rhythm.rest(3.0) == pytest.approx(6.0)
    assert rhythm.rest(10.0) == 0.0


def test_a_wake_up_time_in_the_past_is_not_repeated_without_a_pause() -> None:
    rhythm = cycle_runner.CyclePacing(0.1)
    rhythm.took(1.0, 1.0, wake_after=-5.0)
    assert not rhythm.is_due(1.05)
    assert rhythm.is_due(1.1)

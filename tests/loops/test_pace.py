"""When everybody who waits is asked about, and how a group that cannot be decided about is found."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from dovetail.loops import deciding, pace
from dovetail.model import plan


def test_a_turn_is_wanted_after_news_and_at_its_hour_and_not_otherwise() -> None:
    rhythm = pace.Pace(0.1)
    assert not rhythm.is_due(5.0)
    rhythm.want()
    assert rhythm.is_due(5.0)
    rhythm.took(5.0, 5.0, wake_after=20.0)
    assert not rhythm.is_due(24.9)
    assert rhythm.is_due(25.0)
    rhythm.took(25.0, 25.0, wake_after=None)
    assert not rhythm.is_due(1e9)


def test_turns_that_take_long_leave_three_times_as_long_to_others() -> None:
    rhythm = pace.Pace(0.1)
    assert rhythm.rest(0.0) == 0.0
    rhythm.took(0.0, 0.01, wake_after=None)
    assert rhythm.rest(0.01) == pytest.approx(0.1)
    rhythm.took(1.0, 3.0, wake_after=None)
    assert rhythm.rest(3.0) == pytest.approx(6.0)
    assert rhythm.rest(10.0) == 0.0


def test_an_hour_that_is_past_is_not_asked_for_without_a_pause() -> None:
    rhythm = pace.Pace(0.1)
    rhythm.took(1.0, 1.0, wake_after=-5.0)
    assert not rhythm.is_due(1.05)
    assert rhythm.is_due(1.1)


GROUPS = [["a1", "a2"], ["b1"], ["c1", "c2"], ["d1"], ["e1"]]


class Tripping:
    """Cannot decide about one group; says how often it was asked."""

    def __init__(self, over: str) -> None:
        self.over = over
        self.asked = 0

    def __call__(self, among: Collection[str] | None) -> plan.Plan:
        self.asked += 1
        ids = [id_ for group in GROUPS for id_ in group] if among is None else among
        if self.over in ids:
            raise ZeroDivisionError(self.over)
        return plan.Plan(refusals=tuple(plan.Refusal(pod=plan.PodRef("n", id_, id_), summary="") for id_ in ids))


@pytest.mark.parametrize("over", ["a2", "b1", "c1", "e1"])
def test_the_group_that_trips_us_is_found_by_halves_and_the_others_are_decided_about(over: str) -> None:
    ask = Tripping(over)
    made, faults = deciding.decided_together(ask, None, GROUPS)
    (tripping,) = [group for group in GROUPS if over in group]
    assert sorted(faults) == tripping
    assert sorted(one.pod.uid for one in made.refusals) == sorted(
        id_ for group in GROUPS if group is not tripping for id_ in group
    )
    assert ask.asked <= 9


def test_a_fault_that_no_group_explains_is_raised() -> None:
    def ask(among: Collection[str] | None) -> plan.Plan:
        if among is None:
            raise ZeroDivisionError
        return plan.Plan()

    with pytest.raises(ZeroDivisionError):
        deciding.decided_together(ask, None, GROUPS)

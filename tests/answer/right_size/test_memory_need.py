"""How much headroom is added to the largest memory seen."""

from __future__ import annotations

import pytest

from dovetail.answer.right_size import memory_need
from dovetail.answer.right_size.memory_need import MemorySeen

GIB = 1024**3
STEADY = (10 * GIB,) * 24
UNEVEN = (*(4 * GIB,) * 23, 10 * GIB)


def test_steady_memory_over_a_week_gets_little_more_than_the_floor() -> None:
    headroom = memory_need.headroom(MemorySeen(STEADY, 7))
    assert headroom.total == pytest.approx(0.15 + 0.1 / 25)


def test_more_spread_means_more_headroom() -> None:
    assert memory_need.need(MemorySeen(UNEVEN, 7)) > memory_need.need(MemorySeen(STEADY, 7))


def test_a_shorter_window_means_more_headroom() -> None:
    needs = [memory_need.need(MemorySeen(UNEVEN, days)) for days in (14, 7, 1, 0.1)]
    assert needs[0] == needs[1] < needs[2] < needs[3]


def test_a_peak_that_was_reached_once_counts_as_rare() -> None:
    assert memory_need.rarity(STEADY) == pytest.approx(1 / 25)
    assert memory_need.rarity(UNEVEN) == pytest.approx(24 / 25)
    assert memory_need.rarity((GIB,)) == 0.5


def test_running_out_of_memory_adds_a_quarter_beyond_the_most() -> None:
    few = MemorySeen(UNEVEN, 0.1)
    failing = few._replace(out_of_memory=1)
    difference = memory_need.headroom(failing).total - memory_need.headroom(few).total
    assert difference == pytest.approx(0.25)


def test_headroom_has_an_end() -> None:
    wild = MemorySeen((1, 10 * GIB) * 12, 0.01)
    assert memory_need.headroom(wild).total == memory_need.DEFAULT.most


def test_nothing_used_needs_nothing() -> None:
    assert memory_need.need(MemorySeen((0, 0), 7)) == 0

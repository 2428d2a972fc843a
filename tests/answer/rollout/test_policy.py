"""The policy of a roll-out: amounts, windows, units."""

from __future__ import annotations

import datetime

import pytest

from dovetail import errors
from dovetail.answer.rollout import rollout_policy, rollout_units
from tests.answer.what_if import building

TUESDAY = datetime.datetime(2026, 11, 17, 12, tzinfo=datetime.UTC)
HOUR = 3600


def start(text: str, hours: int, at: datetime.datetime = TUESDAY) -> str:
    first = rollout_policy.next_start((rollout_policy.window(text),), at, hours * HOUR)
    return f"{first:%a %d %H:%M}" if first else ""


def test_percentages_are_rounded_up_and_wrong_ones_refused() -> None:
    assert rollout_policy.unavailable_nodes("25%", 10) == 3
    assert rollout_policy.unavailable_nodes("3", 10) == 3
    for text in ("101%", "-1", "a third", ""):
        with pytest.raises(errors.InputError, match="max-unavailable"):
            rollout_policy.unavailable_nodes(text, 10)


def test_a_wave_begins_where_it_fits_into_a_window() -> None:
    assert start("22:00-06:00", 2) == "Tue 17 22:00"
    assert start("Sat,Sun 22:00-06:00", 8) == "Sat 21 22:00"
    assert start("Mon-Fri 10:00-14:00", 2) == "Tue 17 12:00"  # at once: two hours are left
    assert start("Mon-Fri 10:00-14:00", 3) == "Wed 18 10:00"
    night = datetime.datetime(2026, 11, 22, 2, tzinfo=datetime.UTC)
    assert (
        start("Sat 22:00-06:00", 3, night) == "Sun 22 02:00"
    )  # inside the window that began before
    assert start("22:00-06:00", 9) == ""


@pytest.mark.parametrize("text", ["", "25:00-26:00", "Foo 10:00-11:00", "10-11", "10:75-11:00"])
def test_an_unreadable_window_is_an_input_error(text: str) -> None:
    with pytest.raises(errors.InputError, match="window"):
        rollout_policy.window(text)


def test_nodes_of_an_nvlink_domain_or_a_rack_are_one_unit() -> None:
    marks = ({"nvidia.com/gpu.clique": "c1.0"}, {"nvidia.com/gpu.clique": "c1.0"}, {})
    labelled = [
        building.plugin_node(f"n{number}", gpus=8, labels=labels)
        for number, labels in enumerate(marks)
    ]
    world = building.replica_of(*labelled).world
    units = rollout_units.units_of(world, world.nodes, "nvlink")
    assert [(unit.name, unit.nodes) for unit in units] == [
        ("nvlink/c1.0", ("n0", "n1")),
        ("node/n2", ("n2",)),
    ]


def test_versions_with_leading_zeros_are_the_same() -> None:
    assert rollout_units.is_same_version("580.95.05", "580.95.5")
    assert not rollout_units.is_same_version("580.95.05", "580.95.50")

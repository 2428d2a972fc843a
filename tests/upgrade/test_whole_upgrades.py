"""Whole upgrades by the lifecycle process on a real API server, with NVIDIA's upgrade library at work beside it."""

from __future__ import annotations

import pytest

from tests.upgrade.driver_player import driver_image
from tests.upgrade.fleet_story import Fleet, fleet
from tests.upgrade.operator_story import NEW

pytestmark = pytest.mark.slow
TWO = {"maxUnavailable": "2", "canary": 1, "parallel": 2}


def with_work(story: Fleet) -> None:
    """Gangs across nodes, lone pods under a budget, and pods that stay."""
    story.gang("train", "bc")
    story.gang("tune", "cde")
    story.lone("serve", "af")
    story.budget("serve", maxUnavailable=1)
    story.bare("shell", "b")
    story.daemon("agent")


def test_a_fleet_is_upgraded_beside_the_library_and_nothing_is_left_over() -> None:
    with fleet(6) as story:
        with_work(story)
        story.taint("d")
        name = story.upgrade(waves=TWO)
        story.lives.begin()
        status = story.wait_ended()
        assert status["phase"] == "Completed", status
        assert set(story.phases().values()) == {"Done"}
        assert set(story.drivers().values()) == {driver_image(NEW)}
        checker = story.checked(most=2)
        assert checker.evictions >= 7
        assert checker.unfenced == 6

        story.api.delete("stackupgrades", name)
        story.wait(lambda: not story.api.list("stackupgrades"), "the object to be released")

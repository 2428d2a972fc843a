"""The lifecycle process is killed at each of its writes on a real API server, and the next one goes on where it ended.

A life is killed right before its n-th write, or right after the server answered it and before anything was done with
the answer. Lives follow each other until the upgrade has ended; then the checker reads the whole history.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.support.waiting import wait_until
from tests.upgrade.fleet.fleet_story import Fleet, fleet
from tests.upgrade.fleet.test_whole_upgrades import TWO, with_work
from tests.upgrade.fleet.upgrade_history import ENDED

pytestmark = pytest.mark.slow
Pace = Iterator[tuple[int, bool]]  # the write at which a life ends, and whether before it


class Shape(NamedTuple):
    """One kind of upgrade, and how it has to end."""

    name: str
    begin: Callable[[Fleet], None]
    phase: str
    phases: dict[str, str]
    nodes: int = 6
    is_automatic: bool = True


def every_write() -> Pace:
    """A life before each write, and one right after it: no write is followed by another of the same process."""
    return itertools.cycle([(1, True), (1, False)])


def some_writes(seed: int) -> Pace:
    """Lives of one to six writes."""
    chance = random.Random(seed)
    while True:
        yield chance.randint(1, 6), chance.random() < 0.5


def killed(story: Fleet, pace: Pace) -> int:
    """Lives until the upgrade has ended; how many were killed."""

    def is_over() -> bool:
        return story.status().get("phase") in ENDED

    while not is_over():
        kill_at, is_before = next(pace)
        story.lives.begin(kill_at=kill_at, is_before=is_before)
        wait_until(
            lambda: not story.lives.is_alive or is_over(),
            "the end of a life",
            pause=0.03,
            so_far=lambda: f"{story.status()}\n{story.player.bugs}\n{story.lives.words()}",
        )
    story.lives.stop(kill=True)
    assert set(story.lives.codes) <= {-9}, story.lives.words()
    return story.lives.kills


def plain(story: Fleet) -> None:
    """Gangs, a budget, pods that stay, a foreign taint."""
    with_work(story)
    story.taint("d")
    story.upgrade(waves=TWO)


def cordoned(story: Fleet) -> None:
    """A node that another party cordoned takes part, and stays cordoned."""
    story.gang("train", "ab")
    story.cordon("c")
    story.upgrade(waves={"maxUnavailable": "3", "canary": 1, "parallel": 2})


def failing(story: Fleet) -> None:
    """A node whose GPUs report errors under the new driver goes back."""
    story.gang("train", "bd")
    story.player.faulty = {story.name("c"): "595.91.07"}
    story.upgrade(waves=TWO, rollback="FailedNodes", stop={"failures": 3})


def stopped(story: Fleet) -> None:
    """After a failure every node goes back."""
    story.lone("serve", "bc")
    story.player.faulty = {story.name("c"): "595.91.07"}
    story.upgrade(waves=TWO, rollback="AllNodes", stop={"failures": 1})


def by_hand(story: Fleet) -> None:
    """The library is silent: we end the driver's pods ourselves."""
    with_work(story)
    story.upgrade(waves=TWO)


def _all(phase: str, nodes: int = 6) -> dict[str, str]:
    return dict.fromkeys("abcdef"[:nodes], phase)


# A failure in the middle and the way back through the library: the short run's only shape.
SHORT = Shape("failing", failing, "Completed", _all("Done", 4) | {"c": "RolledBack"}, nodes=4)
SHAPES = (
    SHORT,
    Shape("plain", plain, "Completed", _all("Done")),
    Shape("cordoned", cordoned, "Completed", _all("Done", 4), nodes=4),
    Shape("stopped", stopped, "Stopped", _all("RolledBack", 4) | {"d": "Skipped"}, nodes=4),
    Shape("by-hand", by_hand, "Completed", _all("Done"), is_automatic=False),
)


def run(shape: Shape, pace: Pace) -> int:
    """One upgrade of this shape, with every life killed; how many were."""
    with fleet(shape.nodes, autoUpgrade=shape.is_automatic) as story:
        shape.begin(story)
        kills = killed(story, pace)
        status = story.wait_ended()
        assert status["phase"] == shape.phase, status
        assert story.phases() == shape.phases, status
        story.checked(most=3 if shape.name == "cordoned" else 2)
        return kills


def test_killed_again_and_again_an_upgrade_ends_as_if_nothing_had_happened() -> None:
    assert run(SHORT, some_writes(seed=7)) >= 15


@pytest.mark.long
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_killed_before_and_after_every_write_the_end_is_the_same(shape: Shape) -> None:
    kills = run(shape, every_write())
    print(f"{shape.name}: {kills} kills")
    assert kills >= 60

"""Work that fits no node even if all were empty: it adds no demand, and other queues keep their shares."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.world.events import Changed
from dovetail.world.world import World
from tests.batch import stories
from tests.schedule import build

FITS_NOWHERE = "fits no node even if all were empty"


def shared() -> World:
    """Four GPUs, all of them held by queue a; b waits for two of them, and is due half."""
    world = stories.world(
        *stories.boards("n", 4, stories.H100, "Hopper"),
        *(stories.queue(name, gpu=0) for name in ("a", "b", "c")),
    )
    for number in range(4):
        stories.runs(world, f"a-{number}", "a", ("n", f"gpu-{number}"))
    for number in range(2):
        stories.waits(world, f"b-{number}", "b")
    return world


PHANTOMS: dict[str, Any] = {
    "a label no node has": {"nodeSelector": {"example.com/none": "yes"}},
    "more than a node has": {"count": 5},
    "devices that are not there": {
        "when": 'device.attributes["gpu.example.com"].productName == "none"'
    },
}


@pytest.mark.parametrize("how", sorted(PHANTOMS))
def test_work_that_can_never_start_lowers_no_queues_share(how: str) -> None:
    world = shared()
    for number in range(4):
        stories.waits(world, f"c-{number}", "c", **{"count": 1, **PHANTOMS[how]})
    done = stories.decided(world)
    assert len(stories.evicted(done)) == 2
    assert FITS_NOWHERE in stories.why(done, "c-0")


def test_work_that_could_start_does() -> None:
    """The same pods without what keeps them away: b may then have less."""
    world = shared()
    for number in range(4):
        stories.waits(world, f"c-{number}", "c")
    done = stories.decided(world)
    assert (
        len(
            [
                eviction
                for eviction in done.evictions
                if eviction.beneficiary is not None and "b-" in eviction.beneficiary.name
            ]
        )
        == 1
    )
    assert all(FITS_NOWHERE not in refusal.summary for refusal in done.refusals)


def test_a_gang_that_is_larger_than_the_cluster_wants_nothing() -> None:
    world = shared()
    for number in range(5):
        build.put(world, build.claim(f"c-{number}-claim", 1))
        build.put(world, stories.member(f"c-{number}", "c", "wide", 5, uses=[f"c-{number}-claim"]))
    done = stories.decided(world)
    assert len(stories.evicted(done)) == 2
    assert FITS_NOWHERE in stories.why(done, "c-0")


def test_a_node_that_comes_changes_the_answer() -> None:
    """What was worked out is forgotten when nodes change; a cordon is no reason, for it is lifted again."""
    world = shared()
    stories.waits(world, "c-0", "c", nodeSelector={"example.com/none": "yes"})
    assert FITS_NOWHERE in stories.why(stories.decided(world), "c-0")
    published = stories.boards("m", 1, stories.H100, "Hopper")[1]
    node = build.node("m", labels={"example.com/none": "yes"}, unschedulable=True)
    world.apply(Changed(node))
    world.apply(Changed(published))
    assert FITS_NOWHERE not in stories.why(stories.decided(world), "c-0")

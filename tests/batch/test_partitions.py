"""Slices move too: partitions of GPUs make room for larger ones, and whole GPUs, slices and shares yield alike."""

from __future__ import annotations

from dovetail.world.world import World
from tests.batch import stories

PROFILE = 'device.attributes["gpu.example.com"].?profile.orValue("")'
SMALL = f'{PROFILE} == "1g.10gb"'
LARGE = f'{PROFILE} == "3g.40gb"'
WHOLE = f'{PROFILE} == ""'


def two_boards(*queues: object) -> World:
    """Two nodes with one GPU each that is whole, or cut by counters."""
    return stories.world(*stories.partitioned("n0"), *stories.partitioned("n1"), *queues)  # type: ignore[arg-type]


def test_a_slice_moves_next_to_another_so_that_a_whole_gpu_is_free() -> None:
    world = two_boards(stories.queue("a", gpu=4))
    stories.runs(world, "one", "a", ("n0", "gpu-0-1g-0"), when=SMALL)
    stories.runs(world, "other", "a", ("n1", "gpu-0-1g-0"), when=SMALL, since=600)
    stories.waits(world, "whole", "a", when=WHOLE)
    done = stories.decided(world)
    assert stories.evicted(done) == {"other": "Consolidated"}
    assert stories.nominated(done) == {"whole": "n1"}
    (moved,) = done.evictions
    assert moved.moves_to == "n0"
    assert [result.device for kept in moved.keeps for result in kept.devices.results] != [
        "gpu-0-1g-0"
    ]


def test_nothing_moves_where_the_slices_would_not_fit_together() -> None:
    world = two_boards(stories.queue("a", gpu=4))
    stories.runs(world, "one", "a", ("n0", "gpu-0-3g-0"), when=LARGE)
    stories.runs(
        world, "two", "a", ("n0", "gpu-0-1g-4"), when=SMALL
    )  # in the middle of where a large one would go
    stories.runs(world, "other", "a", ("n1", "gpu-0-3g-0"), when=LARGE, since=600)
    stories.waits(world, "whole", "a", when=WHOLE)
    done = stories.decided(world)
    assert stories.evicted(done) == {}
    assert stories.nominated(done) == {}


def test_a_large_slice_is_reclaimed_from_small_ones_on_one_gpu_and_no_more_of_them_than_it_takes() -> (
    None
):
    world = two_boards(stories.queue("rich", gpu=0), stories.queue("due", gpu=1))
    for index in range(7):
        stories.runs(
            world,
            f"small-{index}",
            "rich",
            ("n0", f"gpu-0-1g-{index}"),
            when=SMALL,
            since=700 - index,
        )
    stories.runs(world, "pair", "due", ("n1", "gpu-0-3g-0"), when=LARGE)
    stories.runs(world, "more", "rich", ("n1", "gpu-0-3g-4"), when=LARGE, since=9000)
    stories.waits(world, "large", "due", when=LARGE)
    done = stories.decided(world)
    assert stories.nominated(done) == {"large": "n0"}
    assert stories.evicted(done) == dict.fromkeys(
        ("small-4", "small-5", "small-6"), "Reclaimed"
    )  # memory slices 4 to 7


def test_a_share_is_evicted_for_a_whole_gpu_of_its_own_queue() -> None:
    world = two_boards(stories.queue("a", gpu=4))
    stories.runs(world, "slice-0", "a", ("n0", "gpu-0-3g-0"), when=LARGE)
    stories.runs(world, "slice-1", "a", ("n1", "gpu-0-3g-0"), when=LARGE)
    stories.runs(world, "slice-2", "a", ("n1", "gpu-0-3g-4"), when=LARGE)
    stories.runs(world, "slice-3", "a", ("n0", "gpu-0-1g-4"), when=SMALL)
    stories.waits(world, "urgent", "a", when=WHOLE, priority=10)
    done = stories.decided(world)
    assert set(stories.evicted(done).values()) <= {"Preempted", "Consolidated"}
    assert stories.nominated(done).keys() == {"urgent"}
    assert len(stories.evicted(done)) == 2

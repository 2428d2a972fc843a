"""A slice that finds no place: the least that blocks one moves, in the engine's own consolidation, with its cost."""

from __future__ import annotations

import msgspec
import pytest

from dovetail.model import plan
from dovetail.model import policy as policies
from dovetail.world.events import Changed
from dovetail.world.world import World
from tests.batch import stories
from tests.batch.test_partitions import LARGE, SMALL, WHOLE
from tests.schedule import build


def boards(count: int) -> World:
    """Nodes with one GPU each that is whole, or cut by counters."""
    published = [part for node in range(count) for part in stories.partitioned(f"n{node}")]
    return stories.world(*published, stories.queue("a", gpu=count))


def at_most(moves: int | None) -> policies.Policy:
    """Consolidation with this budget of moves for one gang."""
    return policies.Policy(batch=policies.Batch(consolidation_victims=moves))


def decided(world: World, policy: policies.Policy = policies.DEFAULT) -> plan.Plan:
    """The plan; the same without a memo."""
    done = stories.decided(world, policy=policy)
    without_memo = msgspec.structs.replace(policy, memo=False)
    assert stories.decided(world, policy=without_memo) == done
    return done


def test_the_place_with_the_smallest_slices_in_the_way_is_cleared() -> None:
    world = boards(3)
    stories.runs(world, "large-0", "a", ("n0", "gpu-0-3g-0"), when=LARGE)
    stories.runs(world, "large-1", "a", ("n1", "gpu-0-3g-4"), when=LARGE, since=10)
    stories.runs(world, "small-2", "a", ("n2", "gpu-0-1g-0"), when=SMALL, since=7200)
    stories.waits(world, "whole", "a", when=WHOLE)
    done = decided(world)
    assert stories.evicted(done) == {"small-2": "Consolidated"}
    assert stories.nominated(done) == {"whole": "n2"}
    detail = stories.detail(done, "small-2")
    assert "1 pod moves (0.1" in detail
    assert "to clear gpu-0 on n2" in detail


def test_a_slice_of_a_crowded_board_moves_where_all_pods_of_the_node_are_too_many() -> None:
    """Seven small slices on a board with a large free half elsewhere: one of them, not the oldest four, has to go."""
    world = boards(2)
    for start in (0, 1, 2, 3, 4):
        stories.runs(
            world, f"small-{start}", "a", ("n0", f"gpu-0-1g-{start}"), when=SMALL, since=900 - start
        )
    stories.runs(world, "large", "a", ("n1", "gpu-0-3g-4"), when=LARGE)
    stories.runs(world, "other", "a", ("n1", "gpu-0-1g-3"), when=SMALL)
    stories.waits(world, "next", "a", when=LARGE)
    done = decided(world, at_most(1))
    assert len(done.evictions) == 1
    (moved,) = done.evictions
    assert (moved.pod.name, moved.moves_to) in {("small-4", "n1"), ("other", "n0")}
    assert set(stories.nominated(done)) == {"next"}


@pytest.mark.parametrize(("moves", "is_served"), [(0, False), (1, False), (2, True)])
def test_no_more_slices_move_than_the_budget_allows(moves: int, is_served: bool) -> None:
    world = boards(2)
    stories.runs(world, "a", "a", ("n0", "gpu-0-1g-0"), when=SMALL)
    stories.runs(world, "b", "a", ("n0", "gpu-0-1g-5"), when=SMALL)
    stories.runs(world, "c", "a", ("n1", "gpu-0-1g-0"), when=SMALL)
    stories.runs(world, "d", "a", ("n1", "gpu-0-1g-5"), when=SMALL)
    stories.waits(world, "whole", "a", when=WHOLE)
    done = decided(world, at_most(moves))
    assert bool(stories.nominated(done)) == is_served
    assert len(done.evictions) == (2 if is_served else 0)


def test_a_slice_whose_pod_nothing_recreates_stays_and_the_next_cheapest_moves() -> None:
    world = boards(3)
    stories.runs(
        world, "bare", "a", ("n0", "gpu-0-1g-0"), when=SMALL, metadata={"ownerReferences": []}
    )
    stories.runs(
        world,
        "fixed",
        "a",
        ("n1", "gpu-0-1g-0"),
        when=SMALL,
        annotations={"dovetail.dev/preemptible": "false"},
    )
    stories.runs(world, "large", "a", ("n2", "gpu-0-3g-0"), when=LARGE)
    stories.waits(world, "whole", "a", when=WHOLE)
    done = decided(world)
    assert stories.evicted(done) == {"large": "Consolidated"}
    assert stories.nominated(done) == {"whole": "n2"}


def test_slices_that_share_a_claim_move_together() -> None:
    world = boards(2)
    claim = stories.holding("both", ("n0", "gpu-0-1g-0"), users=["one", "two"], when=SMALL)
    build.put(world, claim)
    for name in ("one", "two"):
        world.apply(Changed(stories.pod(name, "a", uses=["both"], node="n0")))
    stories.runs(world, "large", "a", ("n1", "gpu-0-3g-0"), when=LARGE)
    stories.waits(world, "whole", "a", when=WHOLE)
    done = decided(world, at_most(1))
    assert stories.evicted(done) == {"large": "Consolidated"}, "one place, one pod in its way"
    assert stories.nominated(done) == {"whole": "n1"}


def test_after_the_move_everything_runs() -> None:
    world = boards(2)
    stories.runs(world, "one", "a", ("n0", "gpu-0-1g-0"), when=SMALL)
    stories.runs(world, "other", "a", ("n1", "gpu-0-1g-0"), when=SMALL, since=600)
    stories.waits(world, "whole", "a", when=WHOLE)
    stories.carried_out(world, decided(world))
    last = stories.decided(world)
    assert not last.evictions
    assert not last.refusals


def test_two_requests_are_served_by_two_moves_of_one_decision() -> None:
    world = boards(4)
    for node in range(4):
        stories.runs(world, f"small-{node}", "a", (f"n{node}", "gpu-0-1g-0"), when=SMALL)
    stories.waits(world, "first", "a", when=WHOLE)
    stories.waits(world, "second", "a", when=WHOLE)
    done = decided(world, at_most(1))
    assert stories.nominated(done).keys() == {"first", "second"}
    assert set(stories.evicted(done).values()) == {"Consolidated"}
    assert len(done.evictions) == 2
    assert all("to clear gpu-0 on" in eviction.detail for eviction in done.evictions)

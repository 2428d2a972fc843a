"""Power caps: what boards are rated for, per queue and per rack."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.kubetypes import meta
from dovetail.kubetypes.custom import topologies
from dovetail.world.world import World
from tests.batch import stories
from tests.schedule import build

RACK = "example.com/rack"


def rack(cap: int | None, *, label: str = RACK, alias: str = "rack") -> topologies.Topology:
    level = topologies.Level(node_label=label, alias=alias, power_cap_watts=cap)
    return topologies.Topology(
        metadata=meta.ObjectMeta(name="site"), spec=topologies.TopologySpec(levels=(level,))
    )


def site(
    *queues: Any, cap: int | None = None, racks: tuple[str, ...] = ("r1", "r2"), gpus: int = 4
) -> World:
    """A node of H100s (700 W each) in every rack."""
    world = stories.world(rack(cap), *queues)
    for name in racks:
        build.put(world, build.node(f"node-{name}", labels={RACK: name}))
        kind = {"productName": {"string": stories.H100}, "architecture": {"string": "Hopper"}}
        build.put(world, build.gpu_slice(f"node-{name}", gpus, **kind))
    return world


def queue_up(world: World, count: int, of: str = "a", **facts: Any) -> None:
    for number in range(count):
        stories.waits(world, f"{of}{number}", of, **facts)


def test_a_queue_stays_within_its_power_cap_and_the_refusal_has_the_numbers() -> None:
    world = site(stories.queue("a", power_cap_watts=1500))
    queue_up(world, 3)
    done = stories.decided(world)
    assert len(done.placements) == 2
    assert "1400 W in use and 700 W wanted exceed its power cap, 1500 W" in done.refusals[0].summary


def test_the_cap_of_a_parent_counts_its_children_together() -> None:
    tree = (
        stories.queue("all", power_cap_watts=2100),
        stories.queue("a", parent="all"),
        stories.queue("b", parent="all"),
    )
    world = site(*tree)
    queue_up(world, 2, "a")
    queue_up(world, 2, "b")
    assert len(stories.decided(world).placements) == 3


def test_a_slice_is_charged_its_part_of_the_board() -> None:
    world = stories.world(*stories.partitioned("one"), stories.queue("a", power_cap_watts=210))
    small = 'device.attributes["gpu.example.com"].?profile.orValue("") == "1g.10gb"'
    queue_up(world, 4, when=small)
    assert len(stories.decided(world).placements) == 2  # 101 W each, rounded up


def test_counted_gpus_are_rated_by_the_label_of_their_node() -> None:
    node = build.node(
        "n0", allocatable={"nvidia.com/gpu": "8"}, labels={"nvidia.com/gpu.product": "Tesla-T4"}
    )
    world = stories.world(node, stories.queue("a", power_cap_watts=150))
    for number in range(3):
        build.put(world, stories.pod(f"p{number}", "a", gpus=1))
    assert len(stories.decided(world).placements) == 2  # 70 W each


def test_an_unknown_board_counts_as_the_hungriest() -> None:
    world = stories.world(
        build.node("n0"), build.gpu_slice("n0", 4), stories.queue("a", power_cap_watts=1400)
    )
    queue_up(world, 2)
    assert len(stories.decided(world).placements) == 1


def test_a_rack_stays_within_its_cap_and_others_take_the_rest() -> None:
    world = site(stories.queue("a"), cap=1400)
    queue_up(world, 5)
    done = stories.decided(world)
    assert sorted(stories.started(done).values()) == ["node-r1", "node-r1", "node-r2", "node-r2"]
    assert "rack r" in done.refusals[0].summary
    assert "1400 W in use and 700 W wanted exceed its power cap, 1400 W" in done.refusals[0].summary


def test_running_pods_count_whichever_scheduler_they_belong_to() -> None:
    world = site(stories.queue("a"), cap=1400, racks=("r1",))
    stories.runs(world, "foreign", "no-queue", ("node-r1", "gpu-0"), schedulerName="another")
    queue_up(world, 2)
    assert len(stories.decided(world).placements) == 1


def test_no_pod_is_evicted_where_power_would_still_be_missing() -> None:
    world = site(stories.queue("a", gpu=4), stories.queue("b", gpu=0), cap=700, racks=("r1",))
    stories.runs(world, "guest", "b", ("node-r1", "gpu-0"))
    stories.waits(world, "due", "a", 2)
    assert not stories.decided(world).evictions
    stories.waits(world, "modest", "a", 1)
    done = stories.decided(world)
    assert stories.evicted(done) == {"guest": "Reclaimed"}
    assert stories.nominated(done) == {"modest": "node-r1"}


def test_without_a_cap_nothing_is_counted() -> None:
    world = site(stories.queue("a"))
    queue_up(world, 8)
    assert len(stories.decided(world).placements) == 8


@pytest.mark.parametrize(("cap", "placed"), [(699, 0), (700, 1), (2100, 3)])
def test_a_gang_starts_within_the_cap_or_not_at_all(cap: int, placed: int) -> None:
    world = site(stories.queue("a"), cap=cap, racks=("r1",))
    for number in range(max(placed, 1)):
        build.put(world, build.claim(f"c{number}"))
        build.put(
            world, stories.member(f"m{number}", "a", "gang", max(placed, 1), uses=[f"c{number}"])
        )
    assert len(stories.decided(world).placements) == placed

"""The study's LEX rule chooses what the engine chooses: on every board, between GPUs of a node, and between nodes."""

from __future__ import annotations

import random

import pytest

from dovetail.allocate import allocator
from dovetail.gpus import catalogue
from dovetail.model import policy
from dovetail.schedule import decide
from dovetail.study.partitions import board_places, slice_policies
from dovetail.study.partitions.slice_fleet import Slice, SliceFleet
from dovetail.world import events
from tests.schedule import build
from tests.study import slice_world

H100 = "H100-SXM5-80GB"
BOARDS = [
    gpu.name
    for gpu in catalogue.all_gpus()
    if catalogue.is_fully_known(gpu) and gpu.memory_bytes is not None
]


def _layouts(board: board_places.Board) -> dict[int, tuple[tuple[str, int], ...]]:
    """Every reachable mask of memory slices, with one way to reach it."""
    layouts: dict[int, tuple[tuple[str, int], ...]] = {0: ()}
    waiting = [0]
    while waiting:
        mask = waiting.pop()
        for profile in board.profiles:
            for start in profile.free_starts(mask):
                after = mask | profile.mask(start)
                if after not in layouts:
                    layouts[after] = (*layouts[mask], (profile.name, start))
                    waiting.append(after)
    return layouts


def _device_names(view_names: tuple[str, ...]) -> dict[tuple[int, str, int], str]:
    """By GPU, profile and start."""
    names = {}
    for name in view_names:
        if "-mig-" in name and "-me-" not in name:
            gpu, start = slice_world.gpu_and_start(name)
            names[gpu, name.split("-")[3], start] = name
    return names


@pytest.mark.parametrize("board_name", BOARDS)
def test_the_engine_ranks_places_as_the_study_does(board_name: str) -> None:
    """Three GPUs in any states: the allocator takes the GPU and start with the lowest rank."""
    board = board_places.named(board_name)
    layouts = _layouts(board)
    masks = sorted(layouts)
    chance = random.Random(5)
    for _ in range(25):
        states = [chance.choice(masks) for _ in range(3)]
        profile = chance.choice(board.profiles)
        world = slice_world.published(board_name, nodes=1, gpus=3)
        (node,) = world.nodes
        names = _device_names(world.view(node).pools[0].devices.names)
        for gpu, mask in enumerate(states):
            for name, start in layouts[mask]:
                held = slice_world.claim(f"c{gpu}-{start}", name)
                device = names[gpu, name.replace(".", ""), start]
                world.apply(events.Changed(slice_world.allocated(held, node, device)))

        fleet = _fleet(board, states, layouts)
        pending = slice_world.claim("pending", profile.name)
        outcome = allocator.allocate(world.view(node), [pending], world.classes)
        chosen = None
        if isinstance(outcome, allocator.Allocated):
            (device,) = outcome.results[0].devices.results
            chosen = slice_world.gpu_and_start(device.device)
        assert chosen == fleet.choice(profile), (states, profile)


@pytest.mark.parametrize("memo", [True, False])
def test_decisions_between_nodes_follow_the_rule(memo: bool) -> None:
    """Slices come and go on three nodes; every pod gets a place of the lowest rank of all GPUs."""
    board = board_places.named(H100)
    world = slice_world.published(H100, nodes=3, gpus=2)
    layouts = _layouts(board)
    nodes = list(world.nodes)
    chance = random.Random(11)
    running: list[tuple[str, int, int]] = []  # claim, GPU of all nodes, mask
    refused = 0
    for number in range(70):
        if running and chance.random() < 0.35:
            name, _, _ = running.pop(chance.randrange(len(running)))
            world.apply(events.Deleted(world.claims["default", name]))
        profile = chance.choice(board.profiles)
        masks = _masks(running)
        expected = _fleet(board, masks, layouts).choice(profile)

        name = f"c{number}"
        pending = slice_world.claim(name, profile.name)
        pod = build.pod(name, uses=(name,), cpu="1m")
        world.apply(events.Changed(pending))
        world.apply(events.Changed(pod))
        plan = decide.decide(world, policy.Policy(memo=memo))
        world.apply(events.Deleted(pod))
        if expected is None:
            assert not plan.placements
            world.apply(events.Deleted(pending))
            refused += 1
            continue

        (placement,) = plan.placements
        (result,) = placement.allocations[0].result.devices.results
        on_node, start = slice_world.gpu_and_start(result.device)
        gpu = 2 * nodes.index(placement.node) + on_node
        assert _rank(board, profile, masks[gpu], start) == _rank(
            board, profile, masks[expected[0]], expected[1]
        )
        world.apply(events.Changed(slice_world.allocated(pending, placement.node, result.device)))
        running.append((name, gpu, profile.mask(start)))
    assert refused > 5


def _fleet(
    board: board_places.Board, states: list[int], layouts: dict[int, tuple[tuple[str, int], ...]]
) -> SliceFleet:
    profiles = {profile.name: profile for profile in board.profiles}
    fleet = SliceFleet(board, len(states), rule=slice_policies.lex)
    for gpu, mask in enumerate(states):
        for name, start in layouts[mask]:
            fleet.put(Slice(100 * gpu + start, profiles[name], gpu, start))
    return fleet


def _rank(
    board: board_places.Board, profile: board_places.SliceProfile, mask: int, start: int
) -> slice_policies.Rank:
    return slice_policies.lex(board, profile, mask, start)


def _masks(running: list[tuple[str, int, int]]) -> list[int]:
    masks = [0] * 6
    for _, gpu, mask in running:
        masks[gpu] |= mask
    return masks

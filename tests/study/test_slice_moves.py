"""With moves, too, the study serves what the engine serves: the same requests on GPUs in the same states."""

from __future__ import annotations

import random

import msgspec
import pytest

from dovetail.kubetypes.resource import claims
from dovetail.model import policy
from dovetail.study.partitions import board_places, slice_policies
from dovetail.study.partitions.slice_fleet import Slice, SliceFleet
from dovetail.world import events
from dovetail.world.world import World
from tests.batch import stories
from tests.study import slice_world

H100 = "H100-SXM5-80GB"
BOARD = board_places.named(H100)
GPUS_PER_NODE = 3
NODES = 2


def _full_fleet(chance: random.Random) -> SliceFleet:
    """GPUs on which slices came and went until the fleet is nearly full."""
    fleet = SliceFleet(BOARD, NODES * GPUS_PER_NODE, rule=slice_policies.lex)
    for number in range(60):
        running = [held.number for held in fleet.slices()]
        if running and chance.random() < 0.45:
            fleet.give(chance.choice(running))
        fleet.take(number, chance.choice(BOARD.profiles))
    return fleet


def _world(slices: list[Slice]) -> World:
    """The same slices, each used by a pod that a controller recreates."""
    world = slice_world.published(H100, nodes=NODES, gpus=GPUS_PER_NODE)
    world.apply(events.Changed(stories.queue("a", gpu=100)))
    nodes = list(world.nodes)
    for held in slices:
        node = nodes[held.gpu // GPUS_PER_NODE]
        name = f"p{held.number}"
        names = world.view(node).pools[0].devices.names
        device = next(
            name
            for name in names
            if name.startswith(
                f"gpu-{held.gpu % GPUS_PER_NODE}-mig-{held.profile.name.replace('.', '')}-"
            )
            and "-me-" not in name
            and name.endswith(f"-{held.start}")
        )
        claim = slice_world.allocated(slice_world.claim(name, held.profile.name), node, device)
        user = claims.ResourceClaimConsumerReference(
            resource="pods", name=name, uid=f"uid-of-{name}"
        )
        status = msgspec.structs.replace(claim.status, reserved_for=(user,))
        world.apply(events.Changed(msgspec.structs.replace(claim, status=status)))
        world.apply(events.Changed(stories.pod(name, "a", uses=[name], node=node)))
    return world


@pytest.mark.slow
@pytest.mark.parametrize("moves", [1, 2])
def test_the_engine_serves_with_moves_what_the_study_serves(moves: int) -> None:
    rules = policy.Policy(batch=policy.Batch(consolidation_victims=moves))
    chance = random.Random(moves)
    served = refused = 0
    for _ in range(16):
        before = _full_fleet(chance)
        blocked = [profile for profile in BOARD.profiles if before.choice(profile) is None]
        if not blocked:
            continue
        profile = chance.choice(blocked)
        fleet = SliceFleet(BOARD, len(before.used), rule=slice_policies.lex, most_moves=moves)
        for held in before.slices():
            fleet.put(held)
        world = _world(before.slices())
        world.apply(events.Changed(slice_world.claim("next", profile.name)))
        world.apply(events.Changed(stories.pod("next", "a", uses=["next"])))

        plan = stories.decided(world, policy=rules)
        is_served = fleet.take(1000, profile)
        assert bool(plan.nominations) == is_served, (profile.name, sorted(before.slices()))
        assert len(plan.evictions) <= moves
        assert all(eviction.moves_to for eviction in plan.evictions)
        if is_served and moves == 1:
            assert len(plan.evictions) == fleet.moves
        served += is_served
        refused += not is_served
    assert min(served, refused) >= 3

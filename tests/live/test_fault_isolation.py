"""Decisions that fail: exactly the jobs that cause it are set aside, and all others are decided about."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from typing import Any

import pytest

from dovetail.kubetypes.core import pods
from dovetail.live.cycle import fault_isolation
from dovetail.model import gangs, plan
from dovetail.ports import meter
from dovetail.sim import virtual_clock
from dovetail.world.world import World
from tests.live.live_scheduler import play
from tests.schedule import build

Key = gangs.GangKey


class Tripping:
    """A decider that fails on chosen jobs until they are set aside; counts how often it is called.

    It fails on `asked` jobs when they are among the pods to decide, on `present` and `running` ones wherever they
    exist, and on `victims` when there is any pod to decide.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.count = 0
        self.asked: set[Key] = set()
        self.present: set[Key] = set()
        self.running: set[Key] = set()
        self.victims: set[Key] = set()

    @property
    def waiting_culprits(self) -> set[Key]:
        return self.asked | self.present

    @property
    def running_culprits(self) -> set[Key]:
        return self.running | self.victims

    def __call__(
        self,
        world: World,
        *given: Any,
        among: Collection[str] | None,
        aside: Collection[Key],
        **options: Any,
    ) -> plan.Plan:
        self.count += 1
        pending = [pod for pod in self.world.pending(among) if key_of(pod) not in aside]
        keys = {key_of(pod) for pod in pending}
        culprits = keys & self.asked | (self.present | self.running) - {*aside}
        if pending:
            culprits |= self.victims - {*aside}
        if culprits:
            raise ZeroDivisionError(sorted(culprits))
        return plan.Plan(
            refusals=tuple(plan.Refusal(pod=plan.pod_ref(pod), summary="") for pod in pending)
        )


def decider(
    world: World,
    decide: fault_isolation.Decide,
    clock: virtual_clock.VirtualClock | None = None,
) -> fault_isolation.Decider:
    used_clock = clock or virtual_clock.VirtualClock()
    return fault_isolation.Decider(world, used_clock, meter.NoMeter(), decide=decide)


def key_of(pod: pods.Pod) -> Key:
    return gangs.lone_membership(pod).gang


def world_of(waiting: int, running: int) -> World:
    world = build.world(nodes=1)
    build.put(world, *(build.pod(f"w{number}") for number in range(waiting)))
    build.put(world, *(build.pod(f"r{number}", nodeName="n0") for number in range(running)))
    return world


def groups_of(world: World) -> dict[Key, list[str]]:
    return {key_of(pod): [pod.metadata.uid] for pod in world.pending()}


def chosen(rng: random.Random, keys: Collection[Key], most: int) -> set[Key]:
    return {*rng.sample(sorted(keys), rng.randint(0, min(most, len(keys))))}


def keys_of(world: World, is_meant: Callable[[pods.Pod], bool]) -> list[Key]:
    return [key_of(pod) for pod in world.pods.values() if is_meant(pod)]


def spoken(decided: plan.Plan) -> set[str]:
    return {refusal.pod.uid for refusal in decided.refusals}


def ids_of(groups: dict[Key, list[str]], keys: Collection[Key]) -> set[str]:
    return {id_ for key in keys if key in groups for id_ in groups[key]}


@pytest.mark.parametrize("seed", range(150))
def test_any_mixture_of_culprits_is_found_exactly_and_the_rest_is_decided_about(seed: int) -> None:
    rng = random.Random(seed)
    world = world_of(rng.randint(1, 20), rng.randint(0, 12))
    groups = groups_of(world)
    trips = Tripping(world)
    trips.asked = chosen(rng, groups, 4)
    trips.present = chosen(rng, groups, 2)
    running = keys_of(world, lambda pod: bool(pod.spec.node_name))
    trips.running = chosen(rng, running, 3)
    trips.victims = chosen(rng, running, 2)
    made = decider(world, trips)
    culprits = ids_of(groups, trips.waiting_culprits)
    waiting_ids = ids_of(groups, groups)
    is_any_decided = bool(waiting_ids - culprits)
    answered: set[str] = set()
    for _ in range(4):  # what one turn does not look at is for the next
        outcome = made.decided(rng.choice((None, [*waiting_ids])), groups)
        assert not spoken(outcome.decided) & culprits
        assert {*outcome.faults} <= culprits
        assert spoken(outcome.decided) | {*outcome.faults} | {*outcome.later} == waiting_ids
        answered |= spoken(outcome.decided)
    assert answered == waiting_ids - culprits
    assert {*outcome.faults} == culprits
    assert {*made.running_aside} >= trips.running
    assert {*made.running_aside} <= trips.running_culprits
    if is_any_decided:
        assert {*made.running_aside} == trips.running_culprits


def test_what_was_found_is_remembered_and_costs_no_second_search() -> None:
    world = world_of(200, 50)
    groups = groups_of(world)
    trips = Tripping(world)
    trips.asked = {key_of(world.pods["uid-of-w17"]), key_of(world.pods["uid-of-w140"])}
    trips.running = {key_of(world.pods["uid-of-r31"])}
    clock = virtual_clock.VirtualClock()
    made = decider(world, trips, clock)
    outcome = made.decided(None, groups)
    assert {*outcome.faults} == {"uid-of-w17", "uid-of-w140"}
    assert trips.count < 60
    honest = {key: ids for key, ids in groups.items() if key not in trips.asked}
    trips.count = 0
    outcome = made.decided(None, honest)  # those that were set aside wait for their time
    assert trips.count == 1
    assert len(outcome.decided.refusals) == 198
    trips.count = 0
    made.decided(None, groups)  # their time has come: each is tried once
    assert trips.count == 3


def test_many_culprits_are_found_over_some_turns_while_others_are_decided_about() -> None:
    world = world_of(120, 0)
    groups = groups_of(world)
    trips = Tripping(world)
    trips.asked = {key for number, key in enumerate(groups) if number >= 40}
    made = decider(world, trips)
    left = dict(groups)
    for turn in range(6):
        trips.count = 0
        outcome = made.decided(None, left)
        assert trips.count <= fault_isolation.MOST_ASKS + 16
        if turn == 0:
            assert len(spoken(outcome.decided)) == 40, (
                "the honest ones start before all culprits are found"
            )
        left = {key: ids for key, ids in left.items() if not {*ids} & {*outcome.faults}}
        if not outcome.later:
            break
    assert not outcome.later
    assert {*made.aside} == trips.asked


def test_jobs_that_were_set_aside_are_decided_about_again_once_that_works() -> None:
    async def story() -> None:
        world = world_of(3, 3)
        groups = groups_of(world)
        trips = Tripping(world)
        trips.asked = {key_of(world.pods["uid-of-w1"])}
        trips.running = {key_of(world.pods["uid-of-r1"])}
        clock = virtual_clock.VirtualClock()
        made = decider(world, trips, clock)
        made.decided(None, groups)
        assert {*made.aside} == trips.asked | trips.running
        trips.asked, trips.running = set(), set()
        await clock.advance(fault_isolation.PROBE_SECONDS)
        outcome = made.decided(None, groups)
        assert outcome.faults == {}
        assert len(outcome.decided.refusals) == 3
        assert made.aside == frozenset()

    play(story)


def test_a_fault_that_no_job_explains_is_raised() -> None:
    world = world_of(3, 3)

    def trips(
        world: World,
        *given: Any,
        among: Collection[str] | None,
        aside: Collection[Key],
        **options: Any,
    ) -> plan.Plan:
        raise ZeroDivisionError

    made = decider(world, trips)
    with pytest.raises(ZeroDivisionError):
        made.decided(None, groups_of(world))
    assert made.aside == frozenset()


def test_of_jobs_that_fail_only_together_one_is_set_aside() -> None:
    world = world_of(4, 0)

    def trips(
        world: World,
        *given: Any,
        among: Collection[str] | None,
        aside: Collection[Key],
        **options: Any,
    ) -> plan.Plan:
        pending = [pod for pod in world.pending(among) if key_of(pod) not in aside]
        if {"w1", "w2"} <= {pod.metadata.name for pod in pending}:
            raise ZeroDivisionError
        return plan.Plan(
            refusals=tuple(plan.Refusal(pod=plan.pod_ref(pod), summary="") for pod in pending)
        )

    made = decider(world, trips)
    outcome = made.decided(None, groups_of(world))
    assert len(outcome.faults) == 1
    assert len(outcome.decided.refusals) == 3

"""Devices of pods that ended are as good as free to pods that wait for them, though their claims still hold them."""

from __future__ import annotations

import msgspec

from dovetail.world import dump
from dovetail.world.events import Changed
from tests.backfill.timed_cluster import TimedCluster, Work


def ended(timed: TimedCluster, name: str) -> None:
    """The pod has ended; its devices are not released yet."""
    world = timed.course.world
    pod = next(item for item in world.pods.values() if item.metadata.name == name)
    status = msgspec.structs.replace(pod.status, phase="Succeeded")
    world.apply(Changed(msgspec.structs.replace(pod, status=status)))


def test_a_claim_taken_as_free_in_a_trial_holds_its_devices_again_afterwards() -> None:
    timed = TimedCluster(gpus=4).arrive(Work("a", 1, 4, 600, states=600)).go_on(1)
    world = timed.course.world
    before = dump.dump(world)
    with world.trial():
        world.free_claim(("default", "a-0"))
        world.free_claim(("default", "a-0"))
        assert world.allocation(("default", "a-0")) is None
        assert [pool.used for pool in world.view("n0").pools] == [0]
    assert dump.dump(world) == before


def test_no_pod_runs_ahead_while_the_devices_of_ended_pods_are_released() -> None:
    """Two of four GPUs are free; the other two are about to be, and then the head starts."""
    timed = TimedCluster(gpus=4).arrive(
        Work("a", 1, 2, 600, states=600),
        Work("head", 1, 4, 600, states=600, at=1),
        Work("long", 1, 2, 9000, states=9000, at=2),
    )
    timed.go_on(9)
    ended(timed, "a-0")
    timed.course.turn()
    assert timed.course.plan.placements == ()
    assert next(promise.start for promise in timed.course.plan.promises) is not None
    assert timed.started("long") is None

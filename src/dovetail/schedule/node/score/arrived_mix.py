"""The mix of work to expect, counted from the pods that the World knows.

A pod has arrived if the API server still has it, whether it waits, runs or has ended; each counts once. Counted are the
oldest pods, by creation and uid, as many as the schedule of counts says: 5, 10, 15, 20, 26 and so on in steps of about
5 %. So a World that was rebuilt from a list counts what the live one did, as long as no pod was deleted. Deleted pods
leave the mix with the next count, which is due when as many are gone as would have to arrive. Never reads a clock.
"""

from __future__ import annotations

import datetime
from collections import Counter

from dovetail.kubetypes.core import pods
from dovetail.model import pod_mix
from dovetail.schedule import pod_order
from dovetail.schedule.node.score import pod_shapes
from dovetail.world.world import MixInForce, World

NO_MIX = pod_mix.Mix(counts=())


def of(world: World) -> pod_mix.Mix:
    """The mix in force, counted again if that is due. Linear in pods then; empty while there are too few."""
    in_force = world.mix_in_force
    pods_counted = pod_mix.last_count(len(world.pods))
    if in_force is not None and in_force.pods == pods_counted:
        gone = world.pods_gone - in_force.pods_gone
        if gone < pod_mix.next_count(pods_counted) - pods_counted:
            return in_force.mix

    mix = _counted(world, pods_counted) if pods_counted else NO_MIX
    if in_force is not None and in_force.mix == mix:
        mix = in_force.mix  # the same object: what was computed for it stays valid
    world.mix_in_force = MixInForce(mix, pods_counted, world.pods_gone)
    return mix


def _counted(world: World, pods_counted: int) -> pod_mix.Mix:
    reader = pod_shapes.ShapeReader(world)
    oldest = sorted(world.pods.values(), key=_age)[:pods_counted]
    counts = Counter(map(reader.of, oldest))
    return pod_mix.mix_of_counts(counts)


def _age(pod: pods.Pod) -> tuple[datetime.datetime, str, str]:
    created = pod_order.instant(pod.metadata.creation_timestamp)
    return created, pod.metadata.uid, pod.metadata.name

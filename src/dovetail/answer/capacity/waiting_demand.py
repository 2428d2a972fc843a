"""What waiting pods ask for in GPUs, and which nodes could take them were they empty.

Pods that request the same are asked about once, on one empty node of each kind; the price is the one that queues are
charged. Given a replica. Never decides when anything starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from dovetail import errors
from dovetail.answer.capacity import fragmentation, headroom, shapes
from dovetail.answer.replica.replica import Replica
from dovetail.kubetypes.core import pods
from dovetail.model import policy
from dovetail.schedule.queue import amounts
from dovetail.schedule.session import Scope, Session
from dovetail.world import events

MOST_SHAPES: Final = (
    24  # that are asked about, the most common first; of the others no node is known
)


class Demand(NamedTuple):
    """GPUs that pods of one shape wait for, and the examples of nodes that could take such a pod."""

    gpus: float
    pods: int
    nodes: tuple[str, ...]


def waiting(replica: Replica) -> list[Demand]:
    """The demand of all pods that wait for GPUs, by shape."""
    world = replica.world
    alike: dict[object, list[pods.Pod]] = {}
    for pod in world.pending():
        if fragmentation.uses_gpus(world, pod):
            alike.setdefault(fragmentation.shape_key(world, pod), []).append(pod)
    if not alike:
        return []
    ordered = sorted(alike.values(), key=len, reverse=True)
    prices = _prices(replica, [members[0] for members in ordered])
    examples = fragmentation.examples_of(replica).replica
    demands = []
    for number, (members, price) in enumerate(zip(ordered, prices, strict=True)):
        takers = _takers(replica, members[0], examples) if number < MOST_SHAPES else ()
        demands.append(Demand(round(len(members) * price, 3), len(members), takers))
    return demands


def _prices(replica: Replica, asking: Sequence[pods.Pod]) -> list[float]:
    """What each pod would be charged, in GPUs."""
    scale = amounts.scale(amounts.GPU)
    with replica.world.trial():
        session = Session(replica.world, replica.policy, replica.now, policy.UNLIMITED, Scope())
        transaction = session.transaction
        return [
            transaction.price_of_pending(events.pod_id(pod))[1].get(amounts.GPU, 0) / scale
            for pod in asking
        ]


def _takers(replica: Replica, pod: pods.Pod, examples: Replica) -> tuple[str, ...]:
    try:
        shape = shapes.shape_of(replica, pod)
    except errors.InputError:
        return ()  # a pod whose claims do not exist has no shape
    by_node = headroom.free_room(examples, shape).by_node
    return tuple(node for node, number in by_node.items() if number)

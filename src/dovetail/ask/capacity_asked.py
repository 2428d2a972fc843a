"""Asks how many more pods of a shape start, and what is in the way of a gang of them.

Given the replica of a cluster and the shape as people describe it. Raises InputError for contradictions. Never decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dovetail import errors
from dovetail.answer.capacity import blockers, fragmentation, room_left
from dovetail.answer.capacity.shapes import Shape
from dovetail.answer.replica.replica import Replica
from dovetail.ask import shapes_asked
from dovetail.kubetypes import object_set

MOST_MOVING_SHAPES: Final = 4  # more shapes than these are counted in free room only


def capacity(
    replica: Replica,
    objects: object_set.ObjectSet,
    asked: shapes_asked.ShapeAsked,
    *,
    gang: int | None = None,
    level: str = "",
) -> room_left.Capacity:
    """How many more pods of a shape start, and what is in the way of a gang of them."""
    check(asked, gang=gang, level=level)
    shapes = shapes_of(replica, objects, asked, level=level)
    return completed(replica, shapes, rooms(replica, shapes), asked, gang=gang, level=level)


def shapes_of(
    replica: Replica,
    objects: object_set.ObjectSet,
    asked: shapes_asked.ShapeAsked,
    *,
    level: str = "",
) -> tuple[Shape, ...]:
    """The shapes asked about. Raises InputError for names that the cluster does not have."""
    if level:
        shapes_asked.check_level(level, replica.world)
    return shapes_asked.shapes_of(asked, replica, objects)


def rooms(replica: Replica, shapes: Sequence[Shape]) -> tuple[room_left.ShapeCapacity, ...]:
    """How many more of each shape start: the first part of the answer."""
    moves = len(shapes) <= MOST_MOVING_SHAPES
    return tuple(room_left.of_shape(replica, shape, moves=moves) for shape in shapes)


def completed(
    replica: Replica,
    shapes: Sequence[Shape],
    known: tuple[room_left.ShapeCapacity, ...],
    asked: shapes_asked.ShapeAsked,
    *,
    gang: int | None,
    level: str,
) -> room_left.Capacity:
    """The whole answer: with queues, what is in the way, and fragmentation where no shape was named."""
    mix = fragmentation.observed_mix(replica) if asked.is_empty else []
    return room_left.Capacity(
        shapes=known,
        queues=room_left.by_queue(replica),
        fragmentation=fragmentation.fragmentation(replica, mix) if asked.is_empty else None,
        blockers=None if gang is None else blockers.blockers(replica, shapes[0], gang, level),
    )


def check(asked: shapes_asked.ShapeAsked, *, gang: int | None, level: str) -> None:
    """Raises InputError for what contradicts itself or cannot be read, whatever the cluster."""
    shapes_asked.check_amounts(asked)
    if asked.mig and asked.gpu_memory:
        raise errors.InputError("--mig names a slice, --gpu-memory its size; give one of them")
    if asked.like and (asked.gpus is not None or asked.mig or asked.gpu_memory):
        raise errors.InputError(
            "--like takes the shape of a pod: leave --gpus, --mig and so on out"
        )
    if gang is not None and asked.is_empty:
        raise errors.InputError("--gang needs the shape of its pods: --gpus 8, or --like POD")
    if level and gang is None:
        raise errors.InputError("--level says where a gang must fit: give --gang as well")

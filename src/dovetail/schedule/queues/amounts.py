"""Amounts of resources by name, as queues are charged: thousandths of a cpu and of a GPU, bytes, watts, counts.

A name that is missing counts as zero, or, in a quota or limit, as without end. Never rounds.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from typing import Final

from dovetail.model import queueresources, quotas
from dovetail.model.queueresources import Measure

CPU: Final = "cpu"
MEMORY: Final = "memory"
GPU: Final = "gpu"
POWER: Final = "dovetail.dev/watts"  # rated, of the boards that are held
ENDLESS: Final = math.inf

Amounts = dict[str, int]
Bounds = Mapping[str, float]  # a missing name has no bound


def plus(one: Mapping[str, int], other: Mapping[str, int]) -> Amounts:
    """Both together."""
    found = dict(one)
    add(found, other)
    return found


def minus(one: Mapping[str, int], other: Mapping[str, int]) -> Amounts:
    """What the other leaves of the one."""
    found = dict(one)
    add(found, other, sign=-1)
    return found


def add(to: Amounts, other: Mapping[str, int], *, sign: int = 1) -> None:
    """Adds in place, or takes away."""
    for name, amount in other.items():
        to[name] = to.get(name, 0) + sign * amount


def total(listed: Iterable[Mapping[str, int]]) -> Amounts:
    """All together."""
    found: Amounts = {}
    for one in listed:
        add(found, one)
    return found


@functools.lru_cache(maxsize=1024)
def named(name: str) -> str:
    """The one spelling of a resource of a Queue."""
    read = queueresources.read(name)
    if read is None or not read.is_silicon:
        return name
    if read.measure is Measure.GPUS:
        return GPU
    if read.measure is Measure.DEVICE_CLASS:
        return read.subject + quotas.DEVICES_SUFFIX
    return f"{GPU}/{read.measure}.{read.subject}"


@functools.lru_cache(maxsize=1024)
def is_silicon(name: str) -> bool:
    """Whether it is counted in thousandths of a GPU."""
    read = queueresources.read(name)
    return read is not None and read.is_silicon


def scale(name: str) -> int:
    """How many of these are one, as people count."""
    return 1000 if name == CPU or is_silicon(name) else 1


def unit(name: str) -> int:
    """What is handed out at a time: whole GPUs, else the base unit."""
    return 1000 if is_silicon(name) else 1

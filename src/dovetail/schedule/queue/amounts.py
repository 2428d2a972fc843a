"""Amounts of resources by name, as queues are charged: thousandths of a cpu and of a GPU, bytes, watts, counts.

A missing name counts as zero, or, in a quota or limit, as without end. Never rounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

from dovetail import cache
from dovetail.kubetypes.core import resource_quotas
from dovetail.model.queue import queue_resources
from dovetail.model.queue.queue_resources import Measure

CPU: Final = "cpu"
MEMORY: Final = "memory"
GPU: Final = "gpu"
POWER: Final = "dovetail.dev/watts"  # rated, of the boards that are held
ENDLESS: Final = math.inf

Amounts = dict[str, int]
Bounds = Mapping[str, float]  # a missing name has no bound


def plus(amounts: Mapping[str, int], more: Mapping[str, int]) -> Amounts:
    """The sum of both."""
    result = dict(amounts)
    add(result, more)
    return result


def minus(amounts: Mapping[str, int], less: Mapping[str, int]) -> Amounts:
    """The difference of both."""
    result = dict(amounts)
    add(result, less, sign=-1)
    return result


def add(to: Amounts, more: Mapping[str, int], *, sign: int = 1) -> None:
    """Adds in place, or subtracts."""
    for name, amount in more.items():
        to[name] = to.get(name, 0) + sign * amount


def total(listed: Iterable[Mapping[str, int]]) -> Amounts:
    """The sum of all."""
    result: Amounts = {}
    for amounts in listed:
        add(result, amounts)
    return result


@cache.remembered(1024)
def canonical_name(name: str) -> str:
    """The canonical spelling of a resource of a Queue."""
    read = queue_resources.read(name)
    if read is None or not read.is_silicon:
        return name
    if read.measure is Measure.GPUS:
        return GPU
    if read.measure is Measure.DEVICE_CLASS:
        return read.subject + resource_quotas.DEVICES_SUFFIX
    return f"{GPU}/{read.measure}.{read.subject}"


@cache.remembered(1024)
def is_gpu_amount(name: str) -> bool:
    """Whether it is counted in thousandths of a GPU."""
    read = queue_resources.read(name)
    return read is not None and read.is_silicon


def scale(name: str) -> int:
    """How many base units make one, as people count."""
    return 1000 if name == CPU or is_gpu_amount(name) else 1


def unit(name: str) -> int:
    """The smallest part of a fair share: a whole GPU, else the base unit."""
    return 1000 if is_gpu_amount(name) else 1

"""Pods whose devices are nearly unused: measurements, since when they are idle, and what was done about it."""

from __future__ import annotations

import datetime
from enum import StrEnum
from typing import NamedTuple

import msgspec


class Device(NamedTuple):
    """A device as slices publish it."""

    driver: str
    pool: str
    name: str


class Sample(NamedTuple):
    """How busy a device was, in percent."""

    at: datetime.datetime
    percent: float


class IdleStage(StrEnum):
    """What was done about an idle pod."""

    WARNED = "Warned"  # its owner got a warning
    PREEMPTIBLE = "Preemptible"  # it may be evicted, whatever its own preemptibility


class IdleState(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A pod all of whose devices are idle."""

    since: datetime.datetime
    warned: datetime.datetime
    stage: IdleStage

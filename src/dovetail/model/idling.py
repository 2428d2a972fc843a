"""What is known about work whose devices stay nearly unused: measurements, since when, and how far that has gone."""

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


class Stage(StrEnum):
    """How far it has gone."""

    WARNED = "Warned"  # its owner was told
    PREEMPTIBLE = "Preemptible"  # may be made to yield, whatever it says of itself


class IdleState(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A pod all of whose devices are idle."""

    since: datetime.datetime
    warned: datetime.datetime
    stage: Stage

"""What is known about work whose devices stay nearly unused: since when, and how far that has gone."""

from __future__ import annotations

import datetime
from enum import StrEnum

import msgspec


class Stage(StrEnum):
    """How far it has gone."""

    WARNED = "Warned"  # its owner was told
    PREEMPTIBLE = "Preemptible"  # may be made to yield, whatever it says of itself


class IdleState(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A pod all of whose devices are idle."""

    since: datetime.datetime
    warned: datetime.datetime
    stage: Stage

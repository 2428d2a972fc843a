"""What the healer keeps on a Node: the remedy under way and those tried before, and what it asks of the node.

Three annotations. `dovetail.dev/heal` is the healer's alone; `heal-request` asks the node agent or a person for a
reset, a reboot or a replacement; `heal-response` is their word (`model/node_annotations`). Given and returns
annotations. Never writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from dovetail.model import node_annotations
from dovetail.upgrade.heal.remedy_ladder import Rung

RECORD: Final = "dovetail.dev/heal"
REQUEST: Final = node_annotations.HEAL_REQUEST
RESPONSE: Final = node_annotations.HEAL_RESPONSE
FENCE: Final = "dovetail.dev/healing"  # taint of a node whose remedy concerns all of it


class Phase(StrEnum):
    """Where a remedy stands."""

    IDLE = "idle"  # only earlier attempts are kept
    DRAINING = "draining"
    REQUESTED = "requested"


class Result(StrEnum):
    """How an attempt ended."""

    HEALED = "healed"
    FAILED = "failed"
    NOT_NEEDED = "not-needed"  # the fault was over before the remedy was asked for


class MovedPod(msgspec.Struct, frozen=True, order=True):
    """A pod that has to leave; of a gang, every pod that leaves with it."""

    unit: str
    namespace: str
    name: str
    uid: str


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """A remedy that ended."""

    rung: Rung
    gpus: tuple[str, ...]
    began: float
    ended: float
    result: Result


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The healer's state of one node. All of it is derived from this and the cluster's objects."""

    phase: Phase = Phase.IDLE
    id: str = ""
    rung: Rung = Rung.RESTART_APP
    gpus: tuple[str, ...] = ()
    fault: str = ""
    began: float = 0.0
    requested: float = 0.0
    moved: tuple[MovedPod, ...] = ()
    attempts: tuple[Attempt, ...] = ()

    @property
    def is_active(self) -> bool:
        """Whether a remedy is under way."""
        return self.phase is not Phase.IDLE


class Unreadable(msgspec.Struct, frozen=True):
    """A record that another writer broke."""

    why: str


def record_of(annotations: Mapping[str, str]) -> Record | Unreadable:
    """The record; an empty one where the Node has none."""
    text = annotations.get(RECORD, "")
    if not text:
        return Record()
    try:
        return msgspec.json.decode(text, type=Record)
    except msgspec.MsgspecError as error:
        return Unreadable(str(error))


def annotations_of(record: Record) -> dict[str, str | None]:
    """The annotations that go with a record, None for those to remove. One patch writes them all."""
    is_empty = not record.is_active and not record.attempts
    request = None
    if record.phase is Phase.REQUESTED:
        asked = node_annotations.HealRequest(
            id=record.id, action=record.rung.value, gpus=record.gpus
        )
        request = msgspec.json.encode(asked).decode()
    changes: dict[str, str | None] = {
        RECORD: None if is_empty else msgspec.json.encode(record).decode(),
        REQUEST: request,
    }
    if record.phase is not Phase.REQUESTED:
        changes[RESPONSE] = None
    return changes

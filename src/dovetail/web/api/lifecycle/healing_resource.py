"""`GET /healing`: nodes under repair, with the remedy under way, those tried before, and what is waited for.

Read from the annotations that the healer keeps on nodes. Names no pods. Refused to users who may not list nodes.
"""

from __future__ import annotations

import datetime

import msgspec

from dovetail.kubetypes import registry
from dovetail.kubetypes.core import nodes
from dovetail.model import node_annotations
from dovetail.upgrade.heal import heal_record
from dovetail.upgrade.heal.heal_record import Phase, Record
from dovetail.web import asked, endpoints
from dovetail.web.api import read_kinds, rights

UNREADABLE = "unreadable"


class HealAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """A remedy that ended."""

    remedy: str
    gpus: tuple[str, ...]
    began: datetime.datetime
    ended: datetime.datetime
    result: str


class HealingItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One node."""

    node: str
    phase: str  # idle, draining, requested, unreadable
    remedy: str  # under way; empty where only earlier ones are kept
    gpus: tuple[str, ...]
    fault: str
    began: datetime.datetime | None
    requested: datetime.datetime | None
    tries: int  # of this remedy, the present one among them
    reason: str  # what is waited for
    attempts: tuple[HealAttempt, ...]


def answer(question: asked.Asked, params: endpoints.Nothing) -> endpoints.Page[HealingItem]:
    """Nodes with a remedy under way first, then those of which earlier ones are kept."""
    rights.must_list(question, registry.NODE)
    listed = question.view.objects.listed(registry.NODE.unique_name)
    items = [
        _item(each.struct)
        for each in listed
        if isinstance(each.struct, nodes.Node)
        and heal_record.RECORD in each.struct.metadata.annotations
    ]
    return endpoints.Page(items=sorted(items, key=lambda item: (not item.remedy, item.node)))


def _item(node: nodes.Node) -> HealingItem:
    annotations = node.metadata.annotations
    record = heal_record.record_of(annotations)
    if not isinstance(record, Record):
        return HealingItem(
            node=node.metadata.name,
            phase=UNREADABLE,
            remedy="",
            gpus=(),
            fault="",
            began=None,
            requested=None,
            tries=0,
            reason=f"its annotation {heal_record.RECORD} cannot be read: {record.why}",
            attempts=(),
        )
    earlier = sum(attempt.rung is record.rung for attempt in record.attempts)
    return HealingItem(
        node=node.metadata.name,
        phase=str(record.phase),
        remedy=str(record.rung) if record.is_active else "",
        gpus=record.gpus,
        fault=record.fault,
        began=_moment(record.began),
        requested=_moment(record.requested),
        tries=earlier + 1 if record.is_active else 0,
        reason=_reason(record, node_annotations.heal_response_of(annotations)),
        attempts=tuple(_attempt(each) for each in record.attempts),
    )


def _reason(record: Record, response: node_annotations.HealResponse | None) -> str:
    """What the remedy under way waits for."""
    match record.phase:
        case Phase.IDLE:
            return ""
        case Phase.DRAINING:
            units = len({pod.unit for pod in record.moved})
            return f"{len(record.moved)} pods of {units} gangs or single pods leave first"
    if response is None or response.id != record.id:
        return f"{record.rung} was asked for; the node has not answered"
    words = f"{record.rung} {response.result}"
    return f"{words}: {response.message}" if response.message else f"{words}; its GPUs are awaited"


def _attempt(attempt: heal_record.Attempt) -> HealAttempt:
    began, ended = _moment(attempt.began), _moment(attempt.ended)
    epoch = datetime.datetime.fromtimestamp(0, datetime.UTC)
    return HealAttempt(
        remedy=str(attempt.rung),
        gpus=attempt.gpus,
        began=began or epoch,
        ended=ended or epoch,
        result=str(attempt.result),
    )


def _moment(seconds: float) -> datetime.datetime | None:
    """A Unix time; None for one that is not set, or that nothing can mean."""
    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC) if seconds else None
    except (OverflowError, OSError, ValueError):
        return None


ENDPOINTS = (
    endpoints.Endpoint(
        "/healing",
        endpoints.Nothing,
        endpoints.Page[HealingItem],
        answer,
        summary="Nodes under repair",
        reads=(read_kinds.NODES,),
        is_quick=True,
    ),
)
